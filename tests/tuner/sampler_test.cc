// SPDX-License-Identifier: Apache-2.0
#include "tuner/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tuner/key_sampler.h"

namespace kvr {
namespace {

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

TEST(CombineShapesTest, OneShapeIsItself) {
  EXPECT_EQ(CombineShapes({{{1, 2}, {3, 4}}}), (SampleTable{{1, 2}, {3, 4}}));
  EXPECT_EQ(CombineShapes({}), SampleTable());
}

TEST(CombineShapesTest, SeveralShapesGiveTheGeometricMeanOfEachRound) {
  const SampleTable combined = CombineShapes({{{1, 2}}, {{4, 8}}});
  ASSERT_EQ(combined.size(), 1u);
  EXPECT_DOUBLE_EQ(combined[0][0], 2);
  EXPECT_DOUBLE_EQ(combined[0][1], 4);
}

TEST(CombineShapesTest, WhoFailsAtOneShapeHasFailed) {
  for (const double bad : {kNan, 0.0, -1.0, std::numeric_limits<double>::infinity()}) {
    const SampleTable combined = CombineShapes({{{1, 2}}, {{bad, 8}}});
    EXPECT_TRUE(std::isnan(combined[0][0])) << bad;
    EXPECT_DOUBLE_EQ(combined[0][1], 4);
  }
}

}  // namespace
}  // namespace kvr
