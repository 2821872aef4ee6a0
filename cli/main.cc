// SPDX-License-Identifier: Apache-2.0
//
// The kvr command: declares the subcommands, runs the one chosen.
#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "cli/help.h"
#include "core/names.h"
#include "core/status.h"

namespace {

absl::StatusOr<int> Run(const kvr::cli::Commands& commands) {
  try {
    return commands.run();
  } catch (const std::bad_alloc&) {
    return kvr::Error(absl::StatusCode::kResourceExhausted,
                      "this shape needs more memory than the machine gives",
                      "give smaller --axes, or free memory");
  }
}

// CLI11 only says that a subcommand is missing when the one given is unknown.
absl::Status UnknownSubcommand(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* level = &app;
  for (const std::string& word : words) {
    const std::vector<const CLI::App*> subs =
        level->get_subcommands([](const CLI::App*) { return true; });
    if (subs.empty() || word.empty() || word[0] == '-') break;
    std::vector<std::string> known;
    for (const CLI::App* sub : subs) known.push_back(sub->get_name());
    const auto found = std::find(known.begin(), known.end(), word);
    if (found == known.end()) {
      return kvr::UnknownName("subcommand", word,
                              std::vector<std::string_view>(known.begin(), known.end()));
    }
    level = subs[static_cast<size_t>(found - known.begin())];
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  using namespace kvr::cli;
  CLI::App app("KVR: compile, prove, tune and launch kernel variants at run time", "kvr");
  app.formatter(std::make_shared<HelpText>());
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("kvr ") + KVR_VERSION);
  Commands commands;
  app.add_flag("--json", commands.global.json, "print one JSON document instead of tables");
  app.add_option("--plugins", commands.global.plugins,
                 "a directory of bundles and plugins, or a plugin, besides the built-in ones; "
                 "repeatable")
      ->type_name("PATH")
      ->allow_extra_args(false)
      ->take_all();
  AddDoctor(app, commands);
  AddList(app, commands);
  AddCompile(app, commands);
  AddVerify(app, commands);
  AddTune(app, commands);
  AddAb(app, commands);
  AddNoise(app, commands);
  AddBench(app, commands);
  AddRun(app, commands);
  AddExplain(app, commands);
  AddCache(app, commands);
  AddConfig(app, commands);
  AddReport(app, commands);
  AddLedgerCommand(app, commands);
  AddWhy(app, commands);
  AddSelectionsCommand(app, commands);
  AddStatus(app, commands);
  AddSwap(app, commands);
  AddRollback(app, commands);
  const bool json = std::count(argv, argv + argc, std::string_view("--json")) > 0;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error) == 0 ? kDone : kWrongInput;  // --help
    const absl::Status unknown = UnknownSubcommand(app, {argv + 1, argv + argc});
    if (!unknown.ok()) return PrintError(unknown, json);
    return PrintError(kvr::Error(absl::StatusCode::kInvalidArgument, error.what(),
                                 "see `kvr --help`, or `kvr SUBCOMMAND --help`"),
                      json);
  }
  absl::StatusOr<int> code = Run(commands);
  if (const absl::Status written = kvr::cli::FlushOutput(); code.ok() && !written.ok()) {
    code = written;
    commands.global.json = false;  // it would go where nothing arrives
  }
  return code.ok() ? *code : PrintError(code.status(), commands.global.json);
}
