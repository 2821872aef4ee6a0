// SPDX-License-Identifier: Apache-2.0
//
// kvr ab and kvr noise decide by the code under test here; only where their sessions come from is
// simulated: seeded sessions with known answers, and with faults and trouble at known places.
#include "tuner/ab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/tuner/stats/noise_model.h"

namespace kvr {
namespace {

using stats::Verdict;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr double kUs = 100;
const std::array<std::string, 2> kNames = {"a", "b"};

// What goes wrong, and from which round of a session on.
struct Plan {
  double ratio = 1;  // true time of the challenger over the incumbent's
  bool swapped = false;
  int trouble_at = -1;
  int fault_at = -1;
  Side fault_of = kChallenger;
  int nan_at = -1;
  bool wrong_afterwards = false;  // the second check finds wrong numbers
  int cancelled_at = -1;
};

class FakeSession : public PairedSession {
 public:
  FakeSession(const stats::NoiseModel& model, const Plan& plan, std::mt19937_64& random)
      : plan_(plan),
        session_(model, plan.swapped ? kUs * plan.ratio : kUs,
                 plan.swapped ? kUs : kUs * plan.ratio, kQuickRounds, random) {}

  absl::StatusOr<SampleTable> Sample(int rounds) override {
    SampleTable table;
    for (int i = 0; i < rounds; ++i, ++round_) {
      if (plan_.cancelled_at >= 0 && round_ >= plan_.cancelled_at) {
        return absl::CancelledError("cancelled");
      }
      double us[2];
      session_.Pair(&us[0], &us[1]);
      if (round_ == plan_.nan_at || (plan_.fault_at >= 0 && round_ >= plan_.fault_at)) {
        us[plan_.fault_of] = std::nan("");
      }
      table.push_back({us[0], us[1]});
    }
    return table;
  }
  absl::Status Check() override {
    if (++checks_ == 2 && plan_.wrong_afterwards) wrong_ = true;
    return absl::OkStatus();
  }
  Finding finding(Side side) const override {
    Finding finding;
    if (side != plan_.fault_of) return finding;
    if (plan_.fault_at >= 0 && round_ >= plan_.fault_at) {
      finding.status = TrialStatus::kRuntimeError;
      finding.reason = "a trap";
    }
    if (wrong_) {
      finding.status = TrialStatus::kIncorrectNumerical;
      finding.reason = "output is wrong";
    }
    return finding;
  }
  std::string trouble() const override {
    return plan_.trouble_at >= 0 && round_ >= plan_.trouble_at ? "the clock drifts" : "";
  }
  SessionInfo info() const override {
    SessionInfo info;
    info.least_epoch_us = kUs;
    return info;
  }
  int rounds() const { return round_; }

