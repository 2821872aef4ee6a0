// SPDX-License-Identifier: Apache-2.0
//
// kvr noise OP: how large a difference A against A shows here, for comparisons to be read against.
#include <algorithm>
#include <array>

#include "absl/strings/str_format.h"
#include "api/compare.h"
#include "cli/samples.h"
#include "cli/table.h"
#include "cli/work.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr::cli {
namespace {

struct NoiseOptions : OpOptions {
  std::string contestant;
  int sessions = stats::kNoiseSessions, rounds = stats::kNoiseRounds;
  uint64_t seed = 0;
};

// How the sessions' medians lie, as a row of bars from the least to the most.
std::string Histogram(const std::vector<double>& medians, double least, double most) {
  constexpr std::array<std::string_view, 9> kBars = {"·", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::array<int, 11> counts{};
  for (const double median : medians) {
    const double place = most > least ? (median - least) / (most - least) * counts.size() : 0;
    ++counts[static_cast<size_t>(std::clamp<double>(place, 0, counts.size() - 1))];
  }
  const int tallest = std::max(1, *std::max_element(counts.begin(), counts.end()));
  std::string text;
  for (const int count : counts) {
    text += kBars[count == 0 ? 0 : static_cast<size_t>(std::max(1, 8 * count / tallest))];
  }
  return text;
}

Json ToJson(const NoiseReport& report) {
  Json bands = Json::array();
  for (const ShapeNoise& shape : report.shapes) {
    Json asked = Json::array(), sessions = Json::array();
    for (const Axes& axes : shape.asked) asked.push_back(AxesJson(axes));
    for (const SessionResult& session : shape.sessions) {
      sessions.push_back(SessionResultJson(session));
    }
    Json band = BandJson(shape.band);
    band["of_bucket"] = shape.of_bucket;
    band["asked"] = std::move(asked);
    band["samples"] = std::move(sessions);
    bands.push_back(std::move(band));
  }
  return {{"op", report.op},
          {"contestant", report.contestant},
          {"device", DeviceJson(report.device)},
          {"mode", ModeText(report.mode)},
          {"seed", report.seed},
          {"session", SessionInfoJson(report.device, report.session)},
          {"bands", std::move(bands)},
          {"respawns", report.respawns},
          {"cancelled", report.cancelled},
          {"out_of_time", report.out_of_time}};
}

void PrintText(const OpSpec& op, const NoiseReport& report) {
  std::vector<Axes> all;
  for (const ShapeNoise& shape : report.shapes) all.push_back(shape.band.axes);
  const ShapeNames shapes(op, all);
  Print(Wrap(StrCat(report.contestant, " against itself", shapes.common.empty() ? "" : " at ",
                    shapes.common),
             TerminalWidth(), 0) +
        "\n");
  const bool named = all.size() > 1;
  std::vector<Table::Column> columns = {
      {"band", Table::Align::kRight},  {"sigma", Table::Align::kRight},
      {"floor", Table::Align::kRight}, {"sessions", Table::Align::kRight},
      {"least", Table::Align::kRight}, {"their medians"},
      {"most", Table::Align::kRight}};
  if (named) columns.insert(columns.begin(), {"shape"});
  Table table(columns);
  bool beyond = false;
  for (size_t i = 0; i < all.size(); ++i) {
    const BandInUse& band = report.shapes[i].band;
    std::vector<std::string> cells = {"-", "-", "-", StrCat(band.sessions), "-", "", "-"};
    if (band.trouble.empty()) {
      const auto& medians = band.estimate.session_medians;
      const auto [least, most] = std::minmax_element(medians.begin(), medians.end());
      beyond = beyond || *least < -band.estimate.band || *most > band.estimate.band;
      cells = {absl::StrFormat("±%.2f %%", 100 * band.estimate.band),
               absl::StrFormat("%.2f %%", 100 * band.estimate.sigma),
               absl::StrFormat("%.2f %%", 100 * band.estimate.floor),
               StrCat(band.sessions),
               absl::StrFormat("%+.2f %%", 100 * *least),
               Histogram(medians, *least, *most),
               absl::StrFormat("%+.2f %%", 100 * *most)};
    }
    if (named) cells.insert(cells.begin(), shapes.names[i]);
    table.Row(std::move(cells));
  }
  Print(table.Render(TerminalWidth()) + "\n");
  if (beyond) {
    Print(Wrap(
        "a median lies beyond its band: the band holds 95 % of sessions, without what the rounds "
        "of each scatter by themselves",
        TerminalWidth(), 0));
  }
  bool stored = false;
  for (const ShapeNoise& shape : report.shapes) {
    const std::string name = ShapeText(op, shape.band.axes);
    if (!shape.band.trouble.empty()) {
      Print(Wrap(name + ": no band: " + shape.band.trouble, TerminalWidth(), 0));
    }
    stored = stored || shape.band.in_ledger;
    std::vector<std::string> others;  // whose band it is too, or instead
    for (const Axes& axes : shape.asked) {
      if (axes != shape.band.axes) others.push_back(ShapeText(op, axes));
    }
    if (!others.empty()) {
      Print(Wrap(StrCat(name, " stands for ", StrJoin(others, "; "), ": one tuning key"),
                 TerminalWidth(), 0));
    } else if (!shape.of_bucket) {
      Print(name + " is in no bucket of the key policy: the band is of this shape alone\n");
    }
  }
  if (report.session.buffer_sets > 0) {
    Print(Wrap(SessionInfoText(report.device, report.session), TerminalWidth(), 0));
  }
  Print(HostRemark(report.device));
  Print(stored ? "stored in the ledger; after 30 days it is measured again\n"
               : "not stored: there is no band, or no ledger to keep it\n");
}

absl::StatusOr<int> RunNoise(const GlobalOptions& global, const NoiseOptions& options) {
  KVR_RETURN_IF_ERROR(CheckLedger(options));
  NoiseRequest request;
  request.op = options.op;
  request.contestant = options.contestant;
  request.sessions = options.sessions;
  request.rounds = options.rounds;
  request.seed = options.seed;
  KVR_ASSIGN_OR_RETURN(request.shapes, ParseShapes(options));
  KVR_ASSIGN_OR_RETURN(request.mode, ModeOf(options));
  KVR_ASSIGN_OR_RETURN(request.budget_s, BudgetOf(options));
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<Platform> platform, OpenPlatform(global));
  NoiseReport report;
  {
    ProgressBar progress(global.json);
    const TuneSettings settings = Settings(global, options, &progress);
    KVR_ASSIGN_OR_RETURN(report, MeasureNoise(*platform, settings, request));
  }
  if (global.json) {
    PrintJson(ToJson(report));
  } else {
    KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, platform->catalog().FindOp(options.op));
    PrintText(op->spec(), report);
  }
  if (report.cancelled) return Interrupted();
  const int refused = ExitCode(global, platform->catalog(), false);
  if (refused != kDone) return refused;
  return std::all_of(report.shapes.begin(), report.shapes.end(),
                     [](const ShapeNoise& shape) { return shape.band.trouble.empty(); })
             ? kDone
             : kInvalid;
}

}  // namespace

