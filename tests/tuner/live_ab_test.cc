// SPDX-License-Identifier: Apache-2.0
//
// Verdicts on a simulated server: buckets that alternate as traffic comes, and steps that drift,
// follow one another and are now and then far too long. Seeded; every count is printed.
#include "tuner/live_ab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

namespace kvr {
namespace {

using stats::Verdict;
using ::testing::HasSubstr;

struct Server {
  double drift = 0.05;                     // over 10 000 steps
  double noise = 0.03;                     // of one step
  double autocorrelated = 0.03;            // AR(1), coefficient 0.98
  double spikes = 0.03;                    // share of the steps, twice as long
  double bursts = 0.001;                   // of the steps: 40 from there on are half as long again
  std::vector<double> factor = {1, 1, 1};  // B's time over A's, by bucket
  std::vector<double> traffic = {0.5, 0.35, 0.15};
};

class Simulation {
 public:
  Simulation(const Server& server, uint64_t seed) : server_(server), random_(seed) {}

  LiveBlock Block(int number, int steps = 32, int warmup = 2) {
    if (number % 4 == 0) reversed_ = uniform_(random_) < 0.5;
    const bool middle = number % 4 == 1 || number % 4 == 2;
    LiveBlock block;
    block.number = number;
    block.side = middle != reversed_ ? 1 : 0;
    block.steps = steps;
    std::vector<int> seen(server_.traffic.size(), 0);
    for (int i = 0; i < steps; ++i) {
      const size_t bucket = Traffic();
      const double us = Step(bucket, block.side);
      if (seen[bucket]++ >= warmup) block.us[std::to_string(16 << bucket)].push_back(us);
    }
    return block;
  }