 private:
  const Plan plan_;
  stats::SimulatedSession session_;
  int round_ = 0, checks_ = 0;
  bool wrong_ = false;
};

// Sessions of a plan, but for some of them; counts processes.
class FakeSource : public SessionSource {
 public:
  FakeSource(stats::NoiseModel model, Plan plan, uint64_t seed)
      : model_(std::move(model)), plan_(plan), random_(seed) {}
  absl::Status Renew() override {
    ++processes;
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<PairedSession>> Open(const Axes& axes) override {
    opened.emplace_back(processes, axes.at("n"));
    if (const auto refused = refuse.find(axes.at("n")); refused != refuse.end()) {
      return absl::ResourceExhaustedError("insufficient memory");
    }
    const auto special = specials.find(static_cast<int>(opened.size()) - 1);
    Plan plan = special == specials.end() ? plan_ : special->second;
    if (const auto ratio = ratios.find(axes.at("n")); ratio != ratios.end()) {
      plan.ratio = ratio->second;
    }
    return std::make_unique<FakeSession>(model_, plan, random_);
  }

  int processes = 0;
  std::vector<std::pair<int, int64_t>> opened;  // process, shape
  std::map<int, Plan> specials;                 // by position in opened
  std::map<int64_t, double> ratios;             // by shape
  std::map<int64_t, bool> refuse;               // by shape

 private:
  const stats::NoiseModel model_;
  const Plan plan_;
  std::mt19937_64 random_;
};

stats::NoiseModel Quiet() { return {.name = "quiet", .sample_noise = 0.002}; }

AbShape Quick(const Plan& plan, double band = 0.01, uint64_t seed = 1,
              const stats::NoiseModel& model = Quiet(), const KeepGoing& keep_going = nullptr) {
  std::mt19937_64 random(seed);
  FakeSession session(model, plan, random);
  return *DecideQuickly(session, {.band = band}, kNames, keep_going);
}

std::vector<Axes> Shapes(int count) {
  std::vector<Axes> shapes;
  for (int n = 1; n <= count; ++n) shapes.push_back({{"n", n}});
  return shapes;
}

SessionsPlan ShortPlan(int sessions = 6) {
  SessionsPlan plan;
  plan.sessions = sessions;
  plan.rounds = 20;
  plan.seed = 3;
  return plan;
}

AbReport ReportOf(const std::vector<Axes>& shapes, int sessions) {
  AbReport report;
  report.names = {"baseline", "w8"};
  report.ship_asked = true;
  report.planned_sessions = sessions;
  for (const Axes& axes : shapes) report.shapes.emplace_back().axes = axes;
  return report;
}

AbReport Ship(FakeSource& source, int shapes, const SessionsPlan& plan) {
  AbReport report = ReportOf(Shapes(shapes), plan.sessions);
  JudgeSessions(*TakeSessions(source, Shapes(shapes), plan), report);
  return report;
}

// --- quick verdicts ---------------------------------------------------------------------------

// Band and pairs come from the code that kvr noise and kvr ab run.
TEST(Quick, TwoHundredTimesAgainstItselfIsRarelyADifference) {
  for (const stats::NoiseModel& model : stats::ModelsAt(0.06)) {
    FakeSource source(model, {}, 11);
    SessionsPlan plan = ShortPlan(stats::kNoiseSessions);
    plan.rounds = stats::kNoiseRounds;
    const auto taken = *TakeSessions(source, Shapes(1), plan);
    std::vector<std::vector<double>> ratios;
    for (const SessionResult& session : taken[0].kept) ratios.push_back(session.LogRatios());
    const double band = stats::EstimateBand(ratios, kUs)->band;
    int wins = 0, losses = 0;
    for (uint64_t seed = 0; seed < 200; ++seed) {
      const Verdict verdict = Quick({}, band, seed, model).verdict;
      wins += verdict == Verdict::kWin;
      losses += verdict == Verdict::kLoss;
    }
    std::printf("A/A, %-15s band %.2f %%: %d wins, %d losses of 200\n", model.name.c_str(),
                100 * band, wins, losses);
    EXPECT_LE(wins, 4) << model.name;
    EXPECT_LE(losses, 4) << model.name;
  }
}

TEST(Quick, FindsTenPercentEitherWay) {
  int wins = 0, losses = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const stats::NoiseModel noisy = stats::ModelsAt(0.06)[1];
    wins += Quick({.ratio = 0.9}, 0.02, seed, noisy).verdict == Verdict::kWin;
    losses += Quick({.ratio = 1 / 0.9}, 0.02, seed, noisy).verdict == Verdict::kLoss;
  }
  std::printf("10 %% found as a win %d and as a loss %d times of 200\n", wins, losses);
  EXPECT_GE(wins, 190);
  EXPECT_GE(losses, 190);
}

TEST(Quick, SwappingTheLabelsTurnsTheVerdictAround) {
  const AbShape faster = Quick({.ratio = 0.9});
  const AbShape swapped = Quick({.ratio = 0.9, .swapped = true});
  EXPECT_EQ(faster.verdict, Verdict::kWin);
  EXPECT_EQ(swapped.verdict, Verdict::kLoss);
  EXPECT_LT(faster.challenger_us, faster.incumbent_us);
  EXPECT_GT(swapped.challenger_us, swapped.incumbent_us);
}

TEST(Quick, StopsAtALookThatDecidesAndAtTheLastRound) {
  const AbShape clear = Quick({.ratio = 0.5});
  EXPECT_EQ(clear.rounds % kRoundsPerLook, 0);
  EXPECT_LE(clear.rounds, 16);
  // A true 3 % lies beyond "equivalent", and inside this band.
  const AbShape never = Quick({.ratio = 1.03}, 0.03, 1, stats::ModelsAt(0.07)[0]);
  EXPECT_EQ(never.verdict, Verdict::kInconclusive);
  EXPECT_EQ(never.rounds, kQuickRounds);
}

// A short band of a loaded machine says that nothing is known, not that nothing differs.
TEST(Quick, AWideBandMakesNothingEqualAndIsTheReason) {
  const AbShape shape = Quick({.ratio = 1.1}, 0.27);
  EXPECT_EQ(shape.verdict, Verdict::kInconclusive);
  EXPECT_TRUE(shape.band_too_wide);
  EXPECT_EQ(shape.reason, "the noise band is ±27.0 %: too wide to call them equal");
  EXPECT_EQ(Quick({.ratio = 1.01}, 0.27).verdict, Verdict::kEquivalent);
}

TEST(Quick, TroubleMakesItInvalidHoweverClearTheSamplesAre) {
  const AbShape shape = Quick({.ratio = 0.5, .trouble_at = 4});
  EXPECT_EQ(shape.verdict, Verdict::kInvalid);
  EXPECT_EQ(shape.reason, "the clock drifts");
  EXPECT_EQ(shape.rounds, 4);  // kept for whoever wants to see
}

TEST(Quick, ASampleThatIsNoTimeMakesItInvalid) {
  const AbShape shape = Quick({.ratio = 0.5, .nan_at = 5});
  EXPECT_EQ(shape.verdict, Verdict::kInvalid);
  EXPECT_THAT(shape.reason, HasSubstr("round 6 is not a positive time"));
}

TEST(Quick, AFaultNamesWhoseItIs) {
  EXPECT_EQ(Quick({.fault_at = 0}).reason, "challenger b: RUNTIME_ERROR: a trap");
  const AbShape shape = Quick({.fault_at = 4, .fault_of = kIncumbent});
  EXPECT_EQ(shape.verdict, Verdict::kInvalid);
  EXPECT_EQ(shape.reason, "incumbent a: RUNTIME_ERROR: a trap");
}

TEST(Quick, NumbersThatAreWrongAfterTheTimingMakeItInvalid) {
  const AbShape shape = Quick({.ratio = 0.5, .wrong_afterwards = true});
  EXPECT_EQ(shape.verdict, Verdict::kInvalid);
  EXPECT_THAT(shape.reason, HasSubstr("challenger b: INCORRECT_NUMERICAL"));
}

TEST(Quick, WhatIsCutShortIsJudgedOnlyIfItsNumbersWereCheckedAgain) {
  int looks = 0;
  const AbShape budget = Quick({.ratio = 1.002}, 0.001, 1, Quiet(), [&] { return looks++ < 1; });
  EXPECT_EQ(budget.rounds, kRoundsPerLook);
  EXPECT_EQ(budget.verdict, Verdict::kInconclusive);
  EXPECT_EQ(budget.reason, "stopped after 4 rounds");
  const AbShape cancelled = Quick({.ratio = 0.5, .cancelled_at = 4});
  EXPECT_EQ(cancelled.verdict, Verdict::kInconclusive);
  EXPECT_EQ(cancelled.rounds, 4);
}

AbShape Judged(Verdict verdict) {
  AbShape shape;
  shape.verdict = verdict;
  return shape;
}

TEST(Quick, TheWholeIsALossWhereAnyShapeIsAndAWinOnlyWhereNoneIsInDoubt) {
  const auto whole = [](std::initializer_list<Verdict> verdicts) {
    std::vector<AbShape> shapes;
    for (const Verdict verdict : verdicts) shapes.push_back(Judged(verdict));
    return Whole(shapes);
  };
  EXPECT_EQ(whole({Verdict::kWin, Verdict::kEquivalent}), Verdict::kWin);
  EXPECT_EQ(whole({Verdict::kEquivalent, Verdict::kEquivalent}), Verdict::kEquivalent);
  EXPECT_EQ(whole({Verdict::kWin, Verdict::kInconclusive}), Verdict::kInconclusive);
  EXPECT_EQ(whole({Verdict::kWin, Verdict::kInvalid}), Verdict::kInvalid);
  EXPECT_EQ(whole({Verdict::kInvalid, Verdict::kLoss, Verdict::kWin}), Verdict::kLoss);
}

TEST(Quick, TheLastLineSaysWhereItIsNotDecided) {
  AbReport report = ReportOf(Shapes(2), 1);
  report.ship_asked = false;
  report.shapes[0].verdict = Verdict::kWin;
  report.verdict = Whole(report.shapes);
  EXPECT_EQ(Conclusion(report),
            "w8 against baseline: INCONCLUSIVE at 1 of 2 shapes, WIN at 1; not decided at every "
            "shape.");
}

// --- sessions and ship verdicts ---------------------------------------------------------------

TEST(Sessions, EachIsInAFreshProcessThatMeasuresEveryShapeInAnyOrder) {
  FakeSource source(Quiet(), {}, 5);
  const auto taken = *TakeSessions(source, Shapes(4), ShortPlan(8));
  EXPECT_EQ(source.processes, 8);
  ASSERT_THAT(source.opened, SizeIs(32));
  std::set<std::vector<int64_t>> orders;
  for (int session = 0; session < 8; ++session) {
    std::vector<int64_t> order;
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(source.opened[4 * session + i].first, session + 1);
      order.push_back(source.opened[4 * session + i].second);
    }
    orders.insert(order);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, (std::vector<int64_t>{1, 2, 3, 4}));
  }
  EXPECT_GT(orders.size(), 1u);
  for (const ShapeSessions& shape : taken) EXPECT_THAT(shape.kept, SizeIs(8));
}