void AddNoise(CLI::App& app, Commands& commands) {
  auto options = std::make_shared<NoiseOptions>();
  CLI::App* sub = Subcommand(
      app, "noise", "Measure the noise band of a device: how far apart a variant and itself appear",
      "kvr noise mla_sparse_decode --axes num_tokens=1 --axes num_tokens=96",
      "0 measured; 6 there is no band for a shape, and the output says why");
  options->AddOp(sub);
  options->AddAxes(sub);
  sub->add_option("--variant", options->contestant,
                  "what to measure with; the operation's baseline if left out")
      ->type_name("VARIANT[{A=V,...}]");
  options->AddDevice(sub);
  options->AddMeasuring(sub);
  sub->add_option("--sessions", options->sessions, "each in a fresh process")
      ->check(CLI::Range(stats::kLeastNoiseSessions, 10000))
      ->capture_default_str();
  sub->add_option("--rounds", options->rounds, "pairs of samples in each session")
      ->check(CLI::Range(stats::kLeastNoiseRounds, 1000000))
      ->capture_default_str();
  sub->add_option("--seed", options->seed, "of inputs and order; drawn anew when left out")
      ->check(CLI::NonNegativeNumber);
  options->AddWorker(sub);
  options->AddLedger(sub);
  sub->callback([&commands, options] {
    commands.run = [&commands, options] { return RunNoise(commands.global, *options); };
  });
}

}  // namespace kvr::cli
