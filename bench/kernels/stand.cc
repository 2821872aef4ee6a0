// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/stand.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "core/status.h"

namespace kvr::bench {

absl::StatusOr<std::unique_ptr<Stand>> Stand::Open(WorkerClient& client, const Forge& forge,
                                                   StandPlan plan) {
  std::unique_ptr<Stand> stand(new Stand(std::move(plan)));
  const StandPlan& own = stand->plan_;
  SessionOptions options;
  options.mode = own.mode;
  options.sentinel_path = forge.sentinel_path();
  std::vector<WorkItem> items;
  for (const Contender& contender : own.contenders) items.push_back(contender.item);
  KVR_ASSIGN_OR_RETURN(stand->sampler_,
                       WorkerSampler::Open(client, {own.op->name(), own.axes, own.seeds},
                                           std::move(items), options));
  stand->kept_.resize(own.contenders.size());
  std::iota(stand->kept_.begin(), stand->kept_.end(), 0);
  return stand;
}

absl::StatusOr<stats::RaceResult> Stand::Race(const stats::RaceOptions& options,
                                              const stats::KeepRacing& keep_racing) {
  return stats::Race(*sampler_, options, keep_racing);
}

void Stand::Keep(std::vector<int> contenders) { kept_ = std::move(contenders); }

bool Stand::Passed(int contender) const {
  return finding(contender).status == TrialStatus::kPassed;
}

absl::Status Stand::Check() {
  KVR_RETURN_IF_ERROR(sampler_->Check(kept_));
  std::erase_if(kept_, [&](int contender) { return !Passed(contender); });
  return absl::OkStatus();
}

absl::Status Stand::Sample(int rounds) {
  if (kept_.empty()) return absl::OkStatus();
  KVR_ASSIGN_OR_RETURN(const SampleTable table, sampler_->Sample(kept_, rounds));
  for (size_t i = 0; i < kept_.size(); ++i) {
    for (const double us : Column(table, static_cast<int>(i))) {
      if (std::isfinite(us)) us_[kept_[i]].push_back(us);
    }
  }
  std::erase_if(kept_, [&](int contender) { return !Passed(contender); });
  return absl::OkStatus();
}

}  // namespace kvr::bench
