// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "variants/common/moe/lanes.h"
#include "variants/common/random.h"

namespace kvr::moe {
namespace {

// In (-1, 1), of magnitudes that differ widely: every order of a sum has bits of its own.
double Value(const RandomStream& random, uint64_t i) {
  const auto within = static_cast<double>(static_cast<int64_t>(random.Bits(2 * i))) / 0x1p63;
  return std::ldexp(within, -static_cast<int>(random.Below(2 * i + 1, 30)));
}

class LaneMathTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    math_ = std::string(GetParam()) == "plain" ? &PlainLaneMath() : WideLaneMath();
    if (math_ == nullptr) GTEST_SKIP() << "this processor has no such instructions";
  }
  const LaneMath* math_ = nullptr;
};

// One product, one addition, one after the other: no other order, nothing fused.
TEST_P(LaneMathTest, EverySumKeepsItsPlainOrder) {
  const RandomStream random(1, 0);
  for (const int64_t width : {1, 2, 7, 8, 100}) {
    std::vector<double> rows(LaneMath::kDotRows * width);
    std::vector<Lanes> columns(width);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = Value(random, i);
    for (int64_t d = 0; d < width; ++d) {
      for (int t = 0; t < kLanes; ++t) columns[d].of[t] = Value(random, 1000 + d * kLanes + t);
    }
    Lanes dot[LaneMath::kDotRows], sum[LaneMath::kSumRows], magnitude[LaneMath::kSumRows];
    math_->dot(rows.data(), width, columns.data(), dot);
    math_->sum(rows.data(), width, columns.data(), sum, magnitude);
    for (int r = 0; r < LaneMath::kDotRows; ++r) {
      for (int t = 0; t < kLanes; ++t) {
        double expected = 0, expected_magnitude = 0;
        for (int64_t d = 0; d < width; ++d) {
          const volatile double term = rows[r * width + d] * columns[d].of[t];
          expected += term;
          expected_magnitude += std::abs(term);
        }
        EXPECT_EQ(dot[r].of[t], expected) << width << " " << r << " " << t;
        if (r >= LaneMath::kSumRows) continue;
        EXPECT_EQ(sum[r].of[t], expected) << width << " " << r << " " << t;
        EXPECT_EQ(magnitude[r].of[t], expected_magnitude) << width << " " << r << " " << t;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Instructions, LaneMathTest, testing::Values("plain", "wide"),
                         [](const auto& name) { return std::string(name.param); });

}  // namespace
}  // namespace kvr::moe
