// SPDX-License-Identifier: Apache-2.0
//
// One operation at one shape, in a worker of its own: contenders loaded together and timed by
// turns on the same inputs, as serving runs them (tuner/worker/measure.h).
//
// Several stands make one measurement: each samples a few rounds, then the next does, so that what
// changes on the device over the run touches all of them alike. Only one has work at a time.
//
// Threading: as WorkerClient, which outlives the stand and has no other session meanwhile. Errors:
// not a contender's; what one does wrong is its finding.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/kernels/forge.h"
#include "tuner/stats/racing.h"

namespace kvr::bench {

struct StandPlan {
  const Catalog::Op* op = nullptr;
  Axes axes;                    // every axis
  std::vector<uint64_t> seeds;  // of the input sets
  std::vector<Contender> contenders;
  MeasureMode mode;
};

class Stand {
 public:
  static absl::StatusOr<std::unique_ptr<Stand>> Open(WorkerClient& client, const Forge& forge,
                                                     StandPlan plan);

  // From many contenders to an order, best first: the race of kvr tune. Its samples are forgotten:
  // who was chosen by them is flattered by them.
  absl::StatusOr<stats::RaceResult> Race(const stats::RaceOptions& options,
                                         const stats::KeepRacing& keep_racing = nullptr);
  // Takes part in what follows; the others are out.
  void Keep(std::vector<int> contenders);
  // Are the numbers right, under the launches that are timed? Who is wrong has a finding, and goes.
  absl::Status Check();
  absl::Status Sample(int rounds);

  bool Passed(int contender) const;
  const Finding& finding(int contender) const { return sampler_->finding(contender); }
  const std::vector<double>& us(int contender) const { return us_[contender]; }
  const Contender& contender(int index) const { return plan_.contenders[index]; }
  int contenders() const { return static_cast<int>(plan_.contenders.size()); }
  const std::vector<int>& kept() const { return kept_; }
  const SessionInfo& info() const { return sampler_->info(); }
  std::string trouble() const { return sampler_->trouble(); }

 private:
  explicit Stand(StandPlan plan) : plan_(std::move(plan)), us_(plan_.contenders.size()) {}
  StandPlan plan_;
  std::unique_ptr<WorkerSampler> sampler_;
  std::vector<int> kept_;
  std::vector<std::vector<double>> us_;
};

}  // namespace kvr::bench
