// SPDX-License-Identifier: Apache-2.0
#include "tuner/ab.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/stated.h"
#include "tuner/work.h"

namespace kvr {
namespace {

using stats::Verdict;

// The medians of everything sampled.
void FillMedians(AbShape& shape) {
  std::array<std::vector<double>, 2> us;
  for (const SessionResult& session : shape.sessions) {
    for (const Side side : {kIncumbent, kChallenger}) {
      us[side].insert(us[side].end(), session.us[side].begin(), session.us[side].end());
    }
  }
  shape.rounds = static_cast<int>(us[kIncumbent].size());
  if (shape.rounds == 0) return;
  const auto median = [&](Side side) {
    const double value = Median(us[side]);
    return std::isfinite(value) ? value : -1;
  };
  shape.incumbent_us = median(kIncumbent);
  shape.challenger_us = median(kChallenger);
}

void Invalid(std::string reason, AbShape& shape) {
  shape.verdict = Verdict::kInvalid;
  shape.reason = std::move(reason);
}

bool Any(absl::Span<const AbShape> shapes, Verdict verdict) {
  return std::any_of(shapes.begin(), shapes.end(),
                     [&](const AbShape& shape) { return shape.verdict == verdict; });
}

}  // namespace

Verdict Whole(absl::Span<const AbShape> quick) {
  for (const Verdict verdict : {Verdict::kLoss, Verdict::kInvalid, Verdict::kInconclusive}) {
    if (Any(quick, verdict)) return verdict;
  }
  return Any(quick, Verdict::kWin) ? Verdict::kWin : Verdict::kEquivalent;
}

absl::StatusOr<AbShape> DecideQuickly(PairedSession& session, const stats::QuickOptions& options,
                                      const std::array<std::string, 2>& names,
                                      const KeepGoing& keep_going, const QuickWatch& watch) {
  stats::QuickComparison comparison(options);
  const auto enough = [&](const SessionResult& result) {
    for (int round = comparison.rounds(); round < result.rounds(); ++round) {
      comparison.Add(result.us[kIncumbent][round], result.us[kChallenger][round]);
    }
    if (watch != nullptr) watch(comparison);
    return comparison.done();
  };
  KVR_ASSIGN_OR_RETURN(SessionResult result,
                       TakeSession(session, options.max_rounds, keep_going, enough));
  AbShape shape;
  shape.verdict = comparison.verdict();
  shape.difference = comparison.median();
  shape.interval = comparison.interval();
  if (result.fault()) {
    Invalid(FaultText(result.findings, names), shape);
  } else if (!result.trouble.empty()) {
    Invalid(result.trouble, shape);
  } else if (!comparison.why_invalid().empty()) {
    Invalid(comparison.why_invalid(), shape);
  } else if (!result.proved) {
    shape.verdict = Verdict::kInconclusive;
    shape.reason = "interrupted before the numbers were checked again";
  } else if (result.stopped && shape.verdict == Verdict::kInconclusive) {
    shape.reason = StrCat("stopped after ", result.rounds(), " rounds");
  } else if (shape.verdict == Verdict::kInconclusive &&
             stats::BandTooWide(shape.interval, options)) {
    shape.reason = absl::StrFormat("the noise band is ±%.1f %%: too wide to call them equal",
                                   100 * options.band);
    shape.band_too_wide = true;
  }
  shape.sessions.push_back(std::move(result));
  FillMedians(shape);
  return shape;
}

void JudgeSessions(std::vector<ShapeSessions> taken, AbReport& report) {
  std::vector<std::vector<double>> medians(report.shapes.size());
  for (size_t i = 0; i < report.shapes.size(); ++i) {
    AbShape& shape = report.shapes[i];
    if (taken[i].fault()) {
      Invalid(FaultText(taken[i].findings, report.names), shape);
    } else if (!taken[i].refused.ok()) {
      Invalid(std::string(What(taken[i].refused)), shape);
    } else if (!taken[i].trouble.empty()) {
      Invalid(taken[i].trouble, shape);
    }
    shape.sessions = std::move(taken[i].kept);
    FillMedians(shape);
    if (shape.verdict == Verdict::kInvalid) continue;
    for (const SessionResult& session : shape.sessions) {
      medians[i].push_back(Median(session.LogRatios()));
    }
  }
  const stats::ShipVerdict judged = stats::JudgeShip(medians);
  bool undecided = false, invalid = false;
  for (size_t i = 0; i < report.shapes.size(); ++i) {
    AbShape& shape = report.shapes[i];
    const stats::ShapeVerdict& verdict = judged.shapes[i];
    if (shape.verdict == Verdict::kInvalid) {
      invalid = true;
      continue;
    }
    const int sessions = static_cast<int>(shape.sessions.size());
    const bool whole = sessions == report.planned_sessions;
    const bool few = sessions < stats::kShipSessions && verdict.verdict != Verdict::kLoss;
    if (few && !report.cancelled) {
      shape.reason = StrCat(sessions, " of ", stats::kShipSessions, " sessions: too few to ship");
    } else if (!whole) {
      shape.reason =
          StrCat("stopped after ", sessions, " of ", report.planned_sessions, " sessions");
    }
    if (sessions >= 2) {
      shape.difference = verdict.difference;
      shape.interval = verdict.interval;
      shape.regression_bound = verdict.regression_bound;
    }
    if (sessions < 2 || (report.cancelled && !whole)) {
      undecided = true;
      continue;
    }
    shape.verdict = verdict.verdict;
    shape.p_win = verdict.p_win;
    shape.p_loss = verdict.p_loss;
    shape.regression_excluded = verdict.regression_excluded;
  }
  if (!invalid && !undecided) {
    report.verdict = judged.verdict;
  } else if (Any(report.shapes, Verdict::kLoss)) {
    report.verdict = Verdict::kLoss;
  } else {
    report.verdict = invalid ? Verdict::kInvalid : Verdict::kInconclusive;
  }
  report.ship = report.verdict == Verdict::kWin;
}

std::string_view Answer(const AbReport& report) {
  return report.ship ? "SHIP" : stats::VerdictName(report.verdict);
}

std::string Conclusion(const AbReport& report) {
  // The verdict that decides leads, then those that others would ask after.
  std::vector<Verdict> order = {Verdict::kLoss, Verdict::kInvalid, Verdict::kWin,
                                Verdict::kInconclusive, Verdict::kEquivalent};
  const auto leads = std::find(order.begin(), order.end(), report.verdict);
  std::rotate(order.begin(), leads, leads + 1);
  const bool several = report.shapes.size() > 1;
  std::string counts;
  if (report.ship) counts = several ? "SHIP: " : "SHIP";
  bool first = true;
  for (const Verdict verdict : order) {
    if (report.ship && !several) break;
    const auto count = std::count_if(report.shapes.begin(), report.shapes.end(),
                                     [&](const AbShape& s) { return s.verdict == verdict; });
    if (count == 0) continue;
    StrAppend(&counts, first ? "" : ", ", stats::VerdictName(verdict));
    if (several) StrAppend(&counts, " at ", count);
    if (several && first) StrAppend(&counts, " of ", report.shapes.size(), " shapes");
    first = false;
  }
  const std::string_view undecided =
      Any(report.shapes, Verdict::kWin) || Any(report.shapes, Verdict::kEquivalent)
          ? "not decided at every shape"
          : "nothing is decided";
  std::string_view advice;
  switch (report.verdict) {
    case Verdict::kWin:
      advice = !report.ship ? "faster in one session; --ship decides"
               : several    ? "no regression of 3 % at any"
                            : "no regression of 3 %";
      break;
    case Verdict::kLoss:
      advice = "do not ship";
      break;
    case Verdict::kEquivalent:
      advice = report.ship_asked ? "no difference that matters" : "no difference beyond the noise";
      break;
    case Verdict::kInconclusive:
      advice = report.ship_asked ? "do not ship" : undecided;
      break;
    case Verdict::kInvalid:
      advice = undecided;
      break;
  }
  return StrCat(report.names[kChallenger], " against ", report.names[kIncumbent], ": ", counts,
                "; ", advice, ".");
}

std::string SessionsText(const AbReport& report) {
  size_t least = SIZE_MAX, most = 0;
  for (const AbShape& shape : report.shapes) {
    if (shape.verdict == Verdict::kInvalid) continue;
    least = std::min(least, shape.sessions.size());
    most = std::max(most, shape.sessions.size());
  }
  if (least == SIZE_MAX) return StrCat("none of ", report.planned_sessions, " sessions");
  std::string text = StrCat(least);
  if (most != least) StrAppend(&text, " to ", most);
  const auto planned = static_cast<size_t>(report.planned_sessions);
  if (least != planned || most != planned) StrAppend(&text, " of ", planned);
  return text + " sessions";
}

namespace {

// Of time, from a log ratio.
std::string Percent(double log_ratio) {
  return std::isfinite(log_ratio) ? absl::StrFormat("%+.1f", 100 * std::expm1(log_ratio)) : "?";
}

}  // namespace

std::string DecidedBy(const AbReport& report, const AbShape& shape) {
  if (!report.ship_asked || shape.verdict == Verdict::kInvalid || shape.sessions.size() < 2) {
    return "";
  }
  const stats::ShipOptions rule;
  std::vector<std::string> parts;
  if (shape.regression_excluded && shape.interval.high >= rule.regression_margin) {
    parts.push_back(StrCat("no regression of 3 %: the one-sided bound (95 %) is ",
                           Percent(shape.regression_bound), " %, the interval's end ",
                           Percent(shape.interval.high), " %"));
  }
  const bool enough = static_cast<int>(shape.sessions.size()) >= rule.sessions;
  const auto corrected = [&](std::string_view what, double p) {
    parts.push_back(StrCat(
        "no ", what, ": Holm over ", report.shapes.size(),
        " shapes asks for more than its interval shows (p = ", absl::StrFormat("%.3f", p), ")"));
  };
  if (enough && shape.interval.high < -rule.win_margin && shape.verdict != Verdict::kWin) {
    corrected("win", shape.p_win);
  }
  if (shape.interval.low > rule.win_margin && shape.verdict != Verdict::kLoss) {
    corrected("loss", shape.p_loss);
  }
  return StrJoin(parts, "; ");
}

std::string DifferenceText(double difference, const stats::Interval& interval) {
  if (!std::isfinite(difference)) return "-";
  return StrCat(Percent(difference), " % (", Percent(interval.low), " to ", Percent(interval.high),
                ")");
}

namespace {

// One comparison of kvr ab.
class Comparing {
 public:
  Comparing(const Workbench& bench, const AbRequest& request)
      : bench_(bench), request_(request), time_(bench.cancel, request.budget_s) {}

