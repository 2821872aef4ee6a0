// SPDX-License-Identifier: Apache-2.0
//
// kvr list [OP]: operations, their variants, and what was refused with the reason.
#include "cli/command.h"
#include "cli/table.h"
#include "core/status.h"

namespace kvr::cli {
namespace {

std::string_view SemanticsName(Semantics semantics) {
  return semantics == Semantics::kExact ? "exact" : "approximate";
}

// Where its files lie: in its bundle, or in one that it extends.
Json FilesOf(const Variant& variant) {
  Json files = Json::array();
  for (const auto* some : {&variant.sources, &variant.headers}) {
    for (const SourceFile& file : *some) files.push_back(file.path);
  }
  for (const PrebuiltBinary& cubin : variant.cubins) files.push_back(cubin.file.path);
  return files;
}

absl::StatusOr<int> RunList(const GlobalOptions& global, const std::string& only) {
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<Platform> platform,
                       OpenPlatform(global, /*name_refused=*/false));
  const Catalog& catalog = platform->catalog();
  if (!only.empty()) {
    const absl::Status known = catalog.FindOp(only).status();
    if (!known.ok()) NameRefused(catalog);  // it may be one of theirs
    KVR_RETURN_IF_ERROR(known);
  }

  Json ops = Json::array();
  std::string tables;
  for (const auto& op : catalog.ops()) {
    if (!only.empty() && op->name() != only) continue;
    Json variants = Json::array();
    Table table({{"variant"}, {"version"}, {"semantics"}, {"extends"}, {"targets"}, {"plugin"}});
    for (const VariantPtr& variant : op->variants) {
      variants.push_back({{"name", variant->name},
                          {"semantics", SemanticsName(variant->semantics)},
                          {"plugin", variant->plugin},
                          {"version", variant->version},
                          {"state", "admitted"},
                          {"baseline", variant->is_baseline},
                          {"extends", variant->extends},
                          {"targets", variant->targets},
                          {"files", FilesOf(*variant)},
                          {"fingerprint", variant->fingerprint.Hex()}});
      std::string targets;
      for (const std::string& target : variant->targets)
        targets += (targets.empty() ? "" : ",") + target;
      table.Row({variant->name + (variant->is_baseline ? " *" : ""), variant->version,
                 std::string(SemanticsName(variant->semantics)), variant->extends, targets,
                 variant->plugin});
    }
    ops.push_back({{"name", op->name()}, {"variants", variants}});
    tables += op->name() + "\n" + table.Render(TerminalWidth()) + "\n";
  }
  Json rejected = Json::array();
  for (const Rejection& rejection : catalog.rejections()) {
    Json entry = ErrorJson(rejection.status);
    entry["path"] = rejection.path;
    rejected.push_back(entry);
  }
  if (global.json) {
    PrintJson({{"ops", ops}, {"rejected", rejected}});
    return ExitCode(global, catalog, false);
  }
  Print(tables);
  Print("* the baseline: serves whatever nothing else is selected for\n");
  for (const Rejection& rejection : catalog.rejections()) {
    const int width = TerminalWidth();
    Print("\nrefused: " + rejection.path + "\n");
    Print(Wrap(What(rejection.status), width, 2));
    if (!Fix(rejection.status).empty()) Print(Wrap(Fix(rejection.status), width, 2));
  }
  return ExitCode(global, catalog, false);
}

}  // namespace

void AddList(CLI::App& app, Commands& commands) {
  auto only = std::make_shared<std::string>();
  CLI::App* sub =
      Subcommand(app, "list", "Operations and their variants", "kvr list --plugins ~/my-variants");
  sub->add_option("OP", *only, "only this operation");
  sub->callback([&commands, only] {
    commands.run = [&commands, only] { return RunList(commands.global, *only); };
  });
}

}  // namespace kvr::cli
