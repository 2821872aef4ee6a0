// SPDX-License-Identifier: Apache-2.0
#include "tuner/pick.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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

TEST(CombineShapesTest, GeometricMeanAndNanIfAnyShapeFailed) {
  EXPECT_THAT(CombineShapes({{1, 4}}), ElementsAre(1, 4));
  const std::vector<double> combined = CombineShapes({{1, 4, kNan}, {4, 9, 1}});
  EXPECT_DOUBLE_EQ(combined[0], 2);
  EXPECT_DOUBLE_EQ(combined[1], 6);
  EXPECT_TRUE(std::isnan(combined[2]));
}

}  // namespace
}  // namespace kvr