  absl::StatusOr<AbReport> Run() {
    KVR_RETURN_IF_ERROR(Resolve());
    absl::StatusOr<std::unique_ptr<Contest>> contest = Contest::Start(
        bench_, *op_, report_.sides, {request_.mode, request_.input_sets, request_.seed});
    if (contest.ok()) {
      contest_ = *std::move(contest);
      report_.device = contest_->device();
      report_.seed = contest_->seed();
      KVR_RETURN_IF_ERROR(Compare());
      for (AbShape& shape : report_.shapes) {
        for (const Side side : {kIncumbent, kChallenger}) {
          shape.quality[side] = contest_->QualityAt(shape.axes, side);
        }
      }
      report_.respawns = contest_->respawns();
    } else if (!absl::IsCancelled(contest.status())) {
      return contest.status();
    }
    Conclude();
    return std::move(report_);
  }

 private:
  absl::Status Resolve() {
    KVR_ASSIGN_OR_RETURN(op_, bench_.catalog.FindOp(request_.op));
    KVR_RETURN_IF_ERROR(CheckOptIns(bench_.catalog, request_.approximate));
    KVR_ASSIGN_OR_RETURN(const std::vector<Axes> shapes,
                         ResolveShapes(op_->spec(), request_.shapes));
    report_.sides = request_.sides;
    if (report_.sides[kIncumbent].variant == nullptr ||
        report_.sides[kChallenger].variant == nullptr) {
      KVR_ASSIGN_OR_RETURN(
          report_.sides[kIncumbent],
          ParseContestant(bench_.catalog, request_.op, request_.incumbent, request_.approximate));
      KVR_ASSIGN_OR_RETURN(
          report_.sides[kChallenger],
          ParseContestant(bench_.catalog, request_.op, request_.challenger, request_.approximate));
      std::vector<AxisVector> resolved;
      for (const Axes& axes : shapes) {
        KVR_ASSIGN_OR_RETURN(resolved.emplace_back(), ResolveAxes(op_->spec(), axes));
      }
      for (const Candidate& side : report_.sides) {
        KVR_RETURN_IF_ERROR(CheckStated(op_->spec(), *side.variant, side.config, resolved));
      }
    }
    report_.op = request_.op;
    for (const Side side : {kIncumbent, kChallenger}) {
      report_.names[side] = ContestantText(report_.sides[side]);
    }
    report_.ship_asked = request_.ship;
    report_.mode = request_.mode;
    report_.planned_sessions = request_.ship ? request_.sessions : 1;
    for (const Axes& axes : shapes) report_.shapes.emplace_back().axes = axes;
    taken_.resize(shapes.size());
    last_session_.resize(shapes.size());
    return absl::OkStatus();
  }

