// SPDX-License-Identifier: Apache-2.0
//
// The kvr command: declares the subcommands, runs the one chosen.
#include "cli/command.h"

int main(int argc, char** argv) {
  using namespace kvr::cli;
  CLI::App app("KVR: compile, prove, tune and launch kernel variants at run time", "kvr");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("kvr ") + KVR_VERSION);
  Commands commands;
  app.add_flag("--json", commands.global.json, "print one JSON document instead of tables");
  app.add_option("--plugins", commands.global.plugins,
                 "a directory of bundles besides the built-in ones; repeatable")
      ->type_name("DIR")
      ->allow_extra_args(false)
      ->take_all();
  AddDoctor(app, commands);
  AddList(app, commands);
  AddCompile(app, commands);
  AddVerify(app, commands);
  AddTune(app, commands);
  AddRun(app, commands);
  AddExplain(app, commands);
  AddCache(app, commands);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kWrongInput;
  }
  const absl::StatusOr<int> code = commands.run();
  return code.ok() ? *code : PrintError(code.status(), commands.global.json);
}
