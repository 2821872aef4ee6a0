// SPDX-License-Identifier: Apache-2.0
#include "tuner/noise_run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/work.h"

namespace kvr {
namespace {

BandInUse FromRecord(const ledger::Band& record, Axes axes) {
  BandInUse band;
  band.axes = std::move(axes);
  band.estimate.band = record.band;
  band.estimate.sigma = record.sigma;
  band.estimate.floor = record.floor;
  band.estimate.session_medians = record.session_medians;
  band.sessions = static_cast<int>(record.sessions);
  band.rounds = static_cast<int>(record.rounds);
  band.measured = record.time;
  band.in_ledger = true;
  return band;
}

// The shortest epoch of a session; where the worker gives none, the shortest sample was one.
double LeastEpoch(const SessionResult& result) {
  if (result.info.least_epoch_us > 0) return result.info.least_epoch_us;
  double least = result.us[kIncumbent].front();
  for (const std::vector<double>& side : result.us) {
    least = std::min(least, *std::min_element(side.begin(), side.end()));
  }
  return least;
}

// The band of what was taken at a shape; `least`: fewer sessions than that give none.
BandInUse Estimate(const ShapeSessions& taken, Axes axes, int least, int rounds,
                   const std::string& contestant) {
  BandInUse band;
  band.axes = std::move(axes);
  band.sessions = static_cast<int>(taken.kept.size());
  band.rounds = rounds;
  band.measured = ledger::Now();
  band.fresh = true;
  if (taken.fault()) {
    band.trouble = FaultText(taken.findings, {contestant, contestant});
  } else if (!taken.refused.ok()) {
    band.trouble = std::string(What(taken.refused));
  } else if (!taken.trouble.empty()) {
    band.trouble = taken.trouble;
  } else if (band.sessions < least) {
    band.trouble = StrCat("stopped after ", band.sessions, " of at least ", least, " sessions");
  }
  if (!band.trouble.empty()) return band;
  std::vector<std::vector<double>> ratios;
  double epoch_us = LeastEpoch(taken.kept.front());
  for (const SessionResult& session : taken.kept) {
    ratios.push_back(session.LogRatios());
    epoch_us = std::min(epoch_us, LeastEpoch(session));
  }
  absl::StatusOr<stats::NoiseBand> estimate = stats::EstimateBand(ratios, epoch_us);
  if (estimate.ok()) {
    band.estimate = *std::move(estimate);
  } else {
    band.trouble = std::string(What(estimate.status()));
  }
  return band;
}

// Tells the ledger. False: there is none, or it failed.
bool Store(const Workbench& bench, const BandKey& key, const BandInUse& band) {
  if (bench.journal == nullptr || bench.journal->ledger() == nullptr) return false;
  ledger::Band record;
  record.time = band.measured;
  record.op = key.op;
  record.axes = AxesText(band.axes);
  record.mode = ModeText(key.mode);
  record.band = band.estimate.band;
  record.sigma = band.estimate.sigma;
  record.floor = band.estimate.floor;
  record.sessions = band.sessions;
  record.rounds = band.rounds;
  record.session_medians = band.estimate.session_medians;
  bench.journal->Add(std::move(record));
  return !bench.journal->trouble();
}

}  // namespace

absl::StatusOr<BandShape> BandShapeOf(const Catalog::Op& op, const Axes& shape) {
  KVR_ASSIGN_OR_RETURN(const AxisVector axes, ResolveAxes(op.spec(), shape));
  bool clipped = false;
  op.policy.Bucket(axes, &clipped);
  const Axes representative = NamedAxes(op.spec(), op.policy.Representative(axes));
  if (clipped || !ResolveAxes(op.spec(), representative).ok()) return BandShape{shape, false};
  return BandShape{representative, true};
}

std::string BandSourceText(const BandInUse& band) {
  if (!band.trouble.empty()) return StrCat("none: ", band.trouble);
  return absl::StrFormat("±%.1f %% (%d %s, %s)", 100 * band.estimate.band, band.sessions,
                         band.sessions == 1 ? "session" : "sessions",
                         band.fresh ? "measured now" : band.measured.substr(0, 10));
}

std::string NoiseCommand(const Workbench& bench, const OpSpec& op, absl::Span<const Axes> shapes,
                         MeasureMode mode) {
  if (bench.journal == nullptr || bench.journal->ledger() == nullptr) return "";
  std::string command = StrCat("kvr noise ", op.name);
  for (const Axes& axes : shapes) {
    std::string text = ShapeText(op, axes);
    if (text == ShapeText(op, {})) {  // all at their defaults
      if (shapes.size() == 1) break;
      text = AxesText(axes);
    }
    StrAppend(&command, " --axes ", text);
  }
  std::string spoken = ModeText(mode);
  std::replace(spoken.begin(), spoken.end(), ' ', ',');
  if (ModeText(mode) != ModeText({})) StrAppend(&command, " --mode ", spoken);
  if (bench.worker.device != WorkerOptions().device) {
    StrAppend(&command, " --device ", bench.worker.device);
  }
  const std::filesystem::path ledger(bench.journal->ledger()->path());
  if (ledger.parent_path() != std::filesystem::path(ledger::DefaultLedgerDirectory())) {
    StrAppend(&command, " --ledger ", ledger.parent_path().string());
  }
  return command;
}

absl::StatusOr<BandInUse> FindBand(const ledger::Ledger* ledger, const BandKey& key,
                                   const Axes& axes, absl::Time now) {
  BandInUse none;
  none.axes = axes;
  none.trouble = "none is stored";
  if (ledger == nullptr) return none;
  KVR_ASSIGN_OR_RETURN(
      const std::vector<ledger::Band> bands,
      ledger->Find<ledger::Band>(
          {{"op", key.op}, {"axes", AxesText(axes)}, {"mode", ModeText(key.mode)}}));
  const ledger::Band* best = nullptr;
  for (auto band = bands.rbegin(); band != bands.rend(); ++band) {
    if (band->sessions < stats::kLeastNoiseSessions || band->rounds < stats::kLeastNoiseRounds ||
        (best != nullptr && band->sessions <= best->sessions)) {
      continue;
    }
    absl::Time measured;
    std::string error;
    if (!absl::ParseTime(absl::RFC3339_full, band->time, &measured, &error)) continue;
    if (now - measured > kBandExpires) continue;
    KVR_ASSIGN_OR_RETURN(const ledger::Environment where, ledger->EnvironmentOf(*band));
    if (where.device_uuid != key.device_uuid || where.driver != key.driver) continue;
    best = &*band;
  }
  return best == nullptr ? none : FromRecord(*best, axes);
}

absl::StatusOr<std::vector<BandInUse>> FindOrMeasureBands(
    const Workbench& bench, const BandKey& key, SessionSource& itself,
    absl::Span<const Axes> shapes, uint64_t seed, const KeepGoing& keep_going,
    const std::function<void(const Axes&, const SessionResult&)>& taken) {
  KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, bench.catalog.FindOp(key.op));
  std::vector<BandInUse> bands;
  std::vector<Axes> missing;
  for (const Axes& axes : shapes) {
    KVR_ASSIGN_OR_RETURN(const AxisVector values, ResolveAxes(op->spec(), axes));
    if (NothingToLaunch(op->spec(), values)) {
      BandInUse& none = bands.emplace_back();
      none.axes = axes;
      none.trouble = kNothingToLaunch;
      continue;
    }
    absl::StatusOr<BandInUse> found = FindBand(
        bench.journal == nullptr ? nullptr : bench.journal->ledger(), key, axes, absl::Now());
    if (!found.ok()) {  // a ledger that cannot be read is as good as none
      bench.journal->Report(found.status());
      KVR_ASSIGN_OR_RETURN(found, FindBand(nullptr, key, axes, absl::Now()));
    }
    bands.push_back(*std::move(found));
    const bool listed = std::find(missing.begin(), missing.end(), axes) != missing.end();
    if (!bands.back().in_ledger && !listed) missing.push_back(axes);
  }
  if (missing.empty()) return bands;