  absl::Status Compare() {
    std::vector<Axes> shapes;
    for (const AbShape& shape : report_.shapes) shapes.push_back(shape.axes);
    KVR_ASSIGN_OR_RETURN(const std::vector<std::string> why_not, contest_->Prove(shapes, time_));
    std::vector<size_t> sound;  // shapes
    for (size_t i = 0; i < why_not.size(); ++i) {
      if (why_not[i].empty()) {
        sound.push_back(i);
      } else {
        Invalid(why_not[i], report_.shapes[i]);
      }
    }
    if (sound.empty()) return absl::OkStatus();
    return request_.ship ? Ship(sound) : Quick(sound);
  }

  absl::Status Quick(const std::vector<size_t>& sound) {
    const KeepGoing keep_going = [&] { return time_.Going(); };
    std::vector<Axes> band_shapes;
    for (const size_t i : sound) {
      KVR_ASSIGN_OR_RETURN(const BandShape band, BandShapeOf(*op_, report_.shapes[i].axes));
      // A representative that the incumbent does not fit stands for nothing here.
      const bool fits = contest_->Fits(kIncumbent, band.axes).ok();
      band_shapes.push_back(fits ? band.axes : report_.shapes[i].axes);
    }
    const std::unique_ptr<SessionSource> itself = contest_->Itself();
    const DeviceInfo& device = report_.device;
    KVR_ASSIGN_OR_RETURN(
        const std::vector<BandInUse> bands,
        FindOrMeasureBands(bench_, {device.uuid, device.driver, request_.op, request_.mode},
                           *itself, band_shapes, report_.seed, keep_going,
                           [&](const Axes& axes, const SessionResult& result) {
                             contest_->Record(axes, "noise", result, {kIncumbent, kIncumbent});
                           }));
    const std::unique_ptr<SessionSource> sides = contest_->Sides();
    PhaseProgress progress(bench_.progress, Phase::kMeasure, static_cast<int>(sound.size()));
    for (size_t i = 0; i < sound.size() && keep_going(); ++i) {
      AbShape& shape = report_.shapes[sound[i]];
      shape.band = bands[i];
      if (bands[i].trouble.empty()) {
        KVR_RETURN_IF_ERROR(QuickAt(sound[i], *sides, progress));
      } else {
        Invalid(StrCat("no noise band: ", bands[i].trouble), shape);
      }
      progress.Note(StrCat(
          ShapeText(op_->spec(), shape.axes), ": ", stats::VerdictName(shape.verdict), ", ",
          shape.verdict == Verdict::kInvalid ? shape.reason
                                             : DifferenceText(shape.difference, shape.interval)));
      progress.Done();
    }
    return absl::OkStatus();
  }

