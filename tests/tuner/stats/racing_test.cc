// SPDX-License-Identifier: Apache-2.0
#include "tuner/stats/racing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace kvr::stats {
namespace {

// Configs with known times and 6 % noise, 3 % of it spikes, on a machine that drifts.
class FakeSampler : public Sampler {
 public:
  FakeSampler(std::vector<double> us, uint64_t seed) : us_(std::move(us)), random_(seed) {}
  int subjects() const override { return static_cast<int>(us_.size()); }
  absl::StatusOr<SampleTable> Sample(absl::Span<const int> subjects, int rounds) override {
    SampleTable table;
    for (int round = 0; round < rounds; ++round) {
      std::vector<double>& row = table.emplace_back();
      for (int subject : subjects) {
        drift_ *= 1.00005;
        double us = us_[subject] * drift_ * std::exp(0.06 * normal_(random_));
        if (uniform_(random_) < 0.03) us *= 1.5;
        row.push_back(us);
      }
    }
    return table;
  }

 private:
  const std::vector<double> us_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
  double drift_ = 1;
};

std::vector<double> SpaceOf(int configs, std::mt19937_64& random) {
  std::vector<double> us(static_cast<size_t>(configs));
  std::gamma_distribution<double> above(1.5, 0.15);  // most are 10 to 40 % off the best
  for (double& t : us) t = 100 * (1 + above(random));
  return us;
}

TEST(Race, FindsNearlyTheBestOfSixtyFour) {
  std::mt19937_64 random(42);
  const int trials = 300;
  double regret_sum = 0, worst = 0, samples = 0;
  for (int trial = 0; trial < trials; ++trial) {
    const std::vector<double> us = SpaceOf(64, random);
    FakeSampler sampler(us, random());
    const RaceResult result = *Race(sampler, {});
    ASSERT_GE(result.winner, 0);
    const double regret = us[result.winner] / *std::min_element(us.begin(), us.end()) - 1;
    regret_sum += regret;
    worst = std::max(worst, regret);
    samples += result.samples;
  }
  std::printf("racing 64 configs: mean regret %.2f %%, worst %.2f %%, %.0f samples\n",
              100 * regret_sum / trials, 100 * worst, samples / trials);
  EXPECT_LT(regret_sum / trials, 0.006);
  EXPECT_LT(worst, 0.06);
  EXPECT_LT(samples / trials, 1000);
}

TEST(Race, AccountsForEverySubject) {
  std::mt19937_64 random(1);
  for (const int configs : {1, 2, 3, 4, 5, 7, 64}) {
    FakeSampler sampler(SpaceOf(configs, random), 5);
    const RaceResult result = *Race(sampler, {});
    std::vector<int> seen = {result.winner};
    for (const RaceStage& stage : result.stages) {
      seen.insert(seen.end(), stage.left.begin(), stage.left.end());
      for (int left : stage.left) {
        EXPECT_NE(std::find(stage.entered.begin(), stage.entered.end(), left), stage.entered.end());
      }
    }
    // Whoever neither left nor won is a finalist that could not be told from the winner.
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end()) << configs;
    for (double median : result.medians) EXPECT_TRUE(std::isfinite(median));
  }
}

// Who watches knows of every subject where it left, and never more ahead than there is.
struct Watcher : RaceObserver {
  void StageBegins(const RaceStage& stage) override { names.emplace_back(stage.name); }
  void Looked(const RaceLook& look) override {
    if (most == 0) most = look.samples + look.samples_ahead;
    EXPECT_LE(look.samples + look.samples_ahead, most);
    EXPECT_GE(look.best, 0);
    EXPECT_LE(look.interval.low, look.best_us);
    EXPECT_GE(look.interval.high, look.best_us);
    ++looks;
  }
  void StageEnds(const RaceStage& stage, const std::vector<double>&) override {
    left.insert(left.end(), stage.left.begin(), stage.left.end());
  }
  std::vector<std::string> names;
  std::vector<int> left;
  int looks = 0, most = 0;
};

TEST(Race, IsWatchedStageByStageAndRanksEverybody) {
  std::mt19937_64 random(7);
  for (const int look_every : {1, 8}) {
    std::vector<double> us = SpaceOf(64, random);
    us[5] = std::nan("");
    FakeSampler sampler(us, 5);
    Watcher watcher;
    RaceOptions options;
    options.look_every = look_every;
    const RaceResult result = *Race(sampler, options, nullptr, &watcher);
    EXPECT_EQ(watcher.names.front(), "screen");
    EXPECT_EQ(watcher.names.back(), "final");
    EXPECT_LE(result.samples, watcher.most);
    EXPECT_EQ(watcher.left.size() + result.finalists.size(), us.size());
    EXPECT_EQ(result.ranking.size(), us.size() - 1);  // but for the one that failed
    EXPECT_EQ(result.ranking.front(), result.winner);
    int rounds = 0;
    for (const RaceStage& stage : result.stages) rounds += stage.rounds;
    EXPECT_EQ(look_every == 1, watcher.looks == rounds) << look_every;
  }
}

TEST(Race, OutlivesSubjectsThatFail) {
  std::vector<double> us = {100, std::nan(""), 90, -5, INFINITY};
  FakeSampler sampler(us, 3);
  const RaceResult result = *Race(sampler, {});
  EXPECT_EQ(result.winner, 2);
  EXPECT_TRUE(std::isnan(result.medians[1]));
  FakeSampler hopeless({std::nan(""), 0}, 3);
  EXPECT_EQ(Race(hopeless, {})->winner, -1);
}

TEST(Race, AnswersWithWhatItKnowsWhenStopped) {
  std::mt19937_64 random(9);
  const std::vector<double> us = SpaceOf(64, random);
  for (const int allowed : {0, 1, 2, 5, 30}) {
    FakeSampler sampler(us, 4);
    int asked = 0;
    const RaceResult result = *Race(sampler, {}, [&] { return asked++ < allowed; });
    EXPECT_EQ(result.winner >= 0, allowed > 0) << allowed;
    int rounds = 0;
    for (const RaceStage& stage : result.stages) rounds += stage.rounds;
    EXPECT_LE(rounds, allowed);
  }
}

}  // namespace
}  // namespace kvr::stats
