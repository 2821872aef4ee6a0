// SPDX-License-Identifier: Apache-2.0
#include "variants/common/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/dtype.h"

namespace kvr {
namespace {

TEST(RandomStream, ValuesDependOnSeedStreamAndCounterAlone) {
  const RandomStream stream(1, 2);
  EXPECT_EQ(stream.Bits(3), RandomStream(1, 2).Bits(3));
  EXPECT_NE(stream.Bits(3), stream.Bits(4));
  EXPECT_NE(stream.Bits(3), RandomStream(1, 3).Bits(3));
  EXPECT_NE(stream.Bits(3), RandomStream(2, 2).Bits(3));
}

TEST(RandomStream, BelowReachesEveryValueAndNoOther) {
  const RandomStream stream(7, 0);
  std::vector<int> seen(10);
  for (int i = 0; i < 1000; ++i) {
    const uint32_t value = stream.Below(i, 10);
    ASSERT_LT(value, 10u);
    ++seen[value];
  }
  EXPECT_GT(*std::min_element(seen.begin(), seen.end()), 50);
}

TEST(FillNormalBf16, HasTheMomentsOfANormalDistribution) {
  std::vector<uint16_t> values(1 << 20);
  FillNormalBf16(RandomStream(11, 0), values);
  double sum = 0, squares = 0, fourths = 0;
  int within_one = 0;
  for (uint16_t bits : values) {
    const double x = Bf16ToFloat(bits);
    sum += x, squares += x * x, fourths += x * x * x * x;
    within_one += std::abs(x) < 1;
  }
  const double n = static_cast<double>(values.size());
  EXPECT_NEAR(sum / n, 0, 0.005);
  EXPECT_NEAR(squares / n, 1, 0.01);
  EXPECT_NEAR(fourths / n, 3, 0.06);
  EXPECT_NEAR(within_one / n, 0.6827, 0.003);
}

TEST(FillNormalBf16, APrefixDoesNotDependOnTheLength) {
  std::vector<uint16_t> one(1001), two(700001);
  FillNormalBf16(RandomStream(3, 1), one);
  FillNormalBf16(RandomStream(3, 1), two);
  EXPECT_TRUE(std::equal(one.begin(), one.end(), two.begin()));
}

}  // namespace
}  // namespace kvr
