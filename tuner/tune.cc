// SPDX-License-Identifier: Apache-2.0
//
// kvr tune, key by key. A key is finished (verified, measured, published) before the next begins,
// so that an interrupted run keeps every finished one.
#include "tuner/tune.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/feasibility.h"
#include "tuner/publish.h"
#include "tuner/work.h"

namespace kvr {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int kMeasureSlices = 5;  // of the final rounds: how often progress and SIGINT get a look

// One tuning key and its contestants.
struct Key {
  BucketedKey bucket;
  std::vector<AxisVector> shapes;  // representatives
  std::vector<Candidate> candidates;
  std::vector<std::vector<LaunchPlan>> plans;  // [shape][candidate]
  int incumbent = -1;                          // position in candidates
};

class Tuner {
 public:
  Tuner(const Workbench& bench, const TuneRequest& request) : bench_(bench), request_(request) {}
  absl::StatusOr<TuneReport> Run();

 private:
  absl::Status Prepare();
  absl::Status MakeKeys();
  void PruneKey(Key& key);
  void Build();
  absl::Status RunKey(Key& key);
  absl::Status Verify(Key& key);
  void DropRepeats(Key& key);
  absl::Status Measure(Key& key, TunedKey& tuned);
  absl::Status Publish(const Key& key, const Candidate& winner, TunedKey& tuned);

  void Prune(const Candidate& candidate, const AxisVector& axes, std::string reason) {
    report_.pruned.push_back({candidate.variant->name, candidate.config, std::move(reason),
                              NamedAxes(work_.op->spec(), axes)});
  }
  Trial& TrialOf(const Candidate& candidate, const AxisVector& axes);
  const absl::StatusOr<Built>& BuiltOf(const Candidate& candidate) const;
  absl::StatusOr<std::vector<WorkItem>> Items(const Key& key);

