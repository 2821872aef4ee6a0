// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "tuner/stats/drift.h"
#include "tuner/stats/median_interval.h"
#include "tuner/stats/noise.h"
#include "tuner/stats/quick.h"
#include "tuner/stats/ship.h"
#include "tuner/stats/summary.h"

namespace kvr::stats {
namespace {

TEST(Evidence, HasMeanOneWhereTheMedianIsRight) {
  for (const int n : {1, 8, 52, 160}) {
    double mean = 0, log_choose = 0;
    for (int s = 0; s <= n; ++s) {
      if (s > 0) log_choose += std::log(n - s + 1.0) - std::log(s);
      mean += std::exp(log_choose - n * std::log(2.0) + LogEvidence(n, s));
    }
    EXPECT_NEAR(mean, 1, 1e-9) << n;
  }
}

TEST(MedianInterval, SaysNothingBelowEightSamples) {
  MedianInterval interval(0.05);
  for (int i = 0; i < 7; ++i) interval.Add(1);
  EXPECT_TRUE(std::isinf(interval.interval().low));
  interval.Add(1);
  EXPECT_EQ(interval.count(), 8);
}

TEST(MedianInterval, IsTheSameInAnyOrderOfTheSamples) {
  std::mt19937_64 random(1);
  std::vector<double> samples(100);
  for (double& sample : samples) sample = std::normal_distribution<double>()(random);
  MedianInterval first(0.05), second(0.05);
  for (double sample : samples) first.Add(sample);
  std::shuffle(samples.begin(), samples.end(), random);
  for (double sample : samples) second.Add(sample);
  EXPECT_EQ(first.interval().low, second.interval().low);
  EXPECT_EQ(first.interval().high, second.interval().high);
  EXPECT_EQ(first.median(), second.median());
  EXPECT_LE(first.interval().low, first.median());
}

// j by its definition, for every n.
TEST(MedianInterval, EndsAtTheOrderStatisticsOfItsDefinition) {
  MedianInterval interval(0.05);
  for (int n = 1; n <= 160; ++n) {
    interval.Add(n);  // x(i) = i
    int j = -1;
    for (int s = 0; 2 * s < n; ++s) {
      if (LogEvidence(n, s) >= -std::log(0.05)) j = s;
    }
    if (n < kLeastSamples || j < 0) continue;
    EXPECT_EQ(interval.interval().low, j + 1) << n;
    EXPECT_EQ(interval.interval().high, n - j) << n;
  }
}

TEST(Noise, FloorsTheBand) {
  const std::vector<std::vector<double>> quiet(20, std::vector<double>(80, 0.0));
  EXPECT_DOUBLE_EQ(EstimateBand(quiet, 100)->band, 0.01);
  EXPECT_DOUBLE_EQ(EstimateBand(quiet, 20)->band, 0.05);  // two ticks of half a microsecond
}

TEST(Noise, SeesSessionsThatDisagree) {
  std::vector<std::vector<double>> sessions;
  for (int k = 0; k < 20; ++k) sessions.emplace_back(80, k % 2 == 0 ? 0.02 : -0.02);
  const NoiseBand band = *EstimateBand(sessions, 100);
  EXPECT_NEAR(band.sigma, 0.02, 1e-12);
  EXPECT_NEAR(band.factor, 1.96 * std::sqrt(20 / 10.8508), 1e-4);  // chi^2_{0.05, 20} = 10.8508
  EXPECT_NEAR(band.band, band.factor * 0.02, 1e-12);
}

TEST(Noise, OfThreeSessionsIsMoreCautious) {
  const std::vector<std::vector<double>> few(3, std::vector<double>(80, 0.01));
  EXPECT_NEAR(EstimateBand(few, 100)->factor, 1.96 * std::sqrt(3 / 0.351846), 1e-4);
}

TEST(Noise, RefusesWhatIsNoSession) {
  EXPECT_FALSE(EstimateBand({}, 100).ok());
  const std::vector<std::vector<double>> short_one = {{0.1}};
  EXPECT_FALSE(EstimateBand(short_one, 100).ok());
  const std::vector<std::vector<double>> bad = {{0.1, std::nan("")}};
  EXPECT_FALSE(EstimateBand(bad, 100).ok());
}

TEST(Judge, ReadsAnIntervalInTheStatedOrder) {
  const auto judge = [](Interval interval, double band = 0.01) {
    return Judge(interval, {.band = band});
  };
  EXPECT_EQ(judge({-0.05, -0.011}), Verdict::kWin);
  EXPECT_EQ(judge({0.011, 0.05}), Verdict::kLoss);
  EXPECT_EQ(judge({-0.019, 0.019}), Verdict::kEquivalent);
  EXPECT_EQ(judge({-0.015, -0.011}), Verdict::kWin);  // small, but beyond the band
  EXPECT_EQ(judge({-0.03, 0.01}), Verdict::kInconclusive);
  EXPECT_EQ(judge({-0.03, 0.03}, 0.04), Verdict::kEquivalent);
  EXPECT_EQ(judge({}), Verdict::kInconclusive);
}

TEST(Judge, CallsNothingEqualThatMayDifferByMoreThanFivePercent) {
  const QuickOptions wide{.band = 0.27};
  EXPECT_EQ(Judge({-0.12, 0.22}, wide), Verdict::kInconclusive);
  EXPECT_TRUE(BandTooWide({-0.12, 0.22}, wide));
  EXPECT_EQ(Judge({-0.049, 0.049}, wide), Verdict::kEquivalent);
  EXPECT_FALSE(BandTooWide({-0.049, 0.049}, wide));
  EXPECT_EQ(Judge({-0.051, 0.02}, wide), Verdict::kInconclusive);
  // No band would tell.
  EXPECT_FALSE(BandTooWide({-0.3, 0.22}, wide));
  EXPECT_FALSE(BandTooWide({}, wide));
  EXPECT_FALSE(BandTooWide({-0.03, 0.01}, {.band = 0.01}));
}

TEST(Holm, StepsDown) {
  const std::vector<double> p = {0.01, 0.04, 0.03, 0.005};
  // 0.005 <= 0.05/4, 0.01 <= 0.05/3, 0.03 > 0.05/2: stop.
  EXPECT_EQ(Holm(p, 0.05), (std::vector<bool>{true, false, false, true}));
  EXPECT_EQ(Holm({}, 0.05), std::vector<bool>());
}

// Sessions with mean exactly `mean` and the spread of a machine that moves by 1 %.
std::vector<double> Sessions(double mean) {
  std::vector<double> sessions;
  for (int s = 0; s < kShipSessions; ++s) sessions.push_back(mean + (s % 2 == 0 ? 0.01 : -0.01));
  return sessions;
}

TEST(Ship, NeedsAWinAndNoRegressionAnywhere) {
  const std::vector<std::vector<double>> good = {Sessions(-0.05), Sessions(0)};
  EXPECT_TRUE(JudgeShip(good).ship);
  EXPECT_EQ(JudgeShip(good).shapes[0].verdict, Verdict::kWin);
  EXPECT_EQ(JudgeShip(good).shapes[1].verdict, Verdict::kEquivalent);

  const std::vector<std::vector<double>> mixed = {Sessions(-0.05), Sessions(0.05)};
  EXPECT_FALSE(JudgeShip(mixed).ship);
  EXPECT_EQ(JudgeShip(mixed).verdict, Verdict::kLoss);

  const std::vector<std::vector<double>> same = {Sessions(0), Sessions(0.001)};
  EXPECT_EQ(JudgeShip(same).verdict, Verdict::kEquivalent);
}

TEST(Ship, NeedsItsSessionsAtEveryShape) {
  std::vector<std::vector<double>> cut = {Sessions(-0.05), Sessions(0)};
  cut[1].resize(kShipSessions - 1);
  const ShipVerdict judged = JudgeShip(cut);
  EXPECT_FALSE(judged.ship);
  EXPECT_EQ(judged.verdict, Verdict::kInconclusive);
  EXPECT_EQ(judged.shapes[0].verdict, Verdict::kWin);
  EXPECT_EQ(judged.shapes[1].verdict, Verdict::kInconclusive);
  // Two that agree by chance.
  EXPECT_FALSE(JudgeShip(std::vector<std::vector<double>>{{-0.05, -0.05}}).ship);
  EXPECT_EQ(JudgeShip(std::vector<std::vector<double>>{{0.05, 0.05}}).verdict, Verdict::kLoss);
}

TEST(Ship, SwappingTheSidesTurnsWinIntoLoss) {
  const ShapeVerdict win = JudgeShip(std::vector<std::vector<double>>{Sessions(-0.05)}).shapes[0];
  const ShapeVerdict loss = JudgeShip(std::vector<std::vector<double>>{Sessions(0.05)}).shapes[0];
  EXPECT_EQ(win.verdict, Verdict::kWin);
  EXPECT_EQ(loss.verdict, Verdict::kLoss);
  EXPECT_NEAR(win.p_win, loss.p_loss, 1e-15);
  EXPECT_NEAR(win.interval.low, -loss.interval.high, 1e-15);
}

TEST(Ship, RefusesWhatHasNoSamples) {
  EXPECT_EQ(JudgeShip({}).verdict, Verdict::kInvalid);
  EXPECT_EQ(JudgeShip(std::vector<std::vector<double>>{{0.1}}).verdict, Verdict::kInvalid);
  EXPECT_EQ(JudgeShip(std::vector<std::vector<double>>{{0.1, std::nan("")}}).verdict,
            Verdict::kInvalid);
}

// Error control by simulation: 7 shapes, true difference 0, a session effect of 1.4 %.
TEST(Ship, RarelyShipsTheSame) {
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal;
  const int trials = 2000;
  int shipped = 0, lost = 0, found = 0;
  for (int trial = 0; trial < trials; ++trial) {
    std::vector<std::vector<double>> same(7), better(7);
    for (int shape = 0; shape < 7; ++shape) {
      for (int s = 0; s < kShipSessions; ++s) {
        const double noise = 0.02 * normal(random);
        same[shape].push_back(noise);
        better[shape].push_back(noise - (shape == 0 ? 0.05 : 0));
      }
    }
    shipped += JudgeShip(same).ship;
    lost += JudgeShip(same).verdict == Verdict::kLoss;
    found += JudgeShip(better).ship;
  }
  std::printf(
      "ship verdicts over 7 shapes: A/A shipped %d, lost %d; 5 %% at one shape shipped %d, of %d\n",
      shipped, lost, found, trials);
  EXPECT_LE(shipped, trials * 0.025);
  EXPECT_LE(lost, trials * 0.025);
  EXPECT_GE(found, trials * 0.9);
}

TEST(Cusum, HearsAStepAndForgivesASpike) {
  Cusum spike;
  for (int i = 0; i < 100; ++i) spike.Add(i == 50 ? 1000 : 0);
  EXPECT_FALSE(spike.alarmed());
  Cusum step;
  for (int i = 0; i < 10; ++i) step.Add(-2);
  EXPECT_TRUE(step.alarmed());
}

TEST(DriftMonitor, HearsAClockThatFalls) {
  std::mt19937_64 random(2);
  std::normal_distribution<double> normal(10, 0.02);
  DriftMonitor steady, falling;
  for (int i = 0; i < 60; ++i) {
    const double us = normal(random);
    steady.Add(us);
    falling.Add(i < 30 ? us : 1.03 * us);
  }
  EXPECT_FALSE(steady.drifted());
  EXPECT_TRUE(falling.drifted());
}

TEST(Summary, ReadsTheSeedCampaignAsItsAuthorsDid) {
  const auto judge = [](std::vector<double> percents) { return JudgeSummary(percents, 7); };
  EXPECT_EQ(judge({-14}), Verdict::kLoss);             // w8, C1
  EXPECT_EQ(judge({-18}), Verdict::kLoss);             // w8, C8
  EXPECT_EQ(judge({-3}), Verdict::kInconclusive);      // w8, C64
  EXPECT_EQ(judge({-7}), Verdict::kInconclusive);      // w8, C96
  EXPECT_EQ(judge({-5, -7}), Verdict::kInconclusive);  // s3, C1 and C8
  EXPECT_EQ(judge({0}), Verdict::kInconclusive);       // s3, C48
  EXPECT_EQ(judge({-9.9}), Verdict::kLoss);            // s3, C64
  EXPECT_EQ(judge({-2.5}), Verdict::kInconclusive);    // s3, C80
  EXPECT_EQ(judge({12.8}), Verdict::kWin);             // TARGET_CTAS 512, C64
  EXPECT_EQ(judge({5.7}), Verdict::kInconclusive);     // TARGET_CTAS 512, C96
  EXPECT_EQ(judge({}), Verdict::kInvalid);
}

}  // namespace
}  // namespace kvr::stats
