// SPDX-License-Identifier: Apache-2.0
//
// kvr verify OP: every variant against the operation's reference, an approximate one against its
// own, in a worker process.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "cli/samples.h"
#include "cli/table.h"
#include "cli/work.h"
#include "core/quality.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr::cli {
namespace {

struct VerifyOptions : OpOptions {
  uint64_t seed = 0;
};

// A run that gave no numbers has none to show.
std::string Figure(TrialStatus status, double value) {
  const bool compared =
      status == TrialStatus::kPassed || status == TrialStatus::kIncorrectNumerical;
  return compared ? absl::StrFormat("%.2e", value) : "-";
}

absl::StatusOr<int> RunVerify(const GlobalOptions& global, const VerifyOptions& options) {
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<Platform> platform, OpenPlatform(global));
  VerifyRequest request;
  KVR_RETURN_IF_ERROR(FillRequest(options, &request));
  KVR_RETURN_IF_ERROR(CheckStated(platform->catalog(), options));
  request.coverage = options.all ? Coverage::kAll : Coverage::kDefault;
  request.seed = options.seed;
  VerifyReport report;
  {
    ProgressBar progress(global.json);
    const TuneSettings settings = Settings(global, options, &progress);
    KVR_ASSIGN_OR_RETURN(report, Verify(*platform, settings, request));
  }
  Json results = Json::array();
  const bool any_quality =
      std::any_of(report.results.begin(), report.results.end(),
                  [](const VerifyResult& result) { return !result.quality.empty(); });
  KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, platform->catalog().FindOp(options.op));
  std::vector<Axes> at;
  for (const VerifyResult& result : report.results) at.push_back(result.axes);
  const ShapeNames shapes(op->spec(), at);
  std::vector<Table::Column> columns = {{"variant"},
                                        {"config"},
                                        {"shape"},
                                        {"status"},
                                        {"max abs", Table::Align::kRight},
                                        {"max rel", Table::Align::kRight}};
  if (any_quality) columns.push_back({"off exact", Table::Align::kRight});
  Table table(std::move(columns));
  int failed = 0;
  for (size_t i = 0; i < report.results.size(); ++i) {
    const VerifyResult& result = report.results[i];
    failed += result.status == TrialStatus::kPassed ? 0 : 1;
    results.push_back({{"variant", result.variant},
                       {"config", ConfigJson(result.config)},
                       {"axes", AxesJson(result.axes)},
                       {"device", result.device},
                       {"status", TrialStatusName(result.status)},
                       {"reason", result.reason},
                       {"max_abs", result.max_abs},
                       {"max_rel", result.max_rel},
                       {"quality", QualityJson(result.quality)}});
    std::vector<std::string> cells = {
        result.variant,
        ShortConfig(platform->catalog(), options.op, result.variant, result.config),
        shapes.names[i],
        std::string(TrialStatusName(result.status)),
        Figure(result.status, result.max_abs),
        Figure(result.status, result.max_rel)};
    if (any_quality) cells.push_back(WorstErrorText(result.quality));
    table.Row(std::move(cells));
  }
  if (global.json) {
    PrintJson({{"device", report.device.name},
               {"seed", report.seed},
               {"results", results},
               {"skipped", SkippedJson(report.skipped)},
               {"respawns", report.respawns},
               {"cancelled", report.cancelled}});
  } else {
    Print(shapes.Heading(options.op));
    Print(table.Render(TerminalWidth()));
    for (const VerifyResult& result : report.results) {
      if (result.quality.empty()) continue;
      Print(Wrap(StrCat("quality of ", result.variant, " (",
                        ShortConfig(platform->catalog(), options.op, result.variant, result.config),
                        ") at ", ShortShape(platform->catalog(), options.op, result.axes), ": ",
                        QualityLine(result.quality)),
                 TerminalWidth(), 2));
    }
    PrintSkipped(report.skipped);
    Failures failures;
    for (const VerifyResult& result : report.results)
      if (result.status != TrialStatus::kPassed)
        failures.Add(
            result.variant + " at " + ShortShape(platform->catalog(), options.op, result.axes),
            result.variant, result.reason);
    failures.Print();
    Print(absl::StrFormat("%d of %d passed on %s (seed %d)\n", report.results.size() - failed,
                          report.results.size(), report.device.name, report.seed));
  }
  if (report.cancelled) return Interrupted();
  return ExitCode(global, platform->catalog(), failed > 0 || report.results.empty());
}

}  // namespace

void AddVerify(CLI::App& app, Commands& commands) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* sub = Subcommand(
      app, "verify", "Hold variants against the operation's float64 reference, at the shapes given",
      "kvr verify mla_sparse_decode --device host --axes num_tokens=7,topk=37");
  options->AddOp(sub);
  options->AddAxes(sub);
  options->AddVariants(sub);
  options->AddApproximate(sub);
  options->AddDevice(sub);
  options->AddAll(sub);
  options->AddWorker(sub);
  sub->add_option("--seed", options->seed, "of the first input set; drawn anew when left out")
      ->check(CLI::NonNegativeNumber);
  sub->callback([&commands, options] {
    commands.run = [&commands, options] { return RunVerify(commands.global, *options); };
  });
}

}  // namespace kvr::cli