TEST(Sessions, TroubleIsMeasuredOnceMoreInAFreshProcess) {
  FakeSource source(Quiet(), {}, 5);
  source.specials[2] = {.trouble_at = 8};
  const auto taken = *TakeSessions(source, Shapes(1), ShortPlan());
  EXPECT_EQ(source.processes, 7);
  EXPECT_THAT(taken[0].kept, SizeIs(6));
  EXPECT_TRUE(taken[0].sound());
}

TEST(Sessions, TroubleTwiceEndsAShapeAndLeavesTheOthers) {
  FakeSource source(Quiet(), {}, 5);
  source.specials[0] = source.specials[2] = {.trouble_at = 8};  // 2: taken once more
  const auto taken = *TakeSessions(source, Shapes(2), ShortPlan());
  const int64_t first = source.opened[0].second;
  EXPECT_THAT(taken[first - 1].trouble, HasSubstr("the clock drifts"));
  EXPECT_THAT(taken[2 - first].kept, SizeIs(6));
}

TEST(Ship, AWinAtOneShapeWithoutRegressionShips) {
  FakeSource source(Quiet(), {}, 5);
  source.ratios[2] = 0.9;
  const AbReport report = Ship(source, 3, ShortPlan(stats::kShipSessions));
  EXPECT_TRUE(report.ship);
  EXPECT_EQ(report.verdict, Verdict::kWin);
  EXPECT_EQ(report.shapes[1].verdict, Verdict::kWin);
  EXPECT_NEAR(report.shapes[1].difference, std::log(0.9), 0.005);
  EXPECT_EQ(report.shapes[1].rounds, 320);
  EXPECT_EQ(
      Conclusion(report),
      "w8 against baseline: SHIP: WIN at 1 of 3 shapes, EQUIVALENT at 2; no regression of 3 % "
      "at any.");
  EXPECT_EQ(Answer(report), "SHIP");
  EXPECT_EQ(SessionsText(report), "16 sessions");
}

