// SPDX-License-Identifier: Apache-2.0
#include "tuner/pick.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tuner/progress.h"

namespace kvr {
namespace {

using ::testing::ElementsAre;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(MedianTest, IgnoresWhatIsNoNumber) {
  EXPECT_EQ(Median({3, kNan, 1, 2}), 2);
  EXPECT_EQ(Median({1, 2}), 1.5);
  EXPECT_TRUE(std::isnan(Median({})));
  EXPECT_TRUE(std::isnan(Median({kNan})));
}

TEST(MedianTest, SpreadIsHalfTheInterquartileRangeOverTheMedian) {
  EXPECT_DOUBLE_EQ(RelativeSpread({1, 2, 3, 4, 5}), 1.0 / 3);
  EXPECT_TRUE(std::isnan(RelativeSpread({1})));
}

TEST(ScreenTest, DropsWhatIsClearlySlowButNeverTheIncumbent) {
  const std::vector<double> medians = {10, 100, kNan, 14, 16};
  EXPECT_THAT(Screen(medians, -1, {}), ElementsAre(0, 3));
  EXPECT_THAT(Screen(medians, 1, {}), ElementsAre(0, 3, 1));
  EXPECT_THAT(Screen(medians, 2, {}), ElementsAre(0, 3));  // it failed
}

TEST(ScreenTest, KeepsTheBestUpToTheLimit) {
  PickOptions options;
  options.survivors = 2;
  EXPECT_THAT(Screen({1.3, 1.2, 1.1, 1.0}, -1, options), ElementsAre(3, 2));
  EXPECT_THAT(Screen({}, -1, options), ElementsAre());
}

TEST(PickWinnerTest, ATieKeepsTheIncumbent) {
  const Picked picked = PickWinner({99.5, 100}, 1, 0.01);
  EXPECT_EQ(picked.winner, 1);
  EXPECT_TRUE(picked.incumbent_kept);
  EXPECT_NEAR(picked.gain, 0.005, 1e-12);
}

TEST(PickWinnerTest, AGainAtLeastAsLargeAsAskedWins) {
  const Picked picked = PickWinner({98, 100}, 1, 0.01);
  EXPECT_EQ(picked.winner, 0);
  EXPECT_FALSE(picked.incumbent_kept);
}

TEST(PickWinnerTest, WithoutAnIncumbentTheFastestWins) {
  EXPECT_EQ(PickWinner({3, 2, kNan}, -1, 0.01).winner, 1);
  EXPECT_EQ(PickWinner({3, 2, kNan}, 2, 0.01).winner, 1);  // its incumbent failed
  EXPECT_EQ(PickWinner({kNan}, -1, 0.01).winner, -1);
}

TEST(DecideTest, GainAndEvidenceAreOfFreshRoundsNotOfThoseThatChose) {
  int calls = 0;
  const auto picked = Decide({100, 90, 95}, 0, 0.01, [&](absl::Span<const int> subjects) {
    ++calls;
    EXPECT_THAT(subjects, ElementsAre(1, 0));
    return std::vector<double>{99.5, 100};  // what chose it was luck
  });
  ASSERT_TRUE(picked.ok()) << picked.status();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(picked->winner, 0);
  EXPECT_TRUE(picked->incumbent_kept);
  EXPECT_NEAR(picked->gain, 0.005, 1e-12);
  EXPECT_EQ(picked->winner_us, 100);
  EXPECT_EQ(picked->incumbent_us, 100);
}

TEST(DecideTest, TheBestAloneIsMeasuredAfreshToo) {
  const auto fresh = [](absl::Span<const int> subjects) {
    EXPECT_THAT(subjects, ElementsAre(1));
    return std::vector<double>{97};
  };
  for (int incumbent : {-1, 1, 2}) {
    const auto picked = Decide({100, 90, kNan}, incumbent, 0.01, fresh);
    ASSERT_TRUE(picked.ok()) << picked.status();
    EXPECT_EQ(picked->winner, 1);
    EXPECT_EQ(picked->winner_us, 97);
  }
}

TEST(DecideTest, ABestThatFailsThenGivesWayToTheNext) {
  const auto picked = Decide({100, 90, 95}, 0, 0.01, [&](absl::Span<const int> subjects) {
    return subjects[0] == 1 ? std::vector<double>{kNan, 100} : std::vector<double>{94, 100};
  });
  ASSERT_TRUE(picked.ok()) << picked.status();
  EXPECT_EQ(picked->winner, 2);
  EXPECT_EQ(picked->winner_us, 94);
  const auto none = Decide({100, 90}, 0, 0.01, [](absl::Span<const int> subjects) {
    return std::vector<double>(subjects.size(), kNan);
  });
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->winner, -1);
}

TEST(CombineShapesTest, GeometricMeanAndNanIfAnyShapeFailed) {
  EXPECT_THAT(CombineShapes({{1, 4}}), ElementsAre(1, 4));
  const std::vector<double> combined = CombineShapes({{1, 4, kNan}, {4, 9, 1}});
  EXPECT_DOUBLE_EQ(combined[0], 2);
  EXPECT_DOUBLE_EQ(combined[1], 6);
  EXPECT_TRUE(std::isnan(combined[2]));
}

TEST(PhaseProgressTest, CountsStepsAndKnowsNothingLeftAtTheEnd) {
  struct Record : Progress {
    void Update(const ProgressUpdate& update) override { updates.push_back(update); }
    void Note(std::string_view line) override { notes.emplace_back(line); }
    std::vector<ProgressUpdate> updates;
    std::vector<std::string> notes;
  } record;
  PhaseProgress progress(&record, Phase::kVerify, 2);
  progress.Begin("a");
  progress.Done();
  progress.Note("a failed");
  progress.Begin("b");
  progress.Done();
  ASSERT_EQ(record.updates.size(), 4u);
  EXPECT_LT(record.updates[0].eta_seconds, 0);
  EXPECT_EQ(record.updates[0].current, "a");
  EXPECT_EQ(record.updates[1].done, 1);
  EXPECT_GE(record.updates[1].eta_seconds, 0);
  EXPECT_EQ(record.updates[3].done, 2);
  EXPECT_EQ(record.updates[3].eta_seconds, 0);
  EXPECT_THAT(record.notes, ElementsAre("a failed"));
  PhaseProgress(nullptr, Phase::kVerify, 1).Begin("nobody watches");
}

}  // namespace
}  // namespace kvr
