// SPDX-License-Identifier: Apache-2.0
//
// The run behind TuneOp: the request becomes keys with candidates (tune.cc); each key is verified,
// raced and published (tune_key.cc).
//
// Threading: as TuneOp.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/key_policy.h"
#include "registry/selection_file.h"
#include "tuner/publish.h"
#include "tuner/tune.h"
#include "tuner/work.h"

namespace kvr {

// Of the final rounds: how often progress and SIGINT get a look.
inline constexpr int kMeasureSlices = 5;

// One tuning key and its contestants.
struct Key {
  BucketedKey bucket;
  std::vector<AxisVector> shapes;  // representatives: verified and measured
  std::vector<AxisVector> proofs;  // other shapes the key covers: verified only
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
  void AddProofs(const AxisVector& asked, Key& key);
  void PruneKey(Key& key);
  void Build();
  absl::Status RunKey(Key& key, int verified);  // `verified`: the steps then behind it
  absl::Status Verify(Key& key);
  void DropRepeats(Key& key);
  absl::Status Measure(Key& key, TunedKey& tuned);
  absl::Status Publish(const Key& key, const Candidate& winner, TunedKey& tuned);
  Publication PublicationOf(const Key& key, Selection selection) const;
  void NoteLosses();

  // Steps of a phase that a key may take, whatever drops out of it.
  static int VerifySteps(const Key& key) {
    return static_cast<int>(key.candidates.size() * (key.shapes.size() + key.proofs.size()));
  }
  static int MeasureSteps(const Key& key) {
    return static_cast<int>((2 + kMeasureSlices) * key.shapes.size());
  }
  void Prune(const Candidate& candidate, const AxisVector& axes, std::string reason) {
    report_.pruned.push_back({candidate.variant->name, candidate.config, std::move(reason),
                              NamedAxes(work_.op->spec(), axes)});
  }
  // Records a failure, and notes the first of its kind.
  void Fail(const Candidate& candidate, const AxisVector& axes, TrialStatus status,
            std::string reason);
  // Leaves a config out whose plan cannot be had: as a misfit, or as a failure.
  void Drop(const Candidate& candidate, const AxisVector& axes, std::string reason, bool fault) {
    if (fault) {
      Fail(candidate, axes, TrialStatus::kRuntimeError, std::move(reason));
    } else {
      Prune(candidate, axes, std::move(reason));
    }
  }
  // Did a config of a variant that the request names pass all it was put to?
  bool AnyRequestedPassed(const Key& key);
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
  GenerationPtr incumbents_;               // may be null
  std::vector<DroppedSelection> dropped_;  // what the file holds besides
  std::optional<KeyPolicy> policy_;
  std::vector<Key> keys_;
  std::vector<Candidate> all_;                                 // every candidate of any key, once
  std::map<std::pair<const Variant*, Config>, size_t> index_;  // into all_ and built_
  std::vector<absl::StatusOr<Built>> built_;
  std::unique_ptr<PhaseProgress> verifying_, measuring_;
  std::set<std::string> noted_;  // kinds of failures
};

}  // namespace kvr