TEST(Ship, ALossAnywhereDoesNot) {
  FakeSource source(Quiet(), {}, 5);
  source.ratios = {{1, 0.9}, {2, 1.1}};
  const AbReport report = Ship(source, 3, ShortPlan(stats::kShipSessions));
  EXPECT_FALSE(report.ship);
  EXPECT_EQ(report.verdict, Verdict::kLoss);
  EXPECT_EQ(Conclusion(report),
            "w8 against baseline: LOSS at 1 of 3 shapes, WIN at 1, EQUIVALENT at 1; do not ship.");
}

TEST(Ship, AgainstItselfNeverShips) {
  int decided = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    FakeSource source(stats::ModelsAt(0.06)[2], {}, seed);
    SessionsPlan plan = ShortPlan(stats::kShipSessions);
    plan.rounds = stats::kShipRounds;
    const AbReport report = Ship(source, 3, plan);
    decided += report.verdict == Verdict::kWin || report.verdict == Verdict::kLoss;
    EXPECT_FALSE(report.ship) << seed;
  }
  std::printf("A/A ship verdicts that found a difference: %d of 50\n", decided);
  EXPECT_LE(decided, 2);
}

TEST(Ship, AFaultNamesTheContestantAndSpoilsTheWhole) {
  FakeSource source(Quiet(), {}, 5);
  source.specials[3] = {.fault_at = 4};
  const AbReport report = Ship(source, 1, ShortPlan(stats::kShipSessions));
  EXPECT_EQ(report.verdict, Verdict::kInvalid);
  EXPECT_EQ(report.shapes[0].reason, "challenger w8: RUNTIME_ERROR: a trap");
  EXPECT_THAT(source.opened, SizeIs(4));  // no session more
}

