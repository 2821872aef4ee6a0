// SPDX-License-Identifier: Apache-2.0
//
// The measuring of one key of kvr tune: its noise band, its race and its duel, told to whoever
// watches, to the ledger and to the report as they go.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/contest.h"
#include "tuner/noise_run.h"
#include "tuner/tuner.h"

namespace kvr {
namespace {

constexpr int kRoundsOverShapes = 8;  // asked for at once, where the sessions change with the shape

std::string IntervalText(const stats::Interval& interval) {
  if (!std::isfinite(interval.low) || !std::isfinite(interval.high)) return "";
  return absl::StrFormat(" [%.1f, %.1f]", interval.low, interval.high);
}

// In percent of the incumbent's time.
std::string ChangeText(const stats::QuickComparison& comparison) {
  const auto percent = [](double log_ratio) { return 100 * std::expm1(log_ratio); };
  const stats::Interval interval = comparison.interval();
  return StrCat(absl::StrFormat("%+.1f", percent(comparison.median())),
                IntervalText({percent(interval.low), percent(interval.high)}), " %");
}

}  // namespace

// Hears how a key is decided. What has left the race is in the ledger when its stage is over.
class KeyWatch : public DecideObserver {
 public:
  KeyWatch(Tuner& tuner, const Key& key, WorkerKeySampler& sampler, absl::Time until)
      : tuner_(tuner),
        key_(key),
        sampler_(sampler),
        prefix_(tuner.keys_.size() > 1 ? StrCat(AxesText(tuner.policy_->Named(key.bucket)), ": ")
                                       : ""),
        progress_(tuner.bench_.progress, Phase::kMeasure, 0) {
    progress_.EndsBy(until);
  }

  std::string_view stage() const { return stage_; }

  void StageBegins(const stats::RaceStage& stage) override {
    stage_ = stage.name;
    if (stage_ == "final") sampler_.Forget();  // fresh samples
    if (stage_ == "screen") {
      progress_.Begin(StrCat(prefix_, "screening ", stage.entered.size(), " configs"));
    }
  }

  void Looked(const stats::RaceLook& look) override {
    taken_ = look.samples;
    std::string text = StrCat(prefix_, look.remaining, " of ", look.entered, " left");
    if (look.best >= 0) {
      StrAppend(&text, absl::StrFormat(", best %.1f us", look.best_us), IntervalText(look.interval),
                " ", CandidateText(key_.candidates[look.best]));
    }
    progress_.Set(taken_, taken_ + look.samples_ahead + DuelSamples(0), text);
  }

  void StageEnds(const stats::RaceStage& stage, const std::vector<double>& medians) override {
    for (int subject : stage.entered) ReportTimes(subject);
    for (int subject : stage.left) {
      // Who left for want of time, before a first round, was not found slow.
      const bool judged = sampler_.trouble().empty() && std::isfinite(medians[subject]);
      if (sampler_.Passed(subject)) Record(subject, judged ? "dropped" : "");
    }
  }

  void Raced(const stats::RaceResult& race, const std::string& trouble) override {
    for (int subject : race.finalists) {
      if (sampler_.Passed(subject)) Record(subject, "kept");
    }
    if (!trouble.empty()) {
      tuner_.Note(StrCat(prefix_, "the race was disturbed, so it rejects nobody: ", trouble));
      if (race.winner >= 0) {
        ledger::Verdict verdict = VerdictOf(key_.incumbent, race.winner);
        verdict.kind = "race";
        verdict.verdict = std::string(stats::VerdictName(stats::Verdict::kInvalid));
        verdict.reason = trouble;
        AddForShapes(std::move(verdict));
      }
    }
    if (race.stopped) {
      tuner_.Cut(StrCat(AxesText(tuner_.policy_->Named(key_.bucket)),
                        ": the budget stopped the race with ", race.finalists.size(), " of ",
                        key_.candidates.size(), " configs left"));
    }
  }

  void DuelBegins(int incumbent, int challenger) override {
    sampler_.Forget();
    stage_ = "duel";
    duel_ = StrCat(prefix_, CandidateText(key_.candidates[challenger]), " against ",
                   CandidateText(key_.candidates[incumbent]));
    progress_.Set(taken_, taken_ + DuelSamples(0), duel_);
  }