  PhaseProgress progress(bench.progress, Phase::kMeasure,
                         stats::kShortNoiseSessions * static_cast<int>(missing.size()));
  const std::string careful = NoiseCommand(bench, op->spec(), missing, key.mode);
  progress.Note(StrCat("no noise band is stored for ", missing.size(), " of ", shapes.size(),
                       shapes.size() == 1 ? " shape" : " shapes", " in mode ", ModeText(key.mode),
                       ": measuring a short one",
                       careful.empty() ? "" : StrCat("; `", careful, "` measures one with care")));
  SessionsPlan plan;
  plan.sessions = stats::kShortNoiseSessions;
  plan.rounds = kShortNoiseRounds;
  plan.seed = seed;
  plan.keep_going = keep_going;
  plan.starting = [&](size_t shape, int session) {
    progress.Begin(StrCat("noise band at ", ShapeText(op->spec(), missing[shape]), ", session ",
                          session + 1, " of ", plan.sessions));
  };
  plan.finished = [&](size_t shape, const SessionResult& result) {
    if (taken != nullptr) taken(missing[shape], result);
    if (result.usable()) progress.Done();
  };
  KVR_ASSIGN_OR_RETURN(const std::vector<ShapeSessions> sessions,
                       TakeSessions(itself, missing, plan));
  for (size_t i = 0; i < missing.size(); ++i) {
    BandInUse measured =
        Estimate(sessions[i], missing[i], plan.sessions, plan.rounds, "against itself");
    if (measured.trouble.empty()) measured.in_ledger = Store(bench, key, measured);
    for (size_t shape = 0; shape < shapes.size(); ++shape) {
      if (shapes[shape] == missing[i]) bands[shape] = measured;
    }
  }
  return bands;
}

