// SPDX-License-Identifier: Apache-2.0
#include "tuner/stats/racing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/status.h"
#include "tuner/stats/quick.h"

namespace kvr::stats {
namespace {

class Racer {
 public:
  Racer(Sampler& sampler, const RaceOptions& options, const KeepRacing& keep_racing)
      : sampler_(sampler), options_(options), keep_racing_(keep_racing) {
    alive_.resize(static_cast<size_t>(sampler.subjects()));
    std::iota(alive_.begin(), alive_.end(), 0);
    samples_.resize(alive_.size());
    result_.medians.assign(alive_.size(), std::numeric_limits<double>::quiet_NaN());
  }

  absl::StatusOr<RaceResult> Run() {
    KVR_RETURN_IF_ERROR(Screen());
    KVR_RETURN_IF_ERROR(Halve());
    KVR_RETURN_IF_ERROR(Final());
    Rank();
    if (!alive_.empty()) result_.winner = alive_.front();
    return std::move(result_);
  }

 private:
  void Begin(std::string_view name) {
    result_.stages.push_back({name, 0, alive_, {}});
    stage_ = &result_.stages.back();
  }

  bool stopped() const { return stopped_; }

  // One round of all that are left. Who fails in it is out.
  absl::Status Round() {
    if (stopped_ || (keep_racing_ && !keep_racing_())) {
      stopped_ = true;
      return absl::OkStatus();
    }
    KVR_ASSIGN_OR_RETURN(const SampleTable table, sampler_.Sample(alive_, 1));
    ++stage_->rounds;
    result_.samples += static_cast<int>(alive_.size());
    std::vector<int> kept;
    for (size_t i = 0; i < alive_.size(); ++i) {
      const double us = table.front()[i];
      if (std::isfinite(us) && us > 0) {
        samples_[alive_[i]].push_back(us);
        kept.push_back(alive_[i]);
      } else {
        samples_[alive_[i]].clear();
        stage_->left.push_back(alive_[i]);
      }
    }
    alive_ = std::move(kept);
    return absl::OkStatus();
  }

  // Best first; equals by number. Before the first round of a stage, as the last one left it.
  void Rank() {
    for (int subject : alive_) {
      if (!samples_[subject].empty()) result_.medians[subject] = Median(samples_[subject]);
    }
    std::sort(alive_.begin(), alive_.end(), [&](int a, int b) {
      const double ma = result_.medians[a], mb = result_.medians[b];
      return ma != mb ? ma < mb : a < b;
    });
  }

  void Keep(size_t count) {
    stage_->left.insert(stage_->left.end(), alive_.begin() + static_cast<ptrdiff_t>(count),
                        alive_.end());
    alive_.resize(count);
  }

  absl::Status Screen() {
    Begin("screen");
    for (int i = 0; i < options_.screen_rounds && !stopped(); ++i) KVR_RETURN_IF_ERROR(Round());
    Rank();
    size_t fast = 0;
    while (fast < alive_.size() && result_.medians[alive_[fast]] <=
                                       options_.screen_factor * result_.medians[alive_.front()]) {
      ++fast;
    }
    Keep(fast);
    return absl::OkStatus();
  }

  absl::Status Halve() {
    const auto finalists = static_cast<size_t>(options_.finalists);
    for (double rounds = options_.first_rounds; alive_.size() > finalists && !stopped();
         rounds *= options_.growth) {
      Begin("halve");
      for (int i = 0; i < std::lround(rounds) && !stopped(); ++i) KVR_RETURN_IF_ERROR(Round());
      if (stopped()) break;
      Rank();
      Keep(std::min(alive_.size(), std::max(finalists, (alive_.size() + 1) / 2)));
    }
    return absl::OkStatus();
  }

  absl::Status Final() {
    if (alive_.size() < 2 || stopped()) return absl::OkStatus();
    Begin("final");
    for (int subject : alive_) samples_[subject].clear();
    while (alive_.size() > 1 && stage_->rounds < options_.final_rounds) {
      KVR_RETURN_IF_ERROR(Round());
      if (stopped()) break;
      Rank();
      DropLosers();
    }
    return absl::OkStatus();
  }

  // Against the best so far, pair by pair over all rounds of the final.
  void DropLosers() {
    const std::vector<double>& best = samples_[alive_.front()];
    size_t kept = std::min<size_t>(1, alive_.size());
    for (size_t i = 1; i < alive_.size(); ++i) {
      MedianInterval interval(options_.alpha / options_.finalists);
      const std::vector<double>& other = samples_[alive_[i]];
      for (size_t round = 0; round < best.size(); ++round) {
        interval.Add(LogRatio(best[round], other[round]));
      }
      if (interval.interval().low > options_.band) {
        stage_->left.push_back(alive_[i]);
      } else {
        alive_[kept++] = alive_[i];
      }
    }
    alive_.resize(kept);
  }

  Sampler& sampler_;
  const RaceOptions options_;
  const KeepRacing& keep_racing_;
  std::vector<int> alive_;
  std::vector<std::vector<double>> samples_;  // by subject: the rounds shared by all alive
  RaceResult result_;
  RaceStage* stage_ = nullptr;
  bool stopped_ = false;
};

}  // namespace

absl::StatusOr<RaceResult> Race(Sampler& sampler, const RaceOptions& options,
                                const KeepRacing& keep_racing) {
  return Racer(sampler, options, keep_racing).Run();
}

}  // namespace kvr::stats