  absl::Status QuickAt(size_t index, SessionSource& sides, PhaseProgress& progress) {
    AbShape& shape = report_.shapes[index];
    const std::string where = ShapeText(op_->spec(), shape.axes);
    progress.Begin(where);
    const absl::StatusOr<std::unique_ptr<PairedSession>> session = sides.Open(shape.axes);
    if (absl::IsCancelled(session.status())) return absl::OkStatus();
    if (absl::IsResourceExhausted(session.status())) {
      Invalid(std::string(What(session.status())), shape);
      return absl::OkStatus();
    }
    KVR_RETURN_IF_ERROR(session.status());
    stats::QuickOptions options;
    options.band = shape.band.estimate.band;
    options.max_rounds = request_.rounds > 0 ? request_.rounds : kQuickRounds;
    const auto watch = [&](const stats::QuickComparison& so_far) {
      progress.Begin(StrCat(where, ", round ", so_far.rounds(), ": ",
                            DifferenceText(so_far.median(), so_far.interval())));
    };
    KVR_ASSIGN_OR_RETURN(AbShape decided, DecideQuickly(
                                              **session, options, report_.names,
                                              [&] { return time_.Going(); }, watch));
    decided.axes = shape.axes;
    decided.band = shape.band;
    if (decided.band_too_wide && shape.band.sessions < stats::kNoiseSessions) {
      const std::string careful = NoiseCommand(
          bench_, op_->spec(), absl::MakeConstSpan(&shape.band.axes, 1), request_.mode);
      if (!careful.empty()) {
        StrAppend(&decided.reason, "; measure it with care (`", careful, "`)");
      }
    }
    shape = std::move(decided);
    const SessionResult& result = shape.sessions.front();
    report_.session = Merge(report_.session, result.info);
    last_session_[index] = contest_->Record(shape.axes, "ab", result, {kIncumbent, kChallenger});
    return absl::OkStatus();
  }

