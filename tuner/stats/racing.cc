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
  Racer(Sampler& sampler, const RaceOptions& options, const KeepRacing& keep_racing,
        RaceObserver* observer)
      : sampler_(sampler), options_(options), keep_racing_(keep_racing), observer_(observer) {
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
    result_.finalists = alive_;
    result_.ranking = alive_;
    for (auto stage = result_.stages.rbegin(); stage != result_.stages.rend(); ++stage) {
      std::vector<int> left;
      for (int subject : stage->left) {
        if (std::isfinite(result_.medians[subject])) left.push_back(subject);
      }
      Sort(left);
      result_.ranking.insert(result_.ranking.end(), left.begin(), left.end());
    }
    return std::move(result_);
  }

 private:
  bool stopped() const { return result_.stopped; }

  // The most samples of the halvings that begin with `subjects` and `rounds`, and of the final.
  int Ahead(size_t subjects, double rounds) const {
    const auto finalists = static_cast<size_t>(options_.finalists);
    double samples = 0;
    for (; subjects > finalists; rounds *= options_.growth) {
      samples += static_cast<double>(std::lround(rounds) * static_cast<long>(subjects));
      subjects = Half(subjects);
    }
    if (subjects > 1) samples += options_.final_rounds * static_cast<double>(subjects);
    return static_cast<int>(samples);
  }
  size_t Half(size_t subjects) const {
    return std::min(subjects,
                    std::max(static_cast<size_t>(options_.finalists), (subjects + 1) / 2));
  }

  void Begin(std::string_view name, int rounds, int ahead) {
    result_.stages.push_back({name, 0, alive_, {}});
    stage_ = &result_.stages.back();
    stage_rounds_ = rounds;
    ahead_ = ahead;
    if (observer_ != nullptr) observer_->StageBegins(*stage_);
  }

  void End() {
    if (observer_ != nullptr) observer_->StageEnds(*stage_, result_.medians);
  }

  // Rounds of all that are left, as many at once as there may be. Who fails in them is out.
  absl::Status Rounds() {
    if (stopped() || (keep_racing_ && !keep_racing_())) {
      result_.stopped = true;
      return absl::OkStatus();
    }
    const int rounds = std::clamp(options_.look_every, 1, stage_rounds_ - stage_->rounds);
    KVR_ASSIGN_OR_RETURN(const SampleTable table, sampler_.Sample(alive_, rounds));
    stage_->rounds += rounds;
    result_.samples += static_cast<int>(alive_.size()) * rounds;
    std::vector<int> kept;
    for (size_t i = 0; i < alive_.size(); ++i) {
      std::vector<double>& samples = samples_[alive_[i]];
      const std::vector<double> column = Column(table, static_cast<int>(i));
      if (std::all_of(column.begin(), column.end(),
                      [](double us) { return std::isfinite(us) && us > 0; })) {
        samples.insert(samples.end(), column.begin(), column.end());
        kept.push_back(alive_[i]);
      } else {
        samples.clear();
        result_.medians[alive_[i]] = std::numeric_limits<double>::quiet_NaN();
        stage_->left.push_back(alive_[i]);
      }
    }
    alive_ = std::move(kept);
    return absl::OkStatus();
  }

  // The whole of a stage that drops nobody before its end.
  absl::Status AllRounds() {
    while (stage_->rounds < stage_rounds_ && !alive_.empty() && !stopped()) {
      KVR_RETURN_IF_ERROR(Rounds());
      if (!stopped()) Look();
    }
    return absl::OkStatus();
  }

  void Look() {
    if (observer_ == nullptr) return;
    Rank();
    RaceLook look;
    look.stage = stage_->name;
    look.entered = static_cast<int>(samples_.size());
    look.remaining = static_cast<int>(alive_.size());
    look.samples = result_.samples;
    look.samples_ahead = (stage_rounds_ - stage_->rounds) * look.remaining + ahead_;
    if (!alive_.empty()) {
      look.best = alive_.front();
      look.best_us = result_.medians[look.best];
      MedianInterval interval(options_.alpha);
      for (double us : samples_[look.best]) interval.Add(us);
      look.interval = interval.interval();
    }
    observer_->Looked(look);
  }

  // Best first; equals by number.
  void Sort(std::vector<int>& subjects) const {
    std::sort(subjects.begin(), subjects.end(), [&](int a, int b) {
      const double ma = result_.medians[a], mb = result_.medians[b];
      return ma != mb ? ma < mb : a < b;
    });
  }

  // Before the first round of a stage, as the last one left it.
  void Rank() {
    for (int subject : alive_) {
      if (!samples_[subject].empty()) result_.medians[subject] = Median(samples_[subject]);
    }
    Sort(alive_);
  }

  void Keep(size_t count) {
    stage_->left.insert(stage_->left.end(), alive_.begin() + static_cast<ptrdiff_t>(count),
                        alive_.end());
    alive_.resize(count);
  }

  absl::Status Screen() {
    Begin("screen", options_.screen_rounds, Ahead(alive_.size(), options_.first_rounds));
    KVR_RETURN_IF_ERROR(AllRounds());
    Rank();
    // A screen cut short has not seen enough of anybody to drop them.
    size_t fast = stopped() && stage_->rounds > 0 ? alive_.size() : 0;
    while (fast < alive_.size() && result_.medians[alive_[fast]] <=
                                       options_.screen_factor * result_.medians[alive_.front()]) {
      ++fast;
    }
    Keep(fast);
    End();
    return absl::OkStatus();
  }

  absl::Status Halve() {
    const auto finalists = static_cast<size_t>(options_.finalists);
    for (double rounds = options_.first_rounds; alive_.size() > finalists && !stopped();
         rounds *= options_.growth) {
      Begin("halve", static_cast<int>(std::lround(rounds)),
            Ahead(Half(alive_.size()), rounds * options_.growth));
      KVR_RETURN_IF_ERROR(AllRounds());
      Rank();
      if (!stopped()) Keep(Half(alive_.size()));
      End();
    }
    return absl::OkStatus();
  }

  absl::Status Final() {
    if (alive_.size() < 2 || stopped()) return absl::OkStatus();
    Begin("final", options_.final_rounds, 0);
    for (int subject : alive_) samples_[subject].clear();
    while (alive_.size() > 1 && stage_->rounds < options_.final_rounds) {
      KVR_RETURN_IF_ERROR(Rounds());
      if (stopped()) break;
      Rank();
      DropLosers();
      Look();
    }
    Rank();
    End();
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
  RaceObserver* const observer_;
  std::vector<int> alive_;
  std::vector<std::vector<double>> samples_;  // by subject: the rounds shared by all alive
  RaceResult result_;
  RaceStage* stage_ = nullptr;
  int stage_rounds_ = 0;  // at most
  int ahead_ = 0;         // samples after this stage, at most
};

}  // namespace

absl::StatusOr<RaceResult> Race(Sampler& sampler, const RaceOptions& options,
                                const KeepRacing& keep_racing, RaceObserver* observer) {
  return Racer(sampler, options, keep_racing, observer).Run();
}

}  // namespace kvr::stats
