// SPDX-License-Identifier: Apache-2.0
//
// kvr compile OP: every variant's binary for the targets asked for, with the resources it uses.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/table.h"
#include "cli/work.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr::cli {
namespace {

absl::StatusOr<int> RunCompile(const GlobalOptions& global, const OpOptions& options) {
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<Platform> platform, OpenPlatform(global));
  std::vector<std::string> targets;
  if (!options.targets.empty()) {
    KVR_ASSIGN_OR_RETURN(targets, ParseTargets(options.targets));
  }
  CompileRequest request;
  KVR_RETURN_IF_ERROR(FillRequest(options, &request));
  request.coverage = options.all ? Coverage::kAll : Coverage::kDefault;
  CompileReport report;
  {
    ProgressBar progress(global.json);
    KVR_ASSIGN_OR_RETURN(
        report, Compile(*platform, Settings(global, options, &progress), targets, request));
  }
  Json binaries = Json::array();
  Table table({{"variant"},
               {"config"},
               {"target"},
               {"status"},
               {"regs", Table::Align::kRight},
               {"smem", Table::Align::kRight},
               {"spills", Table::Align::kRight},
               {"size", Table::Align::kRight},
               {"cache"},
               {"ms", Table::Align::kRight}});
  // One target for all of them is said once, above the table.
  std::string common_target = report.binaries.empty() ? "" : report.binaries.front().target;
  for (const CompileResult& binary : report.binaries) {
    if (binary.target != common_target) common_target.clear();
  }
  int failed = 0, hits = 0;
  for (const CompileResult& binary : report.binaries) {
    const bool passed = binary.status == TrialStatus::kPassed;
    const bool compiled = binary.origin == Origin::kCompiled;
    const std::string origin(OriginName(binary.origin));
    failed += passed ? 0 : 1;
    hits += compiled && binary.cache_hit ? 1 : 0;
    binaries.push_back({{"variant", binary.variant},
                        {"config", ConfigJson(binary.config)},
                        {"target", binary.target},
                        {"status", TrialStatusName(binary.status)},
                        {"reason", binary.reason},
                        {"registers", binary.registers},
                        {"smem_static", binary.smem_static},
                        {"smem_dynamic", BytesJson(binary.smem_dynamic)},
                        {"spill_bytes", BytesJson(binary.spill_bytes)},
                        {"binary_bytes", binary.binary_bytes},
                        {"origin", origin},
                        {"cache", !compiled          ? "none"
                                  : binary.cache_hit ? "hit"
                                                     : "miss"},
                        {"ms", binary.ms}});
    table.Row(
        {binary.variant,
         ShortConfig(platform->catalog(), options.op, binary.variant, binary.config),
         common_target.empty() ? binary.target : "", std::string(TrialStatusName(binary.status)),
         binary.registers > 0 ? absl::StrCat(binary.registers) : "-",
         passed && binary.smem_dynamic >= 0 ? Bytes(binary.smem_static + binary.smem_dynamic) : "-",
         passed && binary.spill_bytes >= 0 ? Bytes(binary.spill_bytes) : "-",
         passed ? Bytes(binary.binary_bytes) : "-",
         !compiled          ? origin
         : binary.cache_hit ? "hit"
                            : "miss",
         absl::StrFormat("%.1f", binary.ms)});
  }
  if (global.json) {
    PrintJson({{"binaries", binaries},
               {"skipped", SkippedJson(report.skipped)},
               {"cancelled", report.cancelled}});
  } else {
    if (!common_target.empty()) Print(StrCat(options.op, " for ", common_target, "\n"));
    Print(table.Render(TerminalWidth()));
    PrintSkipped(report.skipped);
    Failures failures;
    for (const CompileResult& binary : report.binaries)
      if (binary.status != TrialStatus::kPassed)
        failures.Add(binary.variant + " for " + binary.target, binary.variant, binary.reason);
    failures.Print();
    if (std::any_of(report.binaries.begin(), report.binaries.end(),
                    [](const CompileResult& binary) {
                      return binary.status == TrialStatus::kPassed && binary.smem_dynamic < 0 &&
                             binary.origin != Origin::kLaunchFunction;
                    })) {
      Print(
          Wrap("smem -: no device or profile of that target is known, or the config does not fit "
               "it at this shape (kvr explain says which)",
               TerminalWidth(), 0));
    }
    Print(absl::StrFormat("%d binaries: %d from the cache, %d failed\n", report.binaries.size(),
                          hits, failed));
  }
  if (report.cancelled) return Interrupted();
  return ExitCode(global, platform->catalog(), failed > 0 || report.binaries.empty());
}

}  // namespace

void AddCompile(CLI::App& app, Commands& commands) {
  auto options = std::make_shared<OpOptions>();
  CLI::App* sub =
      Subcommand(app, "compile", "Compile variants; registers, shared memory and spills",
                 "kvr compile mla_sparse_decode --target sm_90a,sm_120a");
  options->AddOp(sub);
  options->AddAxes(sub);
  options->AddVariants(sub);
  options->AddTargets(sub);
  options->AddAll(sub);
  sub->callback([&commands, options] {
    commands.run = [&commands, options] { return RunCompile(commands.global, *options); };
  });
}

}  // namespace kvr::cli
