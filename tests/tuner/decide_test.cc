// SPDX-License-Identifier: Apache-2.0
//
// How a key is decided, on simulated times: who wins, who stays, and what is made of configs that
// go wrong, of trouble, and of a time that runs out. Seeded; no clock, no device.
#include "tuner/decide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace kvr {
namespace {

using stats::Verdict;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Configs of known times with 3 % noise.
class FakeKey : public KeySampler {
 public:
  FakeKey(std::vector<double> us, uint64_t seed)
      : us_(std::move(us)), passed_(us_.size(), true), random_(seed) {}

  int subjects() const override { return static_cast<int>(us_.size()); }
  absl::StatusOr<SampleTable> Sample(absl::Span<const int> subjects, int rounds) override {
    SampleTable table;
    for (int round = 0; round < rounds; ++round) {
      ++rounds_;
      if (rounds_ >= trouble_from_ && rounds_ < trouble_until_) trouble_ = "the device drifted";
      std::vector<double>& row = table.emplace_back();
      for (int subject : subjects) {
        if (dies_in_.count(subject) > 0 && rounds_ >= dies_in_[subject]) passed_[subject] = false;
        row.push_back(passed_[subject] ? us_[subject] * std::exp(0.03 * normal_(random_))
                                       : std::numeric_limits<double>::quiet_NaN());
      }
    }
    return table;
  }
  std::string trouble() const override { return trouble_; }
  absl::Status Check(absl::Span<const int> subjects) override {
    for (int subject : subjects) {
      if (wrong_.count(subject) > 0 && wrong_[subject]-- <= 0) passed_[subject] = false;
    }
    return absl::OkStatus();
  }
  bool Passed(int subject) const override { return passed_[subject]; }
  void Renew() override {
    ++renewed_;
    trouble_.clear();
  }

  std::vector<double> us_;
  std::vector<bool> passed_;
  std::map<int, int> wrong_;    // subject: the checks it passes before it is found wrong
  std::map<int, int> dies_in_;  // subject: the round
  int trouble_from_ = 1 << 30, trouble_until_ = 1 << 30;
  int rounds_ = 0, renewed_ = 0;

 private:
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::string trouble_;
};

struct Heard : DecideObserver {
  void Dueled(const Duel& duel) override { duels.push_back(duel); }
  void Alone(int subject, double) override { alone.push_back(subject); }
  void Raced(const stats::RaceResult&, const std::string& trouble) override { raced = trouble; }
  std::vector<Duel> duels;
  std::vector<int> alone;
  std::string raced = "not heard of";
};

KeyDecision Decide(FakeKey& key, int incumbent, Heard& heard, const DecideOptions& options = {},
                   const stats::KeepRacing& race = nullptr,
                   const stats::KeepRacing& duel = nullptr) {
  return *DecideKey(key, incumbent, options, race, duel, heard);
}

TEST(DecideTest, ABetterConfigTakesTheIncumbentsPlace) {
  Heard heard;
  FakeKey key({100, 120, 85, 130, 110, 95}, 1);
  const KeyDecision decision = Decide(key, 0, heard);
  EXPECT_EQ(decision.winner, 2);
  EXPECT_FALSE(decision.incumbent_kept);
  EXPECT_TRUE(decision.held);
  EXPECT_EQ(decision.duel.verdict, Verdict::kWin);
  EXPECT_NEAR(decision.duel.difference, std::log(0.85), 0.02);
  EXPECT_LT(decision.duel.interval.high, -stats::kLeastBand);
  EXPECT_NEAR(decision.winner_us, 85, 3);
  EXPECT_EQ(heard.raced, "");
}

TEST(DecideTest, ATieKeepsTheIncumbent) {
  int changed = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Heard heard;
    FakeKey key(std::vector<double>(16, 100), seed);
    const KeyDecision decision = Decide(key, 3, heard);
    EXPECT_TRUE(decision.held);
    EXPECT_NE(decision.duel.challenger, 3);
    changed += decision.winner != 3;
  }
  std::printf("16 equal configs: the incumbent was replaced %d times of 60\n", changed);
  EXPECT_LE(changed, 1);
}

