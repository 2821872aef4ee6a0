// SPDX-License-Identifier: Apache-2.0
//
// kvr tune, key by key. A key is finished (verified, measured, published) before the next begins,
// so that an interrupted run keeps every finished one.
#include "tuner/tune.h"

#include <algorithm>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "tuner/feasibility.h"
#include "tuner/publish.h"
#include "tuner/tuner.h"

namespace kvr {

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

void Tuner::Fail(const Candidate& candidate, const AxisVector& axes, TrialStatus status,
                 std::string reason) {
  const std::string kind =
      StrCat(candidate.variant->name, TrialStatusName(status), ReasonKind(reason));
  if (bench_.progress != nullptr && noted_.insert(kind).second) {
    bench_.progress->Note(
        StrCat(CandidateText(candidate), ": ", TrialStatusName(status), ": ", reason));
  }
  Trial& trial = TrialOf(candidate, axes);
  trial.status = status;
  trial.reason = std::move(reason);
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
  KVR_RETURN_IF_ERROR(work_.op->operation->Load());  // what does not load here, no worker is given
  report_.skipped = work_.skipped;
  KVR_ASSIGN_OR_RETURN(files_, BinaryFiles::Create());
  if (!request_.selection_file.empty()) {
    KVR_ASSIGN_OR_RETURN(LoadedSelections file,
                         ReadIncumbents(request_.selection_file, bench_.catalog, report_.device));
    incumbents_ = std::move(file.generation);
    dropped_ = std::move(file.dropped);
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

// A key stands for shapes that are never measured, and a launch at any of them takes what is
// selected. So every candidate is also verified at the shape asked for, and at an awkward member of
// the bucket: one below the representative, which tiles rarely divide, with a handful of whatever
// the key does not hold, so that generators can mix full, part-filled and empty rows.
void Tuner::AddProofs(const AxisVector& asked, Key& key) {
  constexpr int64_t kMixed = 8;
  const OpSpec& spec = work_.op->spec();
  const Axes keyed = policy_->Named(key.bucket);
  AxisVector awkward = asked;
  for (size_t i = 0; i < spec.axes.size(); ++i) {
    const AxisSpec& axis = spec.axes[i];
    if (axis.is_const) continue;
    if (const auto it = keyed.find(axis.name); it != keyed.end()) {
      awkward[i] = std::max<int64_t>(it->second - 1, 1);
    } else if (axis.default_value >= kMixed) {
      awkward[i] = std::max(awkward[i], kMixed);
    }
  }
  for (const AxisVector& shape : {asked, awkward}) {
    const bool covered =
        policy_->Bucket(shape) == key.bucket && ResolveAxes(spec, NamedAxes(spec, shape)).ok();
    const auto known = [&](const std::vector<AxisVector>& shapes) {
      return std::find(shapes.begin(), shapes.end(), shape) != shapes.end();
    };
    if (covered && !known(key.shapes) && !known(key.proofs)) key.proofs.push_back(shape);
  }
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
    AddProofs(axes, *key);
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
          Drop(candidate, axes, Reason(fits), !IsMisfit(fits));
        }
      }
      key.candidates = std::move(kept);
      continue;
    }
    for (const Pruned& pruned : feasible.pruned) {
      Drop(pruned.candidate, axes, pruned.reason, pruned.fault);
    }
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
        Fail(candidate, axes, TrialStatus::kCompileError, Reason(built.status()));
      }
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
      Drop(candidate, key.shapes[shape - 1], Reason(fits), !IsMisfit(fits));
      continue;
    }
    const auto same = [&](size_t i) {
      return !candidate.variant->has_launch_function && kept_keys[i] == built->binary->key &&
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

absl::StatusOr<TuneReport> Tuner::Run() {
  KVR_RETURN_IF_ERROR(Prepare());
  KVR_RETURN_IF_ERROR(MakeKeys());
  Build();
  int verifications = 0, measurements = 0;
  for (const Key& key : keys_) {
    verifications += VerifySteps(key);
    measurements += MeasureSteps(key);
  }
  verifying_ = std::make_unique<PhaseProgress>(bench_.progress, Phase::kVerify, verifications);
  measuring_ = std::make_unique<PhaseProgress>(bench_.progress, Phase::kMeasure, measurements);
  NoteLosses();
  verifications = measurements = 0;  // those of the keys begun
  for (Key& key : keys_) {
    verifications += VerifySteps(key);
    measurements += MeasureSteps(key);
    const absl::Status status =
        Cancelled(bench_) ? absl::CancelledError() : RunKey(key, verifications);
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
    measuring_->Reach(measurements);
  }
  report_.respawns = worker_->respawns();
  return std::move(report_);
}

absl::StatusOr<TuneReport> TuneOp(const Workbench& bench, const TuneRequest& request) {
  return Tuner(bench, request).Run();
}

}  // namespace kvr
