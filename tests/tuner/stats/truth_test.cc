// SPDX-License-Identifier: Apache-2.0
//
// Does the engine tell the truth? Seeded simulations with known answers; every count is printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "tests/tuner/stats/noise_model.h"
#include "tuner/sampler.h"
#include "tuner/stats/noise.h"
#include "tuner/stats/quick.h"

namespace kvr::stats {
namespace {

constexpr int kTrials = 1000;
constexpr double kUs = 100;

struct Counts {
  int win = 0, loss = 0, equivalent = 0, inconclusive = 0;
  double rounds = 0;
};

double BandOf(const NoiseModel& model, std::mt19937_64& random) {
  std::vector<std::vector<double>> sessions;
  for (int k = 0; k < kNoiseSessions; ++k) {
    SimulatedSession session(model, kUs, kUs, kNoiseRounds, random);
    std::vector<double>& ratios = sessions.emplace_back();
    for (int round = 0; round < kNoiseRounds; ++round) {
      double a, b;
      session.Pair(&a, &b);
      ratios.push_back(LogRatio(a, b));
    }
  }
  return EstimateBand(sessions, kUs)->band;
}

Counts QuickTrials(const NoiseModel& model, double challenger_us, double band,
                   std::mt19937_64& random) {
  Counts counts;
  for (int trial = 0; trial < kTrials; ++trial) {
    QuickComparison comparison({.band = band});
    SimulatedSession session(model, kUs, challenger_us, 160, random);
    while (!comparison.done()) {
      double a, b;
      session.Pair(&a, &b);
      comparison.Add(a, b);
    }
    counts.rounds += comparison.rounds();
    counts.win += comparison.verdict() == Verdict::kWin;
    counts.loss += comparison.verdict() == Verdict::kLoss;
    counts.equivalent += comparison.verdict() == Verdict::kEquivalent;
    counts.inconclusive += comparison.verdict() == Verdict::kInconclusive;
  }
  counts.rounds /= kTrials;
  return counts;
}

class Truth : public ::testing::TestWithParam<double> {};

// 0.5 % of 1000, with slack for a count that is itself random.
constexpr int kMostFalseWins = 13;
constexpr int kLeastFound = 951;

TEST_P(Truth, RarelyCallsTheSameFasterAndFindsTenPercent) {
  for (const NoiseModel& model : ModelsAt(GetParam())) {
    std::mt19937_64 random(20261130);
    const double band = BandOf(model, random);
    const Counts same = QuickTrials(model, kUs, band, random);
    const Counts faster = QuickTrials(model, 0.9 * kUs, band, random);
    std::printf(
        "%4.0f %% noise, %-15s band %4.2f %%: A/A %d wins %d losses %d equivalent of %d; "
        "10 %% faster found %d times in %.0f rounds\n",
        100 * GetParam(), model.name.c_str(), 100 * band, same.win, same.loss, same.equivalent,
        kTrials, faster.win, faster.rounds);
    EXPECT_LE(same.win, kMostFalseWins) << model.name;
    EXPECT_LE(same.loss, kMostFalseWins) << model.name;
    EXPECT_GE(faster.win, kLeastFound) << model.name;
    EXPECT_EQ(faster.loss, 0) << model.name;
  }
}

INSTANTIATE_TEST_SUITE_P(SampleNoise, Truth, ::testing::Values(0.05, 0.06, 0.07));

// All of one side, then all of the other: what everybody does. Kept to show that these tests can
// fail, and why pairs are interleaved.
TEST(NaiveOrder, FallsForDrift) {
  NoiseModel model = ModelsAt(0.06)[1];
  std::mt19937_64 random(1);
  int wrong = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    SimulatedSession session(model, kUs, kUs, 100, random);
    std::vector<double> first(100), second(100);
    for (double& us : first) us = session.Sample(0);
    for (double& us : second) us = session.Sample(1);
    MedianInterval interval(0.05);
    for (int i = 0; i < 100; ++i) interval.Add(LogRatio(first[i], second[i]));
    const Verdict verdict = Judge(interval.interval(), {});
    wrong += verdict == Verdict::kLoss || verdict == Verdict::kWin;
  }
  std::printf("A then B under drift: %d of %d A/A trials decided\n", wrong, kTrials);
  EXPECT_GT(wrong, kMostFalseWins);
}

// The interval is looked at after every round, and any look may exclude the true median.
TEST(Peeking, StaysWithinAlpha) {
  for (const double alpha : {0.05, 0.0125}) {
    std::mt19937_64 random(7);
    std::normal_distribution<double> normal;
    int excluded = 0;
    for (int trial = 0; trial < 4 * kTrials; ++trial) {
      MedianInterval interval(alpha);
      bool ever = false;
      for (int round = 0; round < 160; ++round) {
        interval.Add(normal(random));
        ever = ever || interval.interval().low > 0 || interval.interval().high < 0;
      }
      excluded += ever;
    }
    std::printf("peeking 160 times at alpha %g: %d of %d excluded the truth\n", alpha, excluded,
                4 * kTrials);
    EXPECT_LE(excluded, 4 * kTrials * alpha);
    EXPECT_GT(excluded, 0);
  }
}

TEST(Symmetry, SwappingTheSidesTurnsWinIntoLoss) {
  for (const NoiseModel& model : ModelsAt(0.06)) {
    std::mt19937_64 random(3);
    for (int trial = 0; trial < 50; ++trial) {
      QuickComparison forward({.band = 0.02}), backward({.band = 0.02});
      SimulatedSession session(model, kUs, 0.9 * kUs, 160, random);
      for (int round = 0; round < 160; ++round) {
        double a, b;
        session.Pair(&a, &b);
        forward.Add(a, b);
        backward.Add(b, a);
        const bool win = forward.verdict() == Verdict::kWin;
        const bool loss = forward.verdict() == Verdict::kLoss;
        EXPECT_EQ(win, backward.verdict() == Verdict::kLoss);
        EXPECT_EQ(loss, backward.verdict() == Verdict::kWin);
      }
    }
  }
}

TEST(Scale, ChangesNothing) {
  std::mt19937_64 random(5);
  const NoiseModel model = ModelsAt(0.06)[0];
  SimulatedSession session(model, kUs, 0.95 * kUs, 160, random);
  QuickComparison plain({.band = 0.02}), scaled({.band = 0.02});
  for (int round = 0; round < 160; ++round) {
    double a, b;
    session.Pair(&a, &b);
    plain.Add(a, b);
    scaled.Add(1024 * a, 1024 * b);  // a power of two: exact
    EXPECT_EQ(plain.verdict(), scaled.verdict());
  }
  EXPECT_EQ(plain.interval().low, scaled.interval().low);
}

TEST(WhatIsNoTime, MakesItInvalid) {
  for (const double bad : {std::nan(""), 0.0, -1.0, HUGE_VAL}) {
    QuickComparison comparison({.band = 0.02});
    for (int i = 0; i < 20; ++i) comparison.Add(kUs, 0.5 * kUs);
    EXPECT_EQ(comparison.verdict(), Verdict::kWin);
    comparison.Add(kUs, bad);
    EXPECT_EQ(comparison.verdict(), Verdict::kInvalid) << bad;
    EXPECT_TRUE(comparison.done());
  }
}

TEST(Ties, AreEquivalent) {
  QuickComparison comparison({.band = kLeastBand});
  while (!comparison.done()) comparison.Add(kUs, kUs);
  EXPECT_EQ(comparison.verdict(), Verdict::kEquivalent);
  EXPECT_EQ(comparison.interval().low, 0);
  EXPECT_EQ(comparison.interval().high, 0);
}

TEST(Drift, AsksNoMoreOnceInvalid) {
  QuickComparison comparison({.band = kLeastBand});
  comparison.Invalidate("the clock fell");
  comparison.Invalidate("something else");
  for (int i = 0; i < 20; ++i) comparison.Add(kUs, 0.5 * kUs);
  EXPECT_EQ(comparison.verdict(), Verdict::kInvalid);
  EXPECT_EQ(comparison.why_invalid(), "the clock fell");
}

}  // namespace
}  // namespace kvr::stats
