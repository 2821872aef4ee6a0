// SPDX-License-Identifier: Apache-2.0
//
// What a finer key policy is worth: keys that the op's own policy would not tell apart against the
// one config that would serve all of them best. For each key a quick verdict of the two, on fresh
// samples of one session. The ledger keeps it as of kind "single", for kvr report to tell.
//
// The choices are made before this, each by its own race, so neither is flattered by these samples.
#include <algorithm>
#include <map>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "tuner/contest.h"
#include "tuner/feasibility.h"
#include "tuner/tuner.h"

namespace kvr {

std::vector<Tuner::KeyGroup> Tuner::Groups() const {
  std::map<std::array<int64_t, kMaxKeyAxes>, KeyGroup> by_key;
  for (size_t i = 0; i < keys_.size(); ++i) {
    by_key[work_.op->policy.Bucket(keys_[i].shapes.front()).values].push_back(i);
  }
  std::vector<KeyGroup> groups;
  for (auto& [key, group] : by_key) {
    if (group.size() > 1) groups.push_back(std::move(group));
  }
  return groups;
}

// One that was rejected at every key, though nowhere for being wrong, is not built yet.
absl::StatusOr<WorkItem> Tuner::BuiltItem(const Candidate& candidate) {
  const auto [at, is_new] =
      index_.emplace(std::pair(candidate.variant.get(), candidate.config), all_.size());
  if (is_new) {
    PhaseProgress progress(bench_.progress, Phase::kCompile, 1);
    all_.push_back(candidate);
    built_.push_back(BuildAll(bench_, work_.op->spec(), absl::MakeConstSpan(&candidate, 1),
                              report_.device.target, progress)
                         .front());
  }
  const absl::StatusOr<Built>& built = built_[at->second];
  KVR_RETURN_IF_ERROR(built.status());
  KVR_ASSIGN_OR_RETURN(std::string path, files_->Add(*built->binary));
  return ItemOf(candidate, std::move(path));
}

// A session in trouble is taken once more.
absl::StatusOr<AbShape> Tuner::DuelWithSingle(Key& key, const Axes& axes,
                                              const std::array<Candidate, 2>& sides) {
  AbShape duel;
  duel.verdict = stats::Verdict::kInvalid;
  std::array<WorkItem, 2> items;
  for (const Side side : {kIncumbent, kChallenger}) {
    absl::StatusOr<WorkItem> item = BuiltItem(sides[side]);
    if (absl::IsCancelled(item.status())) return item.status();
    if (!item.ok()) {
      duel.reason = Reason(item.status());
      return duel;
    }
    items[side] = *std::move(item);
  }
  const absl::Time end = budget_.end();
  if (key.band.source.empty() && key.band.trouble.empty()) {
    KVR_ASSIGN_OR_RETURN(key.band, BandOf(key, items[kIncumbent], end));
  }
  duel.reason = key.band.trouble;
  if (!duel.reason.empty()) return duel;
  // Which side is loaded first is drawn from the first seed.
  std::vector<uint64_t> seeds = seeds_;
  std::rotate(seeds.begin(), seeds.begin() + singles_held_++ % seeds.size(), seeds.end());
  WorkerSessions source(*worker_, work_.op->name(), std::move(seeds), items[kIncumbent],
                        items[kChallenger], MeasuringOptions());
  stats::QuickOptions options;
  options.band = key.band.band;
  options.max_rounds = request_.duel_rounds;
  for (int chance = 0; chance < 2; ++chance) {
    const absl::StatusOr<std::unique_ptr<PairedSession>> session = source.Open(axes);
    if (absl::IsResourceExhausted(session.status())) {
      duel.reason = std::string(What(session.status()));
      return duel;
    }
    KVR_RETURN_IF_ERROR(session.status());
    KVR_ASSIGN_OR_RETURN(
        duel, DecideQuickly(**session, options,
                            {CandidateText(sides[kIncumbent]), CandidateText(sides[kChallenger])},
                            [&] { return !Cancelled(bench_) && absl::Now() < end; }));
    const SessionResult& result = duel.sessions.back();
    report_.session = Merge(report_.session, result.info);
    if (result.trouble.empty() || result.fault()) break;
  }
  report_.respawns = worker_->respawns();
  return duel;
}

void Tuner::RecordSingle(const SingleAt& at, const AxisVector& axes, const AbShape& duel,
                         const std::array<Candidate, 2>& sides) {
  ledger::Verdict record;
  record.session = journal_.BeginSession();
  if (!duel.sessions.empty()) {
    const SessionResult& result = duel.sessions.back();
    for (const Side side : {kIncumbent, kChallenger}) {
      ledger::Trial trial = RecordOf(sides[side], axes, "ab");
      trial.status = std::string(TrialStatusName(result.findings[side].status));
      trial.reason =
          result.findings[side].reason.empty() ? result.trouble : result.findings[side].reason;
      trial.samples = result.us[side];
      trial.median_us = Median(trial.samples);
      trial.spread = RelativeSpread(trial.samples);
      trial.clock_mhz = result.info.clock_mhz;
      trial.throttle_bits = static_cast<int64_t>(result.info.throttle_bits);
      journal_.Add(std::move(trial));
    }
  }
  const auto& [single, own] = sides;
  record.op = work_.op->name();
  record.axes = AxesText(at.axes);
  record.mode = ModeText(request_.mode);
  record.kind = "single";
  record.incumbent = single.variant->name;
  record.incumbent_fingerprint = single.variant->fingerprint.Hex();
  record.incumbent_config = ConfigText(single.config);
  record.challenger = own.variant->name;
  record.challenger_fingerprint = own.variant->fingerprint.Hex();
  record.challenger_config = ConfigText(own.config);
  record.verdict = at.verdict;
  record.reason = at.reason;
  record.difference = at.difference;
  record.low = at.interval.low;
  record.high = at.interval.high;
  record.band = at.band;
  record.rounds = at.rounds;
  record.sessions = duel.sessions.empty() ? 0 : 1;
  journal_.Add(std::move(record));
}

absl::Status Tuner::CompareWithSingles(const std::vector<KeyGroup>& groups) {
  size_t keys = 0;
  for (const KeyGroup& group : groups) keys += group.size();
  if (keys == 0) return absl::OkStatus();
  PhaseProgress progress(bench_.progress, Phase::kMeasure, static_cast<int>(keys));
  progress.EndsBy(budget_.end());
  for (const KeyGroup& group : groups) {
    const absl::Status status = CompareWithSingle(group, progress);
    if (absl::IsCancelled(status)) report_.cancelled = true;
    if (report_.cancelled) break;
    KVR_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status Tuner::CompareWithSingle(const KeyGroup& group, PhaseProgress& progress) {
  SingleChoice choice;
  choice.key = work_.op->policy.Named(work_.op->policy.Bucket(keys_[group.front()].shapes.front()));
  std::vector<SingleKey> raced;
  for (const size_t i : group) raced.push_back({keys_[i].shapes, keys_[i].behind});
  size_t of = 0;
  const std::optional<Candidate> single = BestSingle(raced, report_.device, &of);
  if (!single.has_value()) {
    Note(StrCat(AxesText(choice.key), ": no config raced at all of its ", group.size(),
                " keys, so there is none to share"));
    report_.singles.push_back(std::move(choice));
    return absl::OkStatus();
  }
  Note(StrCat(AxesText(choice.key), ": one choice for all is the best of ", of,
              of == 1 ? " config" : " configs", " that raced at each of the ", group.size(),
              " keys"));
  choice.variant = single->variant->name;
  choice.config = single->config;
  size_t left_out = 0;
  for (const size_t i : group) {
    Key& key = keys_[i];
    const TunedKey& tuned = report_.selections[i];
    if (tuned.variant.empty()) continue;
    KVR_ASSIGN_OR_RETURN(const VariantPtr variant,
                         bench_.catalog.Find(work_.op->name(), tuned.variant));
    const std::array<Candidate, 2> sides = {*single, Candidate{variant, tuned.config}};
    for (const AxisVector& axes : key.shapes) {
      if (Cancelled(bench_) || absl::Now() >= budget_.end()) {
        ++left_out;
        continue;
      }
      SingleAt at;
      at.key = tuned.key;
      at.axes = NamedAxes(work_.op->spec(), axes);
      at.variant = tuned.variant;
      at.config = tuned.config;
      AbShape duel;
      progress.Begin(StrCat(AxesText(at.key), ": its own choice against one for all"));
      if (SameWork(sides[kIncumbent], sides[kChallenger], absl::MakeConstSpan(&axes, 1),
                   report_.device)) {
        duel.verdict = stats::Verdict::kEquivalent;
        duel.reason = "both do the same work";
        duel.difference = duel.interval.low = duel.interval.high = 0;
      } else {
        KVR_ASSIGN_OR_RETURN(duel, DuelWithSingle(key, at.axes, sides));
      }
      at.verdict = std::string(stats::VerdictName(duel.verdict));
      at.reason = duel.reason;
      at.single_us = duel.incumbent_us;
      at.own_us = duel.challenger_us;
      at.difference = duel.difference;
      at.interval = duel.interval;
      at.band = key.band.source.empty() ? 0 : key.band.band;
      at.rounds = duel.rounds;
      RecordSingle(at, axes, duel, sides);
      progress.Note(StrCat(AxesText(at.key), ": ", at.verdict, " against one choice for all",
                           at.rounds > 0 ? ", " : "",
                           at.rounds > 0 ? DifferenceText(at.difference, at.interval) : ""));
      choice.at.push_back(std::move(at));
      progress.Done();
    }
  }
  if (left_out > 0 && !Cancelled(bench_)) {
    Cut(StrCat(AxesText(choice.key), ": the budget left no time for ", left_out,
               left_out == 1 ? " comparison" : " comparisons", " with one choice for all"));
  }
  report_.singles.push_back(std::move(choice));
  return absl::OkStatus();
}

}  // namespace kvr