  void DuelLooked(const stats::QuickComparison& comparison) override {
    const int done = 2 * comparison.rounds();
    progress_.Set(taken_ + done, taken_ + done + DuelSamples(comparison.rounds()),
                  StrCat(prefix_, ChangeText(comparison), ", ", duel_.substr(prefix_.size())));
  }

  void Dueled(const Duel& duel) override {
    taken_ += 2 * duel.rounds;
    progress_.Set(taken_, taken_, duel_);
    // Slower than the incumbent beyond the band, on samples that did not choose it.
    const bool lost = duel.verdict == stats::Verdict::kLoss;
    for (int subject : {duel.incumbent, duel.challenger}) {
      const bool challenger = subject == duel.challenger;
      if (!sampler_.Passed(subject)) continue;
      Record(subject, !challenger || duel.verdict == stats::Verdict::kWin ? "kept"
                      : lost                                              ? "dropped"
                                                                          : "");
    }
    ledger::Verdict verdict = VerdictOf(duel.incumbent, duel.challenger);
    verdict.kind = "quick";
    verdict.verdict = std::string(stats::VerdictName(duel.verdict));
    verdict.reason = duel.reason;
    verdict.difference = duel.difference;
    verdict.low = duel.interval.low;
    verdict.high = duel.interval.high;
    verdict.band = band_;
    verdict.rounds = duel.rounds;
    AddForShapes(std::move(verdict));
  }

  void AloneBegins(int subject) override {
    sampler_.Forget();
    stage_ = "duel";
    progress_.Set(taken_, taken_ + 1,
                  StrCat(prefix_, CandidateText(key_.candidates[subject]), " alone"));
  }
  void Alone(int subject, double) override { Record(subject, "kept"); }

  void set_band(double band) { band_ = band; }

  // One that failed while being timed or checked.
  void Condemn(size_t shape, int subject, const Finding& finding) {
    const Candidate& candidate = key_.candidates[subject];
    tuner_.Fail(candidate, key_.shapes[shape], finding.status, finding.reason);
    ledger::Trial record = RecordOf(shape, subject);
    record.status = std::string(TrialStatusName(finding.status));
    record.reason = finding.reason;
    record.outcome = "dropped";
    tuner_.journal_.Add(std::move(record));
  }

 private:
  int DuelSamples(int rounds) const { return 2 * (tuner_.request_.duel_rounds - rounds); }

  ledger::Trial RecordOf(size_t shape, int subject) const {
    ledger::Trial record =
        tuner_.RecordOf(key_.candidates[subject], key_.shapes[shape], std::string_view(stage_));
    record.samples = sampler_.Raw(shape, subject);
    record.median_us = Median(record.samples);
    record.spread = RelativeSpread(record.samples);
    record.clock_mhz = sampler_.info().clock_mhz;
    record.throttle_bits = static_cast<int64_t>(sampler_.info().throttle_bits);
    return record;
  }

  void Record(int subject, std::string_view outcome) {
    for (size_t shape = 0; shape < key_.shapes.size(); ++shape) {
      ledger::Trial record = RecordOf(shape, subject);
      record.outcome = std::string(outcome);
      record.reason = sampler_.trouble();
      tuner_.journal_.Add(std::move(record));
    }
  }

  void ReportTimes(int subject) {
    for (size_t shape = 0; shape < key_.shapes.size(); ++shape) {
      const std::vector<double>& samples = sampler_.Raw(shape, subject);
      if (samples.empty() || !sampler_.Passed(subject)) continue;
      Trial& trial = tuner_.TrialOf(key_.candidates[subject], key_.shapes[shape]);
      trial.stage = stage_;
      if (stage_ == "final") {
        trial.median_us = Median(samples);
        trial.spread = samples.size() < 2 ? -1 : RelativeSpread(samples);
      } else {
        trial.screen_us = Median(samples);
      }
    }
  }

  ledger::Verdict VerdictOf(int incumbent, int challenger) const {
    ledger::Verdict verdict;
    verdict.op = tuner_.work_.op->name();
    verdict.mode = ModeText(tuner_.request_.mode);
    if (incumbent >= 0) {
      const Candidate& candidate = key_.candidates[incumbent];
      verdict.incumbent = candidate.variant->name;
      verdict.incumbent_fingerprint = candidate.variant->fingerprint.Hex();
      verdict.incumbent_config = ConfigText(candidate.config);
    }
    const Candidate& candidate = key_.candidates[challenger];
    verdict.challenger = candidate.variant->name;
    verdict.challenger_fingerprint = candidate.variant->fingerprint.Hex();
    verdict.challenger_config = ConfigText(candidate.config);
    return verdict;
  }