 private:
  // The batch of a server stays the same for a while.
  size_t Traffic() {
    if (uniform_(random_) < 0.1) {
      double at = uniform_(random_);
      for (bucket_ = 0; bucket_ + 1 < server_.traffic.size(); ++bucket_) {
        if ((at -= server_.traffic[bucket_]) < 0) break;
      }
    }
    return bucket_;
  }
  double Step(size_t bucket, int side) {
    shared_ =
        0.98 * shared_ + server_.autocorrelated * std::sqrt(1 - 0.98 * 0.98) * normal_(random_);
    if (burst_ > 0) --burst_;
    if (uniform_(random_) < server_.bursts) burst_ = 40;
    double us = 10'000 * (1 + 0.4 * static_cast<double>(bucket)) *
                std::exp(server_.noise * normal_(random_) + shared_) *
                (1 + server_.drift * taken_++ / 10'000.0);
    if (side == 1) us *= server_.factor[bucket];
    if (burst_ > 0) us *= 1.5;
    if (uniform_(random_) < server_.spikes) us *= 2;
    return us;
  }

  const Server server_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
  bool reversed_ = false;
  size_t bucket_ = 0;
  double shared_ = 0;
  int taken_ = 0, burst_ = 0;
};

LiveVerdict RunOf(const Server& server, const LiveAbRules& rules, uint64_t seed) {
  Simulation simulation(server, seed);
  LiveComparison comparison(rules);
  for (int block = 0; !comparison.done(); ++block) comparison.Add(simulation.Block(block));
  return comparison.Judge();
}

struct Counts {
  int win = 0, loss = 0, equivalent = 0, inconclusive = 0, invalid = 0;
  double rounds = 0;
};

Counts RunsOf(const char* name, const Server& server, const LiveAbRules& rules, int runs) {
  Counts counts;
  for (int run = 0; run < runs; ++run) {
    const LiveVerdict verdict = RunOf(server, rules, 1000 + static_cast<uint64_t>(run));
    counts.win += verdict.verdict == Verdict::kWin;
    counts.loss += verdict.verdict == Verdict::kLoss;
    counts.equivalent += verdict.verdict == Verdict::kEquivalent;
    counts.inconclusive += verdict.verdict == Verdict::kInconclusive;
    counts.invalid += verdict.verdict == Verdict::kInvalid;
    counts.rounds += verdict.rounds / static_cast<double>(runs);
  }
  std::printf("%-28s win %4d, loss %4d, equivalent %4d, inconclusive %4d; %5.1f rounds\n", name,
              counts.win, counts.loss, counts.equivalent, counts.inconclusive, counts.rounds);
  return counts;
}

Server Calm() { return {.drift = 0, .autocorrelated = 0, .spikes = 0, .bursts = 0}; }

// Drift, neighbours that share their disturbances, spikes and bursts: what servers have.
TEST(LiveAb, AAgainstAIsNeverWonNorLost) {
  for (const bool ship : {false, true}) {
    const Counts counts = RunsOf(ship ? "A/A, ship" : "A/A", Server(), {.ship = ship}, 1000);
    EXPECT_EQ(counts.win, 0);
    EXPECT_EQ(counts.loss, 0);
  }
  EXPECT_GE(RunsOf("A/A calm", Calm(), {}, 200).equivalent, 190);
}

// Twice the noise, six times the drift, steps of which every tenth is twice as long: little can be
// said, and so it is. A ship verdict errs less often than its alpha of 2.5 % either way.
TEST(LiveAb, WhereNothingCanBeSaidNothingIs) {
  const Server worse{
      .drift = 0.3, .noise = 0.06, .autocorrelated = 0.06, .spikes = 0.1, .bursts = 0.004};
  const Counts quick = RunsOf("A/A worse", worse, {}, 200);
  EXPECT_EQ(quick.win + quick.loss, 0);
  const Counts ship = RunsOf("A/A worse, ship", worse, {.ship = true}, 400);
  EXPECT_LE(ship.win, 10);
  EXPECT_LE(ship.loss, 10);
}

TEST(LiveAb, FivePercentSlowerIsFoundAndSoIsFivePercentFaster) {
  for (const bool ship : {false, true}) {
    const LiveAbRules rules{.ship = ship};
    const Counts slower = RunsOf("5 % slower", {.factor = {1.05, 1.05, 1.05}}, rules, 200);
    EXPECT_GE(slower.loss, 198);
    EXPECT_EQ(slower.win, 0);
    const Counts faster = RunsOf("5 % faster", {.factor = {0.95, 0.95, 0.95}}, rules, 200);
    EXPECT_GE(faster.win, ship ? 180 : 196);
    EXPECT_EQ(faster.loss, 0);
  }
}

TEST(LiveAb, ALossAtOneBucketIsALossWhateverTheOthersWin) {
  const Server server{.factor = {0.9, 1, 1.08}};
  for (const bool ship : {false, true}) {
    const LiveVerdict verdict = RunOf(server, {.ship = ship}, 7);
    EXPECT_EQ(verdict.verdict, Verdict::kLoss);
    ASSERT_EQ(verdict.buckets.size(), 3u);
    EXPECT_EQ(verdict.buckets[2].name, "64");
    EXPECT_EQ(verdict.buckets[2].verdict, Verdict::kLoss);
    EXPECT_FALSE(verdict.ship);
    EXPECT_THAT(LiveConclusion(verdict, ship), HasSubstr("LOSS at 64"));
  }
}

TEST(LiveAb, ARareBucketHoldsNothingUp) {
  Server server = Calm();
  server.factor = {0.9, 0.9, 1};
  server.traffic = {0.6, 0.39, 0.01};
  const LiveVerdict quick = RunOf(server, {}, 3);
  EXPECT_EQ(quick.verdict, Verdict::kWin);
  const LiveVerdict ship = RunOf(server, {.ship = true}, 3);
  EXPECT_TRUE(ship.ship);
  for (const LiveBucket& bucket : ship.buckets) EXPECT_EQ(bucket.rare, bucket.name == "64");
}

TEST(LiveAb, SwappingTheSidesTurnsAWinIntoALoss) {
  Server server = Calm();
  server.factor = {1.1, 1.1, 1.1};
  Simulation simulation(server, 5);
  LiveComparison straight({}), swapped({});
  for (int block = 0; block < 640; ++block) {
    LiveBlock one = simulation.Block(block);
    straight.Add(one);
    one.side = 1 - one.side;
    swapped.Add(one);
  }
  EXPECT_EQ(straight.Judge().verdict, Verdict::kLoss);
  EXPECT_EQ(swapped.Judge().verdict, Verdict::kWin);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_DOUBLE_EQ(straight.Judge().buckets[i].difference,
                     -swapped.Judge().buckets[i].difference);
  }
}

TEST(LiveAb, FewerThanSixteenSessionsNeverShip) {
  Server server = Calm();
  server.factor = {0.8, 0.8, 0.8};
  const LiveVerdict verdict = RunOf(server, {.ship = true, .sessions = 4}, 1);
  EXPECT_EQ(verdict.verdict, Verdict::kInconclusive);
  EXPECT_THAT(verdict.buckets[0].reason, HasSubstr("of 16 sessions, too few"));
}

TEST(LiveAb, WhatMustNotBeReadIsInvalid) {
  const auto run = [](auto spoil) {
    Server server = Calm();
    server.factor = {0.8, 0.8, 0.8};
    Simulation simulation(server, 1);
    LiveComparison comparison({});
    for (int number = 0; number < 640; ++number) {
      LiveBlock block = simulation.Block(number);
      spoil(block);
      comparison.Add(block);
    }
    return comparison.Judge();
  };
  EXPECT_EQ(run([](LiveBlock&) {}).verdict, Verdict::kWin);
  const LiveVerdict errors = run([](LiveBlock& block) { block.errors = block.number == 9; });
  EXPECT_EQ(errors.verdict, Verdict::kInvalid);
  EXPECT_THAT(errors.reason, HasSubstr("went wrong"));
  const LiveVerdict stuck = run([](LiveBlock& block) {
    if (block.side == 0) return;
    block.us.clear();
    block.not_applied = 30;
  });
  EXPECT_EQ(stuck.verdict, Verdict::kInvalid);
  EXPECT_THAT(stuck.reason, HasSubstr("captured anew"));
  for (const double bad : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    const LiveVerdict verdict = run([bad](LiveBlock& block) { block.us["16"].push_back(bad); });
    EXPECT_EQ(verdict.verdict, Verdict::kInvalid) << bad;
  }
}

TEST(LiveAb, ABucketThatCountsInTooFewRoundsSaysWhatWouldHelp) {
  for (const bool in_every_round : {true, false}) {
    LiveComparison comparison({});
    for (int number = 0; number < 16; ++number) {  // four rounds
      const int place = number % 4;
      LiveBlock block{.number = number, .side = place == 1 || place == 2 ? 1 : 0, .steps = 8};
      if (in_every_round || number < 4) block.us["16"] = {10, 11, 12, 10, 11, 12};
      comparison.Add(block);
    }
    EXPECT_THAT(comparison.Judge().buckets.at(0).reason,
                HasSubstr(in_every_round ? "4 of 4 rounds, too few: more time"
                                         : "1 of 4 rounds, too few: longer blocks"));
  }
}

TEST(LiveAb, NothingIsDecidedBeforeThereIsAnything) {
  LiveComparison comparison({});
  EXPECT_FALSE(comparison.done());
  EXPECT_EQ(comparison.Judge().verdict, Verdict::kInconclusive);
  LiveComparison ship({.ship = true});
  EXPECT_EQ(ship.Judge().verdict, Verdict::kInconclusive);
  EXPECT_FALSE(ship.Judge().ship);
}

}  // namespace
}  // namespace kvr