namespace {

// The shapes to measure at, each once, with those asked for.
absl::StatusOr<std::vector<ShapeNoise>> ShapesToMeasure(const Catalog::Op& op,
                                                        const std::vector<Axes>& asked) {
  std::vector<ShapeNoise> shapes;
  for (const Axes& axes : asked) {
    KVR_ASSIGN_OR_RETURN(const BandShape where, BandShapeOf(op, axes));
    auto shape = std::find_if(shapes.begin(), shapes.end(), [&](const ShapeNoise& other) {
      return other.band.axes == where.axes;
    });
    if (shape == shapes.end()) {
      shape = shapes.emplace(shapes.end());
      shape->band.axes = where.axes;
      shape->band.trouble = "stopped before its first session";
      shape->of_bucket = where.of_bucket;
    }
    shape->asked.push_back(axes);
  }
  return shapes;
}

// Sessions of the contestant against itself at every shape where it is right.
absl::Status Measure(const Workbench& bench, const OpSpec& op, const NoiseRequest& request,
                     Contest& contest, RunTime& time, std::vector<ShapeNoise>& shapes) {
  std::vector<Axes> axes;
  for (const ShapeNoise& shape : shapes) axes.push_back(shape.band.axes);
  KVR_ASSIGN_OR_RETURN(const std::vector<std::string> why_not, contest.Prove(axes, time));
  axes.clear();
  std::vector<ShapeNoise*> sound;
  for (size_t i = 0; i < why_not.size(); ++i) {
    if (why_not[i].empty()) {
      axes.push_back(shapes[i].band.axes);
      sound.push_back(&shapes[i]);
    } else {
      shapes[i].band.trouble = why_not[i];
    }
  }
  if (sound.empty()) return absl::OkStatus();

  PhaseProgress progress(bench.progress, Phase::kMeasure,
                         request.sessions * static_cast<int>(axes.size()));
  SessionsPlan plan;
  plan.sessions = request.sessions;
  plan.rounds = request.rounds;
  plan.seed = contest.seed();
  plan.keep_going = [&] { return time.Going(); };
  plan.starting = [&](size_t shape, int session) {
    progress.Begin(
        StrCat("session ", session + 1, " of ", plan.sessions, " at ", ShapeText(op, axes[shape])));
  };
  plan.finished = [&](size_t shape, const SessionResult& result) {
    contest.Record(axes[shape], "noise", result, {kIncumbent, kIncumbent});
    if (result.usable()) progress.Done();
  };
  const std::unique_ptr<SessionSource> itself = contest.Itself();
  KVR_ASSIGN_OR_RETURN(std::vector<ShapeSessions> taken, TakeSessions(*itself, axes, plan));
  const BandKey key{contest.device().uuid, contest.device().driver, request.op, request.mode};
  for (size_t i = 0; i < sound.size(); ++i) {
    BandInUse& band = sound[i]->band;
    band = Estimate(taken[i], axes[i], stats::kLeastNoiseSessions, plan.rounds,
                    contest.names()[kIncumbent]);
    sound[i]->sessions = std::move(taken[i].kept);
    if (band.trouble.empty()) band.in_ledger = Store(bench, key, band);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NoiseReport> MeasureNoise(const Workbench& bench, const NoiseRequest& request) {
  if (request.sessions < stats::kLeastNoiseSessions || request.rounds < stats::kLeastNoiseRounds) {
    return Error(
        absl::StatusCode::kInvalidArgument,
        StrCat(request.sessions, " sessions of ", request.rounds,
               " rounds are too few for a noise band"),
        StrCat("take at least ", stats::kLeastNoiseSessions, " of ", stats::kLeastNoiseRounds));
  }
  KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, bench.catalog.FindOp(request.op));
  KVR_ASSIGN_OR_RETURN(const std::vector<Axes> asked, ResolveShapes(op->spec(), request.shapes));
  std::string name = request.contestant;
  if (name.empty()) {
    KVR_ASSIGN_OR_RETURN(const VariantPtr baseline, bench.catalog.Baseline(request.op));
    name = baseline->name;
  }
  KVR_ASSIGN_OR_RETURN(const ContestantParts parts, SplitContestant(name));
  KVR_ASSIGN_OR_RETURN(const VariantPtr variant, bench.catalog.Find(request.op, parts.variant));
  if (variant->semantics == Semantics::kApproximate) {
    return Error(absl::StatusCode::kInvalidArgument, StrCat("'", variant->name, "' is approximate"),
                 "name an exact variant: the band holds for all of the operation");
  }
  KVR_ASSIGN_OR_RETURN(const Candidate contestant,
                       ParseContestant(bench.catalog, request.op, name));
  NoiseReport report;
  report.op = request.op;
  report.mode = request.mode;
  report.contestant = ContestantText(contestant);
  KVR_ASSIGN_OR_RETURN(report.shapes, ShapesToMeasure(*op, asked));
  RunTime time(bench.cancel, request.budget_s);
  const absl::StatusOr<std::unique_ptr<Contest>> contest = Contest::Start(
      bench, *op, {contestant, contestant}, {request.mode, request.input_sets, request.seed});
  if (contest.ok()) {
    report.device = (*contest)->device();
    report.seed = (*contest)->seed();
    KVR_RETURN_IF_ERROR(Measure(bench, op->spec(), request, **contest, time, report.shapes));
    report.respawns = (*contest)->respawns();
  } else if (!absl::IsCancelled(contest.status())) {
    return contest.status();
  }
  for (const ShapeNoise& shape : report.shapes) {
    for (const SessionResult& session : shape.sessions) {
      report.session = Merge(report.session, session.info);
    }
  }
  report.cancelled = Cancelled(bench);
  report.out_of_time = time.ran_out();
  return report;
}

}  // namespace kvr