  absl::Status Ship(const std::vector<size_t>& sound) {
    std::vector<Axes> shapes;
    for (const size_t i : sound) shapes.push_back(report_.shapes[i].axes);
    PhaseProgress progress(bench_.progress, Phase::kMeasure,
                           request_.sessions * static_cast<int>(sound.size()));
    SessionsPlan plan;
    plan.sessions = request_.sessions;
    plan.rounds = request_.rounds > 0 ? request_.rounds : stats::kShipRounds;
    plan.seed = report_.seed;
    plan.keep_going = [&] { return time_.Going(); };
    plan.starting = [&](size_t shape, int session) {
      progress.Begin(StrCat("session ", session + 1, " of ", plan.sessions, " at ",
                            ShapeText(op_->spec(), shapes[shape])));
    };
    plan.finished = [&](size_t shape, const SessionResult& result) {
      const std::string name =
          contest_->Record(shapes[shape], "ab", result, {kIncumbent, kChallenger});
      if (result.usable()) last_session_[sound[shape]] = name;
      report_.session = Merge(report_.session, result.info);
      if (result.usable()) progress.Done();
    };
    const std::unique_ptr<SessionSource> sides = contest_->Sides();
    KVR_ASSIGN_OR_RETURN(std::vector<ShapeSessions> taken, TakeSessions(*sides, shapes, plan));
    for (size_t i = 0; i < sound.size(); ++i) taken_[sound[i]] = std::move(taken[i]);
    return absl::OkStatus();
  }

  void Conclude() {
    report_.cancelled = Cancelled(bench_);
    report_.out_of_time = time_.ran_out();
    if (request_.ship) {
      JudgeSessions(std::move(taken_), report_);
    } else {
      for (AbShape& shape : report_.shapes) {
        if (shape.sessions.empty() && shape.verdict != Verdict::kInvalid) {
          shape.reason = "stopped before its session";
        }
      }
      report_.verdict = Whole(report_.shapes);
    }
    if (bench_.journal == nullptr) return;
    for (size_t i = 0; i < report_.shapes.size(); ++i) {
      bench_.journal->Add(RecordOf(report_.shapes[i], last_session_[i]));
    }
  }

  ledger::Verdict RecordOf(const AbShape& shape, const std::string& session) const {
    const auto& [incumbent, challenger] = report_.sides;
    ledger::Verdict record;
    record.session = session;
    record.op = report_.op;
    record.axes = AxesText(shape.axes);
    record.mode = ModeText(report_.mode);
    record.kind = request_.ship ? "ship" : "quick";
    record.incumbent = incumbent.variant->name;
    record.incumbent_fingerprint = incumbent.variant->fingerprint.Hex();
    record.incumbent_config = ConfigText(incumbent.config);
    record.challenger = challenger.variant->name;
    record.challenger_fingerprint = challenger.variant->fingerprint.Hex();
    record.challenger_config = ConfigText(challenger.config);
    record.verdict = std::string(stats::VerdictName(shape.verdict));
    record.reason = shape.reason;
    record.difference = shape.difference;
    record.low = shape.interval.low;
    record.high = shape.interval.high;
    record.band = request_.ship ? 0 : shape.band.estimate.band;
    record.rounds = shape.rounds;
    record.sessions = static_cast<int64_t>(shape.sessions.size());
    return record;
  }

  const Workbench& bench_;
  const AbRequest& request_;
  RunTime time_;
  const Catalog::Op* op_ = nullptr;
  AbReport report_;
  std::unique_ptr<Contest> contest_;
  std::vector<ShapeSessions> taken_;       // of a ship verdict, by shape
  std::vector<std::string> last_session_;  // the journal's name, by shape
};

}  // namespace

absl::StatusOr<AbReport> CompareContestants(const Workbench& bench, const AbRequest& request) {
  return Comparing(bench, request).Run();
}

}  // namespace kvr