TEST(DecideTest, AnIncumbentThatWinsTheRaceMeetsTheNextBest) {
  Heard heard;
  FakeKey key({100, 150, 110}, 2);
  const KeyDecision decision = Decide(key, 0, heard);
  EXPECT_EQ(decision.race.winner, 0);
  EXPECT_EQ(decision.duel.challenger, 2);
  EXPECT_EQ(decision.duel.verdict, Verdict::kLoss);
  EXPECT_EQ(decision.winner, 0);
  EXPECT_TRUE(decision.incumbent_kept);
}

TEST(DecideTest, AnIncumbentThatTheRaceDroppedIsStillMet) {
  Heard heard;
  FakeKey key({300, 100, 104, 103, 102, 101}, 3);
  const KeyDecision decision = Decide(key, 0, heard);
  EXPECT_EQ(decision.race.stages.front().left, std::vector<int>({0}));
  EXPECT_EQ(decision.duel.incumbent, 0);
  EXPECT_EQ(decision.duel.verdict, Verdict::kWin);
}

TEST(DecideTest, AFinalistWithWrongNumbersGivesWayToTheNext) {
  Heard heard;
  FakeKey key({100, 60, 80, 90}, 4);
  key.wrong_[1] = 0;  // found right after the race
  key.wrong_[2] = 0;  // found right after its duel
  const KeyDecision decision = Decide(key, 0, heard);
  EXPECT_EQ(decision.winner, 3);
  ASSERT_EQ(heard.duels.size(), 2u);
  EXPECT_EQ(heard.duels[0].challenger, 2);
  EXPECT_EQ(heard.duels[0].verdict, Verdict::kInvalid);
  EXPECT_EQ(heard.duels[1].challenger, 3);
}

TEST(DecideTest, AChallengerThatDiesInItsDuelGivesWayToTheNext) {
  Heard heard;
  FakeKey race({100, 60, 80}, 5);
  ASSERT_TRUE(stats::Race(race, {}).ok());
  FakeKey key({100, 60, 80}, 5);
  key.dies_in_[1] = race.rounds_ + 3;
  const KeyDecision decision = Decide(key, 0, heard);
  EXPECT_EQ(decision.winner, 2);
  EXPECT_EQ(decision.duel.verdict, Verdict::kWin);
}

TEST(DecideTest, WithoutAnIncumbentTheRaceDecidesOnFreshSamples) {
  for (const int incumbent : {-1, 1}) {
    Heard heard;
    FakeKey key({100, 50, 80}, 6);
    key.wrong_[1] = 0;  // the incumbent itself, where there is one
    const KeyDecision decision = Decide(key, incumbent, heard);
    EXPECT_EQ(decision.winner, 2);
    EXPECT_FALSE(decision.held);
    EXPECT_FALSE(decision.incumbent_kept);
    EXPECT_NEAR(decision.winner_us, 80, 3);
    EXPECT_THAT(heard.alone, ElementsAre(2));
    EXPECT_TRUE(heard.duels.empty());
  }
}

TEST(DecideTest, AnIncumbentThatNobodyIsLeftToMeetIsMeasuredAlone) {
  Heard heard;
  FakeKey key({100, 90}, 7);
  key.wrong_[1] = 0;
  const KeyDecision decision = Decide(key, 0, heard);
  EXPECT_EQ(decision.winner, 0);
  EXPECT_TRUE(decision.incumbent_kept);
  EXPECT_FALSE(decision.held);
  EXPECT_THAT(heard.alone, ElementsAre(0));
  FakeKey only({100}, 7);
  EXPECT_EQ(Decide(only, 0, heard).winner, 0);
}

TEST(DecideTest, NobodyWithATimeIsNobodySelected) {
  Heard heard;
  FakeKey key({100, 90}, 8);
  key.dies_in_ = {{0, 1}, {1, 1}};
  EXPECT_EQ(Decide(key, 0, heard).winner, -1);
  FakeKey wrong({100, 90}, 8);
  wrong.wrong_ = {{0, 0}, {1, 0}};
  EXPECT_EQ(Decide(wrong, 0, heard).winner, -1);
}