  const Workbench& bench_;
  const TuneRequest& request_;
  TuneReport report_;
  Work work_;
  std::vector<uint64_t> seeds_;
  std::unique_ptr<WorkerClient> worker_;
  std::unique_ptr<BinaryFiles> files_;
  GenerationPtr incumbents_;  // may be null
  std::optional<KeyPolicy> policy_;
  std::vector<Key> keys_;
  std::vector<Candidate> all_;                                 // every candidate of any key, once
  std::map<std::pair<const Variant*, Config>, size_t> index_;  // into all_ and built_
  std::vector<absl::StatusOr<Built>> built_;
  std::unique_ptr<PhaseProgress> verifying_, measuring_;
};

Trial& Tuner::TrialOf(const Candidate& candidate, const AxisVector& axes) {
  const Axes named = NamedAxes(work_.op->spec(), axes);
  for (Trial& trial : report_.trials) {
    if (trial.variant == candidate.variant->name && trial.config == candidate.config &&
        trial.axes == named) {
      return trial;
    }
  }
  Trial& trial = report_.trials.emplace_back();
  trial.variant = candidate.variant->name;
  trial.config = candidate.config;
  trial.axes = named;
  return trial;
}

const absl::StatusOr<Built>& Tuner::BuiltOf(const Candidate& candidate) const {
  return built_[index_.at({candidate.variant.get(), candidate.config})];
}

absl::Status Tuner::Prepare() {
  // The request is checked before a worker starts.
  KVR_RETURN_IF_ERROR(Resolve(bench_.catalog, request_, "", /*exact_only=*/true).status());
  report_.seed = request_.seed;
  seeds_ = Seeds(&report_.seed, request_.input_sets);
  WorkerOptions options = bench_.worker;
  options.cancel = bench_.cancel;
  KVR_ASSIGN_OR_RETURN(worker_, WorkerClient::Start(std::move(options)));
  report_.device = worker_->device();
  KVR_ASSIGN_OR_RETURN(
      work_, Resolve(bench_.catalog, request_, report_.device.target, /*exact_only=*/true));
  report_.skipped = work_.skipped;
  KVR_ASSIGN_OR_RETURN(files_, BinaryFiles::Create());
  if (!request_.selection_file.empty()) {
    KVR_ASSIGN_OR_RETURN(incumbents_,
                         ReadIncumbents(request_.selection_file, bench_.catalog, report_.device));
  }
  policy_ = work_.op->policy;
  const Generation::Op* selected =
      incumbents_ == nullptr ? nullptr : incumbents_->FindOp(work_.op->name());
  if (selected != nullptr) policy_ = selected->policy;
  if (!request_.key_policy.empty()) {
    KVR_ASSIGN_OR_RETURN(policy_, KeyPolicy::Parse(request_.key_policy, work_.op->spec()));
  }
  return absl::OkStatus();
}

absl::Status Tuner::MakeKeys() {
  const OpSpec& spec = work_.op->spec();
  for (const AxisVector& axes : work_.shapes) {
    const BucketedKey bucket = policy_->Bucket(axes);
    auto key =
        std::find_if(keys_.begin(), keys_.end(), [&](const Key& k) { return k.bucket == bucket; });
    if (key == keys_.end()) {
      keys_.emplace_back().bucket = bucket;
      key = keys_.end() - 1;
    }
    // Tuned at the bucket's representative, which must be a legal shape itself.
    const AxisVector representative = policy_->Representative(axes);
    KVR_RETURN_IF_ERROR(ResolveAxes(spec, NamedAxes(spec, representative)).status());
    if (std::find(key->shapes.begin(), key->shapes.end(), representative) == key->shapes.end()) {
      key->shapes.push_back(representative);
    }
  }
  for (Key& key : keys_) {
    key.candidates = work_.space.candidates;
    Candidate incumbent;
    const Selection* selected =
        incumbents_ == nullptr || incumbents_->FindOp(spec.name) == nullptr ||
                incumbents_->FindOp(spec.name)->policy.text() != policy_->text()
            ? nullptr
            : incumbents_->Find(spec.name, key.bucket);
    if (selected != nullptr) {
      incumbent = {selected->variant, selected->config};
    } else if (work_.op->baseline != nullptr) {
      incumbent = {work_.op->baseline, DefaultConfig(work_.op->baseline->tunables)};
    }
    // What is selected now always takes part, unless tunables are pinned: then the question is
    // about those configs alone.
    const auto present = std::find(key.candidates.begin(), key.candidates.end(), incumbent);
    if (present != key.candidates.end()) {
      std::rotate(key.candidates.begin(), present, present + 1);
      key.incumbent = 0;
    } else if (incumbent.variant != nullptr && !work_.overridden &&
               incumbent.variant->Supports(report_.device.target)) {
      key.candidates.insert(key.candidates.begin(), incumbent);
      key.incumbent = 0;
    }
    PruneKey(key);
  }
  return absl::OkStatus();
}

// Keeps what is feasible at every shape. The incumbent, if feasible, stays at position 0.
void Tuner::PruneKey(Key& key) {
  const Candidate incumbent = key.incumbent == 0 ? key.candidates.front() : Candidate{};
  for (const AxisVector& axes : key.shapes) {
    Feasible feasible = PruneStatically(key.candidates, axes, report_.device);
    if (key.shapes.size() > 1) {
      // With several shapes, equal plans at one of them are no reason to leave a config out.
      std::vector<Candidate> kept;
      for (const Candidate& candidate : key.candidates) {
        LaunchPlan plan;
        const absl::Status fits =
            CheckPlan(*candidate.variant, candidate.config, axes, report_.device, &plan);
        if (fits.ok()) {
          kept.push_back(candidate);
        } else {
          Prune(candidate, axes, std::string(What(fits)));
        }
      }
      key.candidates = std::move(kept);
      continue;
    }
    for (const Pruned& pruned : feasible.pruned) Prune(pruned.candidate, axes, pruned.reason);
    key.candidates = std::move(feasible.candidates);
  }
  if (key.candidates.empty() || !(key.candidates.front() == incumbent)) key.incumbent = -1;
}

void Tuner::Build() {
  for (const Key& key : keys_) {
    for (const Candidate& candidate : key.candidates) {
      if (index_.emplace(std::pair(candidate.variant.get(), candidate.config), all_.size())
              .second) {
        all_.push_back(candidate);
      }
    }
  }
  PhaseProgress progress(bench_.progress, Phase::kCompile,
                         static_cast<int>(DistinctBuilds(all_).size()));
  built_ = BuildAll(bench_, work_.op->spec(), all_, report_.device.target, progress);
}

// After the compile: drops what failed, what does not fit with its real registers, and what turns
// out to be an earlier candidate's very binary under the same plans.
void Tuner::DropRepeats(Key& key) {
  const Candidate incumbent = key.incumbent == 0 ? key.candidates.front() : Candidate{};
  std::vector<Candidate> kept;
  std::vector<std::vector<LaunchPlan>> kept_plans;  // [candidate][shape]
  std::vector<Fingerprint> kept_keys;               // of their binaries
  for (const Candidate& candidate : key.candidates) {
    const absl::StatusOr<Built>& built = BuiltOf(candidate);
    if (!built.ok()) {
      for (const AxisVector& axes : key.shapes) {
        Trial& trial = TrialOf(candidate, axes);
        trial.status = TrialStatus::kCompileError;
        trial.reason = std::string(What(built.status()));
      }
      verifying_->Note(StrCat(CandidateText(candidate), ": COMPILE_ERROR: ", What(built.status())));
      continue;
    }
    std::vector<LaunchPlan> plans(key.shapes.size());
    absl::Status fits;
    size_t shape = 0;
    for (; shape < key.shapes.size() && fits.ok(); ++shape) {
      fits = CheckPlan(*candidate.variant, candidate.config, key.shapes[shape], report_.device,
                       &plans[shape]);
      if (fits.ok()) {
        fits = CheckResources(*candidate.variant, plans[shape], *built->binary, report_.device);
      }
    }
    if (!fits.ok()) {
      Prune(candidate, key.shapes[shape - 1], std::string(What(fits)));
      continue;
    }
    const auto same = [&](size_t i) {
      return kept_keys[i] == built->binary->key &&
             std::equal(plans.begin(), plans.end(), kept_plans[i].begin(), SamePlan);
    };
    size_t repeat = 0;
    while (repeat < kept.size() && !same(repeat)) ++repeat;
    if (repeat < kept.size()) {
      Prune(candidate, key.shapes.front(),
            StrCat("same binary and plan as ", CandidateText(kept[repeat])));
      continue;
    }
    kept.push_back(candidate);
    kept_plans.push_back(std::move(plans));
    kept_keys.push_back(built->binary->key);
  }
  key.candidates = std::move(kept);
  if (key.candidates.empty() || !(key.candidates.front() == incumbent)) key.incumbent = -1;
}

absl::Status Tuner::Verify(Key& key) {
  const OpSpec& spec = work_.op->spec();
  const Candidate incumbent = key.incumbent == 0 ? key.candidates.front() : Candidate{};
  for (const AxisVector& axes : key.shapes) {
    const Axes named = NamedAxes(spec, axes);
    std::vector<Candidate> passed;
    for (const Candidate& candidate : key.candidates) {
      verifying_->Begin(StrCat(CandidateText(candidate), " at ", AxesText(named)));
      KVR_ASSIGN_OR_RETURN(std::string path, files_->Add(*BuiltOf(candidate)->binary));
      // One input set; whoever is measured is checked on the others under its own launches.
      KVR_ASSIGN_OR_RETURN(const Verdict verdict,
                           worker_->Verify({spec.name, named, {seeds_.front()}},
                                           ItemOf(candidate, std::move(path))));
      Trial& trial = TrialOf(candidate, axes);
      trial.status = verdict.status;
      trial.reason = verdict.reason;
      trial.max_abs = verdict.max_abs;
      trial.max_rel = verdict.max_rel;
      if (verdict.status == TrialStatus::kPassed) {
        passed.push_back(candidate);
      } else {
        verifying_->Note(StrCat(CandidateText(candidate), ": ", TrialStatusName(verdict.status),
                                ": ", verdict.reason));
      }
      report_.respawns = worker_->respawns();
      verifying_->Done();
    }
    key.candidates = std::move(passed);
  }
  if (key.candidates.empty() || !(key.candidates.front() == incumbent)) key.incumbent = -1;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<WorkItem>> Tuner::Items(const Key& key) {
  std::vector<WorkItem> items;
  for (const Candidate& candidate : key.candidates) {
    KVR_ASSIGN_OR_RETURN(std::string path, files_->Add(*BuiltOf(candidate)->binary));
    items.push_back(ItemOf(candidate, std::move(path)));
  }
  return items;
}

absl::Status Tuner::Measure(Key& key, TunedKey& tuned) {
  const OpSpec& spec = work_.op->spec();
  const int count = static_cast<int>(key.candidates.size());
  const double epoch_us = request_.epoch_us >= 0          ? request_.epoch_us
                          : report_.device.kind == "cuda" ? 100
                                                          : 0;
  KVR_ASSIGN_OR_RETURN(const std::vector<WorkItem> items, Items(key));
  std::unique_ptr<WorkerSampler> sampler;
  const auto open = [&](size_t shape) -> absl::Status {
    if (sampler != nullptr && key.shapes.size() == 1) return absl::OkStatus();
    sampler.reset();
    KVR_ASSIGN_OR_RETURN(
        sampler,
        WorkerSampler::Open(*worker_, {spec.name, NamedAxes(spec, key.shapes[shape]), seeds_},
                            items, epoch_us));
    report_.session = sampler->info();
    return absl::OkStatus();
  };
  // A subject that failed while being timed takes no further part.
  const auto condemn = [&](size_t shape, int i) {
    if (sampler->verdict(i).status == TrialStatus::kPassed) return false;
    Trial& trial = TrialOf(key.candidates[i], key.shapes[shape]);
    if (trial.status == TrialStatus::kPassed) {
      trial.status = sampler->verdict(i).status;
      trial.reason = sampler->verdict(i).reason;
      measuring_->Note(StrCat(CandidateText(key.candidates[i]), ": ", TrialStatusName(trial.status),
                              ": ", trial.reason));
    }
    return true;
  };

  std::vector<int> everyone(count);
  for (int i = 0; i < count; ++i) everyone[i] = i;
  std::vector<std::vector<double>> screened(key.shapes.size(), std::vector<double>(count, kNan));
  for (size_t shape = 0; shape < key.shapes.size(); ++shape) {
    measuring_->Begin(
        StrCat("screening ", count, " configs at ", AxesText(NamedAxes(spec, key.shapes[shape]))));
    KVR_RETURN_IF_ERROR(open(shape));
    KVR_ASSIGN_OR_RETURN(const SampleTable table,
                         sampler->Sample(everyone, request_.pick.screen_rounds));
    for (int i = 0; i < count; ++i) {
      if (condemn(shape, i)) continue;
      screened[shape][i] = Median(Column(table, i));
      TrialOf(key.candidates[i], key.shapes[shape]).screen_us = screened[shape][i];
    }
    measuring_->Done();
  }
  const std::vector<double> screen = CombineShapes(screened);
  tuned.tried = static_cast<int>(
      std::count_if(screen.begin(), screen.end(), [](double us) { return std::isfinite(us); }));
  const std::vector<int> survivors = Screen(screen, key.incumbent, request_.pick);

  std::vector<std::vector<double>> finals(key.shapes.size(), std::vector<double>(count, kNan));
  for (size_t shape = 0; shape < key.shapes.size(); ++shape) {
    KVR_RETURN_IF_ERROR(open(shape));
    SampleTable table;
    for (int slice = 0; slice < kMeasureSlices; ++slice) {
      measuring_->Begin(StrCat("racing ", survivors.size(), " configs at ",
                               AxesText(NamedAxes(spec, key.shapes[shape]))));
      const int rounds = (request_.pick.rounds + slice) / kMeasureSlices;
      if (rounds > 0) {
        KVR_ASSIGN_OR_RETURN(SampleTable part, sampler->Sample(survivors, rounds));
        table.insert(table.end(), part.begin(), part.end());
      }
      measuring_->Done();
    }
    KVR_RETURN_IF_ERROR(sampler->Check(survivors));
    for (size_t s = 0; s < survivors.size(); ++s) {
      if (condemn(shape, survivors[s])) continue;
      const std::vector<double> samples = Column(table, static_cast<int>(s));
      Trial& trial = TrialOf(key.candidates[survivors[s]], key.shapes[shape]);
      finals[shape][survivors[s]] = trial.median_us = Median(samples);
      trial.spread = RelativeSpread(samples);
    }
  }
  report_.respawns = worker_->respawns();

  const std::vector<double> medians = CombineShapes(finals);
  const Picked picked = PickWinner(medians, key.incumbent, request_.pick.minimum_gain);
  tuned.incumbent_kept = picked.incumbent_kept;
  tuned.gain = picked.gain;
  if (key.incumbent >= 0) {
    tuned.incumbent_variant = key.candidates[key.incumbent].variant->name;
    tuned.incumbent_config = key.candidates[key.incumbent].config;
    tuned.incumbent_us = medians[key.incumbent];
  }
  if (picked.winner < 0) {
    tuned.note = "no config gave a measurement";
    return absl::OkStatus();
  }
  const Candidate& winner = key.candidates[picked.winner];
  tuned.variant = winner.variant->name;
  tuned.config = winner.config;
  tuned.median_us = medians[picked.winner];
  return Publish(key, winner, tuned);
}

absl::Status Tuner::Publish(const Key& key, const Candidate& winner, TunedKey& tuned) {
  if (work_.overridden) {
    tuned.note = "not published: --set or the environment pins tunables";
    return absl::OkStatus();
  }
  if (request_.selection_file.empty() || !request_.publish) {
    tuned.note = "not published: not asked to";
    return absl::OkStatus();
  }
  Selection selection;
  selection.variant = winner.variant;
  selection.config = winner.config;
  selection.binary = BuiltOf(winner)->binary->key;
  selection.evidence.median_us = tuned.median_us;
  selection.evidence.tried = tuned.tried;
  selection.evidence.device = report_.device.name;
  selection.evidence.date =
      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
  KVR_ASSIGN_OR_RETURN(
      const GenerationPtr published,
      PublishSelection(request_.selection_file, bench_.catalog, report_.device, work_.op->name(),
                       *policy_, key.bucket, std::move(selection)));
  report_.digest = published->digest().Hex();
  tuned.published = true;
  return absl::OkStatus();
}

absl::Status Tuner::RunKey(Key& key) {
  const OpSpec& spec = work_.op->spec();
  TunedKey tuned;
  tuned.key = policy_->Named(key.bucket);
  for (const AxisVector& axes : key.shapes) tuned.shapes.push_back(NamedAxes(spec, axes));
  DropRepeats(key);
  KVR_RETURN_IF_ERROR(Verify(key));
  if (key.candidates.empty()) {
    tuned.note = "no config passed; the baseline serves this key";
  } else {
    KVR_RETURN_IF_ERROR(Measure(key, tuned));
  }
  if (!tuned.variant.empty()) {
    measuring_->Note(
        StrCat(AxesText(tuned.key), ": ", tuned.variant, " {", ConfigText(tuned.config), "}"));
  }
  report_.selections.push_back(std::move(tuned));
  return absl::OkStatus();
}

absl::StatusOr<TuneReport> Tuner::Run() {
  KVR_RETURN_IF_ERROR(Prepare());
  KVR_RETURN_IF_ERROR(MakeKeys());
  Build();
  size_t verifications = 0, measurements = 0;
  for (const Key& key : keys_) {
    verifications += key.candidates.size() * key.shapes.size();
    measurements += (1 + kMeasureSlices) * key.shapes.size();
  }
  verifying_ = std::make_unique<PhaseProgress>(bench_.progress, Phase::kVerify,
                                               static_cast<int>(verifications));
  measuring_ = std::make_unique<PhaseProgress>(bench_.progress, Phase::kMeasure,
                                               static_cast<int>(measurements));
  for (Key& key : keys_) {
    const absl::Status status = Cancelled(bench_) ? absl::CancelledError() : RunKey(key);
    if (absl::IsCancelled(status)) {
      report_.cancelled = true;
      break;
    }
    if (absl::IsResourceExhausted(status) && keys_.size() > 1) {
      TunedKey& skipped = report_.selections.emplace_back();
      skipped.key = policy_->Named(key.bucket);
      skipped.note = std::string(What(status));
      continue;
    }
    KVR_RETURN_IF_ERROR(status);
  }
  report_.respawns = worker_->respawns();
  return std::move(report_);
}

}  // namespace

absl::StatusOr<TuneReport> TuneOp(const Workbench& bench, const TuneRequest& request) {
  return Tuner(bench, request).Run();
}

}  // namespace kvr