  // A verdict is of all the key's shapes together, and found under each of them.
  void AddForShapes(ledger::Verdict verdict) {
    for (const Axes& axes : tuner_.Named(key_.shapes)) {
      verdict.axes = AxesText(axes);
      tuner_.journal_.Add(verdict);
    }
  }

  Tuner& tuner_;
  const Key& key_;
  WorkerKeySampler& sampler_;
  const std::string prefix_;
  PhaseProgress progress_;
  std::string stage_, duel_;
  double band_ = 0;
  int taken_ = 0;
};

// The bands of all keys with one incumbent together, for the ledger, where each key then finds its
// own: to start three processes takes longer than all their rounds. What is missing here, the key
// measures itself.
absl::Status Tuner::TakeBands() {
  if (journal_.ledger() == nullptr) return absl::OkStatus();
  std::map<std::pair<const Variant*, Config>, std::vector<const Key*>> keys_of;
  for (const Key& key : keys_) {
    if (key.incumbent < 0 || key.candidates.size() < 2) continue;
    const Candidate& incumbent = key.candidates[key.incumbent];
    if (BuiltOf(incumbent).ok())
      keys_of[{incumbent.variant.get(), incumbent.config}].push_back(&key);
  }
  for (const auto& [incumbent, keys] : keys_of) {
    if (keys.size() < 2) continue;
    std::vector<AxisVector> shapes;
    for (const Key* key : keys) {
      shapes.insert(shapes.end(), key->shapes.begin(), key->shapes.end());
    }
    const Candidate& candidate = keys.front()->candidates[keys.front()->incumbent];
    KVR_ASSIGN_OR_RETURN(std::string path, files_->Add(*BuiltOf(candidate)->binary));
    KVR_RETURN_IF_ERROR(
        BandsAt(shapes, ItemOf(candidate, std::move(path)), budget_.end()).status());
  }
  return absl::OkStatus();
}

// The widest of the key's shapes: what a mean over them cannot exceed.
absl::StatusOr<KeyBand> Tuner::BandOf(const Key& key, const WorkItem& incumbent, absl::Time until) {
  KVR_ASSIGN_OR_RETURN(const std::vector<BandInUse> bands, BandsAt(key.shapes, incumbent, until));
  KeyBand widest;
  for (const BandInUse& band : bands) {
    if (!band.trouble.empty()) {
      widest.trouble = StrCat("no noise band: ", band.trouble);
      break;
    }
    if (widest.source.empty() || band.estimate.band > widest.band) {
      widest.band = band.estimate.band;
      widest.source = BandSourceText(band);
    }
  }
  return widest;
}

absl::StatusOr<std::vector<BandInUse>> Tuner::BandsAt(const std::vector<AxisVector>& at,
                                                      const WorkItem& incumbent, absl::Time until) {
  std::vector<Axes> shapes;
  for (const Axes& axes : Named(at)) {
    KVR_ASSIGN_OR_RETURN(const BandShape shape, BandShapeOf(*work_.op, axes));
    shapes.push_back(shape.axes);
  }
  WorkerSessions itself(*worker_, work_.op->name(), seeds_, incumbent, incumbent,
                        MeasuringOptions());
  const BandKey belongs{report_.device.uuid, report_.device.driver, work_.op->name(),
                        request_.mode};
  return FindOrMeasureBands(bench_, belongs, itself, shapes, report_.seed,
                            [&] { return !Cancelled(bench_) && absl::Now() < until; });
}

absl::Status Tuner::Measure(Key& key, const KeyShare& share, TunedKey& tuned) {
  KVR_ASSIGN_OR_RETURN(const std::vector<WorkItem> items, Items(key));
  KeyBand& band = key.band;
  if (key.incumbent >= 0 && items.size() > 1) {
    KVR_ASSIGN_OR_RETURN(band, BandOf(key, items[key.incumbent], share.race_until));
  }

  journal_.BeginSession();
  KeyWatch* watch = nullptr;
  WorkerKeySampler sampler(
      key.shapes.size(), static_cast<int>(items.size()),
      [&](size_t shape) {
        return WorkerSampler::Open(
            *worker_, {work_.op->name(), NamedAxes(work_.op->spec(), key.shapes[shape]), seeds_},
            items, MeasuringOptions());
      },
      [&](size_t shape, int i, const Finding& finding) { watch->Condemn(shape, i, finding); });
  KeyWatch watching(*this, key, sampler, share.end);
  watch = &watching;
  watching.set_band(band.band);

  DecideOptions options;
  options.race = request_.race;
  options.race.band = band.band;
  if (key.shapes.size() > 1) options.race.look_every = options.duel_look = kRoundsOverShapes;
  options.duel.band = band.band;
  options.duel.max_rounds = request_.duel_rounds;
  options.no_verdict = band.trouble;
  if (absl::Now() >= share.race_until) options.without = stats::Verdict::kInconclusive;
  KVR_ASSIGN_OR_RETURN(
      const KeyDecision decision,
      DecideKey(
          sampler, key.incumbent, options, [&] { return absl::Now() < share.race_until; },
          [&] { return absl::Now() < share.end; }, watching));
  report_.respawns = worker_->respawns();
  AddBehind(decision, key);
  tuned.session = sampler.info();
  report_.session = Merge(report_.session, sampler.info());
  Tell(key, decision, band, tuned);
  if (decision.winner < 0) {
    tuned.note = decision.race.stopped ? kNoTime : "no config gave a measurement";
    return absl::OkStatus();
  }
  if (!AnyRequestedPassed(key)) {  // they failed while being timed
    tuned.note = NoneRequestedPassed();
    return absl::OkStatus();
  }
  const Candidate& winner = key.candidates[decision.winner];
  tuned.variant = winner.variant->name;
  tuned.config = winner.config;
  tuned.median_us = decision.winner_us;
  return Publish(key, winner, tuned);
}

void Tuner::AddBehind(const KeyDecision& decision, Key& key) const {
  const std::vector<double>& medians = decision.race.medians;
  if (!decision.race_trouble.empty() || decision.race.winner < 0) return;
  const double best = medians[decision.race.winner];
  for (size_t i = 0; i < medians.size(); ++i) {
    if (std::isfinite(medians[i])) {
      key.behind.push_back({key.candidates[i], std::log(medians[i] / best)});
    }
  }
}

void Tuner::Tell(const Key& key, const KeyDecision& decision, const KeyBand& band,
                 TunedKey& tuned) {
  const std::vector<double>& medians = decision.race.medians;
  tuned.tried = static_cast<int>(
      std::count_if(medians.begin(), medians.end(), [](double us) { return std::isfinite(us); }));
  tuned.race_trouble = decision.race_trouble;
  tuned.incumbent_kept = decision.incumbent_kept;
  if (!band.source.empty()) {
    tuned.band = band.band;
    tuned.band_source = band.source;
  }
  const auto name = [&](int subject, std::string& variant, Config& config) {
    variant = key.candidates[subject].variant->name;
    config = key.candidates[subject].config;
  };
  const Duel& duel = decision.duel;
  if (decision.held) {
    name(duel.incumbent, tuned.incumbent_variant, tuned.incumbent_config);
    name(duel.challenger, tuned.challenger_variant, tuned.challenger_config);
    tuned.incumbent_us = duel.incumbent_us;
    tuned.challenger_us = duel.challenger_us;
    tuned.verdict = std::string(stats::VerdictName(duel.verdict));
    tuned.reason = duel.reason;
    tuned.difference = duel.interval;
    tuned.gain = std::isfinite(duel.difference) ? 1 - std::exp(duel.difference) : 0;
    tuned.rounds = duel.rounds;
    if (duel.verdict == stats::Verdict::kInconclusive && !duel.reason.empty()) {
      Cut(StrCat(AxesText(tuned.key),
                 ": the budget cut the comparison with the incumbent: ", duel.reason));
    }
  } else if (decision.incumbent_kept) {
    name(decision.winner, tuned.incumbent_variant, tuned.incumbent_config);
    tuned.incumbent_us = decision.winner_us;
    tuned.reason = "nobody was left to meet the incumbent";
  } else if (decision.winner >= 0) {
    tuned.reason = "no incumbent could be measured: this won the race";
  }
}

}  // namespace kvr