TEST(DecideTest, TroubleInTheRaceDoesNotReachTheDuel) {
  Heard heard;
  FakeKey key({100, 80, 90, 95}, 9);
  key.trouble_from_ = 4;
  key.trouble_until_ = 6;
  const KeyDecision decision = Decide(key, 0, heard);
  EXPECT_THAT(decision.race_trouble, HasSubstr("drifted"));
  EXPECT_EQ(heard.raced, decision.race_trouble);
  EXPECT_EQ(decision.duel.verdict, Verdict::kWin);
  EXPECT_EQ(decision.winner, 1);
}

TEST(DecideTest, ADuelInTroubleIsHeldOnceMoreAndIsInvalidThen) {
  Heard heard;
  FakeKey key({100, 50}, 10);
  ASSERT_TRUE(stats::Race(key, {}).ok());
  FakeKey again({100, 50}, 10);
  again.trouble_from_ = key.rounds_ + 1;
  again.trouble_until_ = key.rounds_ + 2;
  EXPECT_EQ(Decide(again, 0, heard).duel.verdict, Verdict::kWin);
  EXPECT_EQ(heard.duels.size(), 2u);
  EXPECT_EQ(heard.duels[0].verdict, Verdict::kInvalid);

  FakeKey always({100, 50}, 10);
  always.trouble_from_ = 0;
  const KeyDecision decision = Decide(always, 0, heard);
  EXPECT_EQ(decision.duel.verdict, Verdict::kInvalid);
  EXPECT_THAT(decision.duel.reason, HasSubstr("drifted"));
  EXPECT_EQ(decision.winner, 0);
  EXPECT_TRUE(decision.incumbent_kept);
}

TEST(DecideTest, WithoutABandThereIsNoWin) {
  Heard heard;
  DecideOptions options;
  options.no_verdict = "no noise band";
  FakeKey key({100, 50}, 11);
  KeyDecision decision = Decide(key, 0, heard, options);
  EXPECT_EQ(decision.duel.verdict, Verdict::kInvalid);
  EXPECT_EQ(decision.duel.reason, "no noise band");
  EXPECT_NEAR(decision.duel.challenger_us, 50, 2);  // timed all the same
  EXPECT_EQ(decision.winner, 0);
  options.without = Verdict::kInconclusive;
  FakeKey again({100, 50}, 11);
  decision = Decide(again, 0, heard, options);
  EXPECT_EQ(decision.duel.verdict, Verdict::kInconclusive);
  EXPECT_EQ(decision.winner, 0);
}

TEST(DecideTest, ADuelCutShortIsInconclusiveUnlessItWasDecided) {
  Heard heard;
  int looks = 0;
  FakeKey key({100, 97}, 12);
  KeyDecision decision = Decide(key, 0, heard, {}, nullptr, [&] { return looks++ < 1; });
  EXPECT_EQ(decision.duel.verdict, Verdict::kInconclusive);
  EXPECT_THAT(decision.duel.reason, HasSubstr("no time was left after 4 rounds"));
  EXPECT_EQ(decision.winner, 0);
  FakeKey none({100, 50}, 12);
  decision = Decide(none, 0, heard, {}, nullptr, [] { return false; });
  EXPECT_EQ(decision.duel.rounds, 0);
  EXPECT_EQ(decision.duel.verdict, Verdict::kInconclusive);
  EXPECT_EQ(decision.winner, 0);
  EXPECT_NEAR(decision.winner_us, 100, 5);  // of the race
}

TEST(DecideTest, ARaceStoppedEarlyStillPutsItsBestToTheIncumbent) {
  Heard heard;
  std::vector<double> us(64, 150);
  us[40] = 80;
  us[0] = 100;
  FakeKey key(us, 13);
  int rounds = 0;
  const KeyDecision decision = Decide(key, 0, heard, {}, [&] { return rounds++ < 3; });
  EXPECT_TRUE(decision.race.stopped);
  EXPECT_EQ(decision.winner, 40);
  EXPECT_EQ(decision.duel.verdict, Verdict::kWin);
  FakeKey unraced(us, 13);
  EXPECT_EQ(Decide(unraced, 0, heard, {}, [] { return false; }).winner, -1);
}

}  // namespace
}  // namespace kvr