TEST(Ship, AShapeThatMemoryDoesNotSufficeForIsInvalid) {
  FakeSource source(Quiet(), {}, 5);
  source.refuse[2] = true;
  const AbReport report = Ship(source, 2, ShortPlan(stats::kShipSessions));
  EXPECT_EQ(report.shapes[0].verdict, Verdict::kEquivalent);
  EXPECT_EQ(report.shapes[1].verdict, Verdict::kInvalid);
  EXPECT_THAT(report.shapes[1].reason, HasSubstr("insufficient memory"));
}

TEST(Ship, OneShapeThatShipsSaysSo) {
  FakeSource source(Quiet(), {.ratio = 0.9}, 5);
  EXPECT_EQ(Conclusion(Ship(source, 1, ShortPlan(stats::kShipSessions))),
            "w8 against baseline: SHIP; no regression of 3 %.");
}

TEST(Ship, FewerSessionsNeverDoAndMayLose) {
  for (const int sessions : {2, 6, stats::kShipSessions - 1}) {
    for (const double ratio : {0.9, 1.0}) {
      FakeSource source(Quiet(), {.ratio = ratio}, 5);
      const AbReport report = Ship(source, 1, ShortPlan(sessions));
      EXPECT_EQ(report.verdict, Verdict::kInconclusive) << sessions;
      EXPECT_EQ(report.shapes[0].verdict, Verdict::kInconclusive) << sessions;
      EXPECT_FALSE(report.ship);
      EXPECT_EQ(report.shapes[0].reason,
                std::to_string(sessions) + " of 16 sessions: too few to ship");
      EXPECT_EQ(Conclusion(report), "w8 against baseline: INCONCLUSIVE; do not ship.");
    }
  }
  FakeSource source(Quiet(), {.ratio = 1.1}, 5);
  EXPECT_EQ(Ship(source, 1, ShortPlan(6)).verdict, Verdict::kLoss);
}

