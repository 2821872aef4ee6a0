// SPDX-License-Identifier: Apache-2.0
//
// kvr ab OP: is the challenger faster than the incumbent? A verdict for each shape, with its
// interval, and a last line that says what follows. The exit code is the verdict of the whole.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "api/compare.h"
#include "cli/ab_live.h"
#include "cli/live_verdict.h"
#include "cli/samples.h"
#include "cli/table.h"
#include "cli/work.h"
#include "core/quality.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr::cli {
namespace {

struct AbOptions : OpOptions {
  std::string incumbent, challenger;
  std::string live, other;  // --live: the program's socket, and what follows the first positional
  int block = 32, warmup = 2;
  double band = 0;  // percent
  bool ship = false;
  int sessions = 0, rounds = 0;
  uint64_t seed = 0;
};

Json ShapeJson(const AbShape& shape, bool ship) {
  Json sessions = Json::array();
  for (const SessionResult& session : shape.sessions) {
    sessions.push_back(SessionResultJson(session));
  }
  Json json = {{"axes", AxesJson(shape.axes)},
               {"verdict", stats::VerdictName(shape.verdict)},
               {"reason", shape.reason},
               {"incumbent_us", shape.incumbent_us},
               {"challenger_us", shape.challenger_us},
               {"difference", RelativeJson(shape.difference)},
               {"interval", {RelativeJson(shape.interval.low), RelativeJson(shape.interval.high)}},
               {"rounds", shape.rounds},
               {"quality",
                {{"incumbent", QualityJson(shape.quality[kIncumbent])},
                 {"challenger", QualityJson(shape.quality[kChallenger])}}},
               {"sessions", std::move(sessions)}};
  if (ship) {
    json["p_win"] = shape.p_win;
    json["p_loss"] = shape.p_loss;
    json["regression_excluded"] = shape.regression_excluded;
    json["regression_bound"] = RelativeJson(shape.regression_bound);
  } else {
    json["band"] = BandJson(shape.band);
  }
  return json;
}

Json ToJson(const AbReport& report) {
  const auto contestant = [&](Side side) -> Json {
    return {{"name", report.names[side]},
            {"variant", report.sides[side].variant->name},
            {"config", ConfigJson(report.sides[side].config)},
            {"fingerprint", report.sides[side].variant->fingerprint.Hex()}};
  };
  Json shapes = Json::array();
  for (const AbShape& shape : report.shapes) shapes.push_back(ShapeJson(shape, report.ship_asked));
  return {{"op", report.op},
          {"incumbent", contestant(kIncumbent)},
          {"challenger", contestant(kChallenger)},
          {"kind", report.ship_asked ? "ship" : "quick"},
          {"device", DeviceJson(report.device)},
          {"mode", ModeText(report.mode)},
          {"seed", report.seed},
          {"session", SessionInfoJson(report.device, report.session)},
          {"shapes", std::move(shapes)},
          {"verdict", Answer(report)},
          {"ship", report.ship},
          {"conclusion", Conclusion(report)},
          {"respawns", report.respawns},
          {"cancelled", report.cancelled},
          {"out_of_time", report.out_of_time}};
}

// Lines with the shapes that they hold for, unless that is all of them.
class Remarks {
 public:
  explicit Remarks(size_t shapes) : shapes_(shapes) {}
  void Add(const std::string& shape, const std::string& text) {
    if (text.empty()) return;
    auto known = std::find_if(lines_.begin(), lines_.end(),
                              [&](const auto& line) { return line.first == text; });
    if (known == lines_.end()) known = lines_.insert(lines_.end(), {text, {}});
    known->second.push_back(shape);
  }
  void Print() const {
    for (const auto& [text, shapes] : lines_) {
      const std::string where = shapes.size() == shapes_ ? "" : StrJoin(shapes, "; ") + ": ";
      cli::Print(Wrap(where + text, TerminalWidth(), 0));
    }
  }

