// SPDX-License-Identifier: Apache-2.0
//
// The run behind TuneOp: the request becomes a key policy (tune_policy.cc) and keys with candidates
// (tune.cc, tune_space.cc); each key is verified (tune_key.cc), raced (tune_measure.cc) and
// published (tune_publish.cc). At last the keys are held against one config for all of them
// (tune_single.cc).
//
// Threading: as TuneOp.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "core/key_policy.h"
#include "registry/selection_file.h"
#include "tuner/ab.h"
#include "tuner/budget.h"
#include "tuner/decide.h"
#include "tuner/publish.h"
#include "tuner/single.h"
#include "tuner/tune.h"
#include "tuner/work.h"

namespace kvr {

// Of a key that the budget did not reach.
inline constexpr char kNoTime[] = "the budget ended before anything was measured";

// The noise band that a key's verdict is held against.
struct KeyBand {
  double band = stats::kLeastBand;
  std::string source;   // for people; empty: none is needed
  std::string trouble;  // not empty: there is none, and why
};

// One tuning key and its contestants.
struct Key {
  BucketedKey bucket;
  std::vector<AxisVector> shapes;  // representatives: verified and measured
  std::vector<AxisVector> proofs;  // other shapes the key covers: verified only
  std::vector<Candidate> candidates;
  int incumbent = -1;      // position in candidates
  Candidate selected;      // the incumbent, whatever became of it; a null variant: there is none
  bool from_file = false;  // the selection file says so; else it is the op's baseline
  absl::Status not_asked_for;  // the file selects an approximate variant without the tune's opt-in
  KeyBand band;
  std::vector<Behind> behind;  // of all that raced, now or before
};

// What is published when all of a file's keys are known.
struct HeldBack {
  size_t tuned;  // of the report's selections
  Publication publication;
  ledger::Publication record;
};

class Tuner {
 public:
  Tuner(const Workbench& bench, const TuneRequest& request)
      : bench_(bench),
        request_(request),
        nobody_(nullptr, {}, nullptr),
        journal_(bench.journal == nullptr ? nobody_ : *bench.journal),
        budget_(absl::Seconds(request.budget_s), absl::Now()) {}
  absl::StatusOr<TuneReport> Run();

 private:
  friend class KeyWatch;

  absl::Status Prepare();
  absl::Status ReadSelections();
  absl::Status ChoosePolicy();
  absl::Status SkipOtherPolicies();
  absl::Status MakeKeys();
  void AddProofs(const std::vector<AxisVector>& asked, Key& key);
  void AddIncumbent(Key& key);
  absl::Status SkipNotAskedFor();
  void SkipRejected(Key& key);
  void PruneKey(Key& key);
  void Build();
  absl::Status RunKey(Key& key, int verified, const KeyShare& share);
  absl::Status Verify(Key& key, absl::Time until);
  void DropRepeats(Key& key);
  absl::Status Measure(Key& key, const KeyShare& share, TunedKey& tuned);
  absl::Status TakeBands();
  absl::StatusOr<std::vector<BandInUse>> BandsAt(const std::vector<AxisVector>& at,
                                                 const WorkItem& incumbent, absl::Time until);
  absl::StatusOr<KeyBand> BandOf(const Key& key, const WorkItem& incumbent, absl::Time until);
  void AddBehind(const KeyDecision& decision, Key& key) const;
  void Tell(const Key& key, const KeyDecision& decision, const KeyBand& band, TunedKey& tuned);
  absl::Status Publish(const Key& key, const Candidate& winner, TunedKey& tuned);
  std::string WhyNotPublished(const Key& key, const TunedKey& tuned) const;
  Publication PublicationOf(const Key& key, Selection selection) const;
  const Generation::Op* InFile() const;  // what the file has of the op; null: nothing
  // The file has selections of the op that are keyed by another policy than this tune's.
  bool Rekeys() const;
  std::string RekeyedText() const;  // "topk:pow2 ({topk=512}: w8)"
  absl::Status PublishHeldBack();
  absl::Status Published(const absl::StatusOr<GenerationPtr>& published, ledger::Publication record,
                         TunedKey& tuned);
  void NoteLosses();

  // Keys that the op's own policy would not tell apart, where there are several.
  using KeyGroup = std::vector<size_t>;
  std::vector<KeyGroup> Groups() const;
  absl::Status CompareWithSingles(const std::vector<KeyGroup>& groups);
  absl::Status CompareWithSingle(const KeyGroup& group, PhaseProgress& progress);
  absl::StatusOr<WorkItem> BuiltItem(const Candidate& candidate);
  // `sides`: the single choice, the key's own.
  absl::StatusOr<AbShape> DuelWithSingle(Key& key, const Axes& axes,
                                         const std::array<Candidate, 2>& sides);
  void RecordSingle(const SingleAt& at, const AxisVector& axes, const AbShape& duel,
                    const std::array<Candidate, 2>& sides);

  // Verifications that a key may take, whatever drops out of it.
  static int VerifySteps(const Key& key) {
    return static_cast<int>(key.candidates.size() * (key.shapes.size() + key.proofs.size()));
  }
  std::vector<Axes> Named(const std::vector<AxisVector>& shapes) const;
  void Note(std::string_view line) {
    if (bench_.progress != nullptr) bench_.progress->Note(line);
  }
  void Cut(std::string what);  // by the budget: reported and noted
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
  std::string NoneRequestedPassed() const;
  Trial& TrialOf(const Candidate& candidate, const AxisVector& axes);
  const Trial* FindTrial(const Candidate& candidate, const Axes& axes) const;  // null: none
  // The ledger's record of a candidate at a shape, for the caller to complete.
  ledger::Trial RecordOf(const Candidate& candidate, const AxisVector& axes,
                         std::string_view stage) const;
  const absl::StatusOr<Built>& BuiltOf(const Candidate& candidate) const;
  absl::StatusOr<std::vector<WorkItem>> Items(const Key& key);
  SessionOptions MeasuringOptions() const {
    return {request_.mode, request_.epoch_us, sentinel_path_};
  }

  const Workbench& bench_;
  const TuneRequest& request_;
  Journal nobody_;  // told where the bench has no journal
  Journal& journal_;
  const Budget budget_;
  TuneReport report_;
  Work work_;
  std::vector<uint64_t> seeds_;
  std::unique_ptr<WorkerClient> worker_;
  std::unique_ptr<BinaryFiles> files_;
  std::string sentinel_path_;
  GenerationPtr incumbents_;  // may be null
  std::vector<HeldBack> held_back_;
  size_t singles_held_ = 0;
  std::vector<DroppedSelection> dropped_;  // what the file holds besides
  std::optional<KeyPolicy> policy_;
  std::vector<Key> keys_;
  std::vector<Candidate> all_;                                 // every candidate of any key, once
  std::map<std::pair<const Variant*, Config>, size_t> index_;  // into all_ and built_
  std::vector<absl::StatusOr<Built>> built_;
  std::unique_ptr<PhaseProgress> verifying_;
  std::set<std::string> noted_;  // kinds of failures
};

}  // namespace kvr
