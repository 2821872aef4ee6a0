// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/forge.h"

#include <algorithm>
#include <set>

#include "core/status.h"
#include "core/strings.h"
#include "tuner/feasibility.h"
#include "tuner/work.h"
#include "tuner/worker/sentinel.h"

namespace kvr::bench {
namespace {

std::pair<const Variant*, Config> KeyOf(const Candidate& candidate) {
  return {candidate.variant.get(), CompileScope(candidate.config, candidate.variant->tunables)};
}

// One entry for each kind of reason of a variant.
class Reasons {
 public:
  explicit Reasons(std::vector<LeftOut>* left_out) : left_out_(left_out) {}
  void Add(const Candidate& candidate, std::string reason) {
    if (!kinds_.emplace(candidate.variant.get(), ReasonKind(reason)).second) return;
    left_out_->push_back(
        {candidate.variant->name, ConfigText(candidate.config), std::move(reason)});
  }

 private:
  std::vector<LeftOut>* const left_out_;
  std::set<std::pair<const Variant*, std::string>> kinds_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Forge>> Forge::Create(const Workbench& bench, DeviceInfo device) {
  std::unique_ptr<Forge> forge(new Forge(bench, std::move(device)));
  KVR_ASSIGN_OR_RETURN(forge->files_, BinaryFiles::Create());
  const absl::StatusOr<BinaryPtr> sentinel = BuildSentinel(bench.jit, forge->device_.target);
  if (sentinel.ok()) {
    KVR_ASSIGN_OR_RETURN(forge->sentinel_path_, forge->files_->Add(**sentinel));
  }
  return forge;
}

void Forge::BuildMissing(const Catalog::Op& op, absl::Span<const Candidate> candidates,
                         const std::function<bool()>& keep_building) {
  std::vector<Candidate> missing;
  for (const Candidate& candidate : DistinctBuilds(candidates)) {
    if (built_.find(KeyOf(candidate)) == built_.end()) missing.push_back(candidate);
  }
  PhaseProgress progress(bench_.progress, Phase::kCompile, static_cast<int>(missing.size()));
  std::vector<absl::StatusOr<Built>> built =
      BuildAll(bench_, op.spec(), missing, device_.target, progress, keep_building);
  for (size_t i = 0; i < missing.size(); ++i) {
    if (absl::IsDeadlineExceeded(built[i].status())) continue;  // another shape may have the time
    built_.emplace(KeyOf(missing[i]), std::move(built[i]));
  }
}

absl::Status Forge::Build(const Catalog::Op& op, const Axes& axes,
                          const std::vector<Candidate>& candidates, size_t needed,
                          const std::function<bool()>& keep_building) {
  KVR_ASSIGN_OR_RETURN(const AxisVector shape, ResolveAxes(op.spec(), axes));
  const auto build = [&](absl::Span<const Candidate> some, const std::function<bool()>& keep) {
    std::vector<Candidate> supported;
    for (const Candidate& candidate : some) {
      if (candidate.variant->Supports(device_.target)) supported.push_back(candidate);
    }
    BuildMissing(op, PruneStatically(supported, shape, device_).candidates, keep);
  };
  const absl::Span<const Candidate> all = candidates;
  build(all.subspan(0, needed), nullptr);
  build(all.subspan(std::min(needed, all.size())), keep_building);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Contender>> Forge::Ready(const Catalog::Op& op, const Axes& axes,
                                                    const std::vector<Candidate>& candidates,
                                                    std::vector<LeftOut>* left_out) {
  KVR_ASSIGN_OR_RETURN(const AxisVector shape, ResolveAxes(op.spec(), axes));
  Reasons reasons(left_out);
  std::vector<Candidate> supported;
  for (const Candidate& candidate : candidates) {
    std::string reason;
    if (!candidate.variant->Supports(device_.target, &reason)) {
      reasons.Add(candidate, std::move(reason));
    } else {
      supported.push_back(candidate);
    }
  }
  Feasible feasible = PruneStatically(supported, shape, device_);
  std::set<const Variant*> fits;
  for (const Candidate& candidate : feasible.candidates) fits.insert(candidate.variant.get());
  for (const Pruned& pruned : feasible.pruned) {
    // A config that does not fit is news only where no other of its variant does.
    if (fits.count(pruned.candidate.variant.get()) == 0) {
      reasons.Add(pruned.candidate, pruned.reason);
    }
  }
  std::vector<Contender> ready;
  for (size_t i = 0; i < feasible.candidates.size(); ++i) {
    const Candidate& candidate = feasible.candidates[i];
    const auto found = built_.find(KeyOf(candidate));
    if (found == built_.end()) {
      reasons.Add(candidate, "there was no time to build it");
      continue;
    }
    const absl::StatusOr<Built>& built = found->second;
    if (!built.ok()) {
      reasons.Add(candidate, Reason(built.status()));
      continue;
    }
    const absl::Status fit =
        CheckResources(*candidate.variant, feasible.plans[i], *built->binary, device_);
    if (!fit.ok()) {
      reasons.Add(candidate, Reason(fit));
      continue;
    }
    KVR_ASSIGN_OR_RETURN(std::string path, files_->Add(*built->binary));
    ready.push_back({candidate, ItemOf(candidate, std::move(path))});
  }
  return ready;
}

}  // namespace kvr::bench