// Sessions whose medians are `mean` on average, each `apart` from it.
ShapeSessions Around(double mean, double apart) {
  ShapeSessions taken;
  for (int s = 0; s < stats::kShipSessions; ++s) {
    SessionResult& session = taken.kept.emplace_back();
    session.us[kIncumbent] = {kUs, kUs};
    const double us = kUs * std::exp(mean + (s % 2 == 0 ? apart : -apart));
    session.us[kChallenger] = {us, us};
    session.proved = true;
  }
  return taken;
}

TEST(Ship, WhatDecidedIsSaidWhereTheIntervalReadsOtherwise) {
  AbReport report = ReportOf(Shapes(3), stats::kShipSessions);
  // The first interval reaches beyond 3 %, the second lies below -1 % by a little.
  JudgeSessions({Around(0.02, 0.02), Around(-0.016, 0.01), Around(0, 0.001)}, report);
  ASSERT_TRUE(report.shapes[0].regression_excluded);
  ASSERT_GT(report.shapes[0].interval.high, 0.03);
  EXPECT_LT(report.shapes[0].regression_bound, 0.03);
  EXPECT_THAT(DecidedBy(report, report.shapes[0]),
              HasSubstr("no regression of 3 %: the one-sided bound (95 %) is +2.9 %"));
  ASSERT_LT(report.shapes[1].interval.high, -0.01);
  ASSERT_NE(report.shapes[1].verdict, Verdict::kWin);
  EXPECT_THAT(DecidedBy(report, report.shapes[1]), HasSubstr("no win: Holm over 3 shapes"));
  EXPECT_EQ(DecidedBy(report, report.shapes[2]), "");
}

// Time does not look at results; people do.
TEST(Ship, ABudgetLeavesAVerdictOfWhatWasFinishedAndAnInterruptionDoesNot) {
  SessionsPlan plan = ShortPlan(16);
  int asked = 0;
  plan.keep_going = [&] { return asked++ < 40; };
  FakeSource source(Quiet(), {.ratio = 1.1}, 5);
  std::vector<ShapeSessions> taken = *TakeSessions(source, Shapes(1), plan);
  const size_t finished = taken[0].kept.size();
  ASSERT_GT(finished, 2u);
  ASSERT_LT(finished, 16u);
  AbReport report = ReportOf(Shapes(1), 16);
  JudgeSessions(taken, report);
  EXPECT_EQ(report.verdict, Verdict::kLoss);
  EXPECT_THAT(report.shapes[0].reason, HasSubstr("of 16 sessions"));
  EXPECT_EQ(SessionsText(report), std::to_string(finished) + " of 16 sessions");

  AbReport interrupted = ReportOf(Shapes(1), 16);
  interrupted.cancelled = true;
  JudgeSessions(taken, interrupted);
  EXPECT_EQ(interrupted.verdict, Verdict::kInconclusive);
  EXPECT_FALSE(interrupted.ship);
  EXPECT_NEAR(interrupted.shapes[0].difference, std::log(1.1), 0.01);
}

TEST(Ship, NothingMeasuredIsInconclusive) {
  SessionsPlan plan = ShortPlan(stats::kShipSessions);
  plan.keep_going = [] { return false; };
  FakeSource source(Quiet(), {}, 5);
  const AbReport report = Ship(source, 2, plan);
  EXPECT_EQ(source.processes, 0);
  EXPECT_EQ(report.verdict, Verdict::kInconclusive);
  EXPECT_EQ(report.shapes[0].reason, "0 of 16 sessions: too few to ship");
}

}  // namespace
}  // namespace kvr