 private:
  const size_t shapes_;
  std::vector<std::pair<std::string, std::vector<std::string>>> lines_;
};

void PrintText(const OpSpec& op, const AbReport& report) {
  std::vector<Axes> all;
  for (const AbShape& shape : report.shapes) all.push_back(shape.axes);
  const ShapeNames shapes(op, all);
  Print(Wrap(StrCat(report.names[kChallenger], " (challenger) against ", report.names[kIncumbent],
                    " (incumbent)", shapes.common.empty() ? "" : " at ", shapes.common),
             TerminalWidth(), 0));
  std::vector<Table::Column> columns = {{"incumbent", Table::Align::kRight},
                                        {"challenger", Table::Align::kRight},
                                        {"difference (95 %)", Table::Align::kRight},
                                        {"verdict"}};
  const bool named = report.shapes.size() > 1;
  if (named) columns.insert(columns.begin(), {"shape"});
  Table table(columns);
  Remarks bands(all.size()), reasons(all.size()), qualities(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const AbShape& shape = report.shapes[i];
    const auto us = [](double value) { return value < 0 ? "-" : Microseconds(value); };
    std::vector<std::string> cells = {us(shape.incumbent_us), us(shape.challenger_us),
                                      DifferenceText(shape.difference, shape.interval),
                                      std::string(stats::VerdictName(shape.verdict))};
    if (named) cells.insert(cells.begin(), shapes.names[i]);
    table.Row(std::move(cells));
    for (const Side side : {kIncumbent, kChallenger}) {
      if (shape.quality[side].empty()) continue;
      qualities.Add(shapes.names[i], StrCat("quality of ", report.names[side], ": ",
                                            QualityLine(shape.quality[side])));
    }
    reasons.Add(shapes.names[i], shape.reason);
    reasons.Add(shapes.names[i], DecidedBy(report, shape));
    const bool banded = !report.ship_asked && shape.band.trouble.empty() && shape.band.sessions > 0;
    bands.Add(shapes.names[i], banded ? StrCat("noise band ", BandSourceText(shape.band)) : "");
  }
  Print("\n" + table.Render(TerminalWidth()) + "\n");
  reasons.Print();
  qualities.Print();
  bands.Print();
  if (report.ship_asked) {
    Print(SessionsText(report) + " at each shape, each in a fresh process\n");
  }
  if (report.session.buffer_sets > 0) {
    Print(Wrap(SessionInfoText(report.device, report.session), TerminalWidth(), 0));
  }
  Print(HostRemark(report.device));
  Print("\n" + Wrap(Conclusion(report), TerminalWidth(), 0));
}

absl::StatusOr<int> RunLive(const GlobalOptions& global, const AbOptions& options) {
  AbLiveOptions live;
  live.socket = options.live;
  if (options.op.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "it is not said what --live is to compare",
                 "as in `kvr ab --live SOCKET current mla_sparse_decode/w8`");
  }
  live.b = options.other.empty() ? options.op : options.other;
  if (!options.other.empty()) live.a = options.op;
  live.block = options.block;
  live.warmup = options.warmup;
  live.seed = options.seed;
  KVR_ASSIGN_OR_RETURN(live.seconds, BudgetOf(options));
  live.rules.ship = options.ship;
  live.rules.rounds = options.rounds;
  if (options.sessions > 0) live.rules.sessions = options.sessions;
  if (options.band > 0) live.rules.band = std::log1p(options.band / 100);
  return RunAbLive(global, live);
}

absl::Status CheckSides(const AbOptions& options) {
  if (!options.op.empty() && options.other.empty() && !options.incumbent.empty() &&
      !options.challenger.empty()) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kInvalidArgument,
               "an operation, --incumbent and --challenger are required",
               "as in `kvr ab OP --incumbent baseline --challenger w8`, or name a running program "
               "with --live");
}

absl::StatusOr<int> RunAb(const GlobalOptions& global, const AbOptions& options) {
  if (options.sessions > 0 && !options.ship) {
    return Error(absl::StatusCode::kInvalidArgument,
                 "--sessions is given, but a quick verdict has one session",
                 "add --ship, or leave --sessions out");
  }
  if (!options.live.empty()) return RunLive(global, options);
  KVR_RETURN_IF_ERROR(CheckSides(options));
  KVR_RETURN_IF_ERROR(CheckLedger(options));
  AbRequest request;
  request.op = options.op;
  request.incumbent = options.incumbent;
  request.challenger = options.challenger;
  request.ship = options.ship;
  request.seed = options.seed;
  request.rounds = options.rounds;
  if (options.sessions > 0) request.sessions = options.sessions;
  KVR_ASSIGN_OR_RETURN(request.shapes, ParseShapes(options));
  KVR_ASSIGN_OR_RETURN(request.approximate, OptIns(options));
  KVR_ASSIGN_OR_RETURN(request.mode, ModeOf(options));
  KVR_ASSIGN_OR_RETURN(request.budget_s, BudgetOf(options));
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<Platform> platform, OpenPlatform(global));
  KVR_RETURN_IF_ERROR(CheckStated(platform->catalog(), options));
  AbReport report;
  {
    ProgressBar progress(global.json);
    const TuneSettings settings = Settings(global, options, &progress);
    KVR_ASSIGN_OR_RETURN(report, Compare(*platform, settings, request));
  }
  if (global.json) {
    PrintJson(ToJson(report));
  } else {
    KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, platform->catalog().FindOp(options.op));
    PrintText(op->spec(), report);
  }
  if (report.cancelled) return Interrupted();
  const int refused = ExitCode(global, platform->catalog(), false);
  return refused == kDone ? CodeOf(report.verdict) : refused;
}

}  // namespace

void AddAb(CLI::App& app, Commands& commands) {
  auto options = std::make_shared<AbOptions>();
  CLI::App* sub = Subcommand(
      app, "ab", "Is a challenger faster than an incumbent? A verdict with its interval per shape",
      "kvr ab mla_sparse_decode --incumbent baseline --challenger 'w8{TARGET_CTAS=512}' "
      "--axes num_tokens=1 --axes num_tokens=96",
      "0 WIN, the challenger is faster (--ship: SHIP); 3 EQUIVALENT, no difference; 4 LOSS; 5 "
      "INCONCLUSIVE, the samples do not tell; 6 INVALID, they must not be read, or a contestant "
      "does "
      "not work. Over several shapes: LOSS where any is, else INVALID where any is, else "
      "INCONCLUSIVE "
      "where any is, else WIN where any is; SHIP takes a WIN at one shape and no regression of 3 % "
      "at "
      "any");
  sub->add_option("OP", options->op,
                  "operation, as `kvr list` names it; with --live what serves as A, 'current' if "
                  "only B is given");
  sub->add_option("B", options->other,
                  "with --live: 8 digits or more of a digest, 'current', 'baseline', 'previous', a "
                  "selection file, or OP/VARIANT{A=V,...}");
  CLI::Option* live =
      sub->add_option("--live", options->live,
                      "compare A and B in the running program of this socket, in turns")
          ->type_name("SOCKET");
  const auto contestant = [&](const char* name, std::string* text, const char* what) {
    sub->add_option(name, *text, what)->type_name("VARIANT[{A=V,...}]");
  };
  contestant("--incumbent", &options->incumbent, "what is in use");
  contestant("--challenger", &options->challenger, "what wants its place");
  options->AddApproximate(sub);
  options->AddAxes(sub);
  sub->add_flag("--ship", options->ship,
                "16 sessions at each shape, each in a fresh process, and one verdict over all");
  options->AddDevice(sub);
  options->AddMeasuring(sub);
  sub->add_option("--rounds", options->rounds,
                  "pairs of samples: at most (160), or with --ship of each session (20)")
      ->check(CLI::Range(2, 1000000));
  sub->add_option("--sessions", options->sessions, "of a ship verdict (16); fewer never ship")
      ->check(CLI::Range(2, 10000));
  sub->add_option("--seed", options->seed, "of inputs and order; drawn anew when left out")
      ->check(CLI::NonNegativeNumber);
  sub->add_option("--block", options->block, "with --live: steps before the other's turn (32)")
      ->check(CLI::Range(1, 4096))
      ->needs(live);
  sub->add_option("--warmup", options->warmup,
                  "with --live: first steps of each bucket in a block that do not count (2)")
      ->check(CLI::Range(0, 4095))
      ->needs(live);
  sub->add_option("--band", options->band,
                  "with --live: percent that a quick verdict takes for noise (1)")
      ->check(CLI::Range(0.1, 50.0))
      ->needs(live);
  options->AddWorker(sub);
  options->AddLedger(sub);
  for (const char* name : {"--incumbent", "--challenger", "--approximate", "--axes", "--device",
                           "--mode", "--memory", "--timeout", "--ledger"}) {
    live->excludes(sub->get_option(name));  // the running program's own
  }
  sub->callback([&commands, options] {
    commands.run = [&commands, options] { return RunAb(commands.global, *options); };
  });
}

}  // namespace kvr::cli
