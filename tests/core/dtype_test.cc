// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "tests/core/samples.h"

namespace kvr {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(DType, NamesRoundTrip) {
  for (int i = 0; i <= static_cast<int>(DType::kF64); ++i) {
    DType dtype = static_cast<DType>(i);
    EXPECT_EQ(*ParseDType(DTypeName(dtype)), dtype);
    EXPECT_GT(DTypeSize(dtype), 0);
    EXPECT_FALSE(DTypeCudaName(dtype).empty());
  }
  EXPECT_THAT(ParseDType("bfloat").status(),
              IsError(kInvalid, "unknown dtype 'bfloat'", "did you mean 'bfloat16'"));
}

// Checks a rounding against its definition: of the finite values that the format has, listed in
// ascending order of their codes, the nearest, and of two equally near the one with even code.
void CheckRounding(const std::vector<float>& values, float overflow,
                   const std::function<uint32_t(float)>& round, uint32_t sign, uint32_t above) {
  std::mt19937 random(5);
  auto expect = [&](float x) {
    if (x >= overflow) return above;
    auto bound = std::lower_bound(values.begin(), values.end() - 1, x);
    const size_t high = static_cast<size_t>(bound - values.begin());
    if (high == 0) return 0u;
    double up = static_cast<double>(values[high]) - x,
           down = x - static_cast<double>(values[high - 1]);
    size_t best = up < down ? high : high - 1;
    if (up == down) best = high % 2 == 0 ? high : high - 1;
    return static_cast<uint32_t>(best);
  };
  auto check = [&](float x) {
    ASSERT_EQ(round(x), expect(x)) << x;
    ASSERT_EQ(round(-x), expect(x) | sign) << -x;
  };
  for (size_t i = 0; i + 1 < values.size(); i += 1 + values.size() / 2000) {
    check(values[i]);
    check(values[i] / 2 + values[i + 1] / 2);  // ties
    check(std::nextafter(values[i] / 2 + values[i + 1] / 2, kInf));
    check(std::nextafter(values[i] / 2 + values[i + 1] / 2, 0.0f));
  }
  std::uniform_real_distribution<float> exponent(-30, 18);
  for (int i = 0; i < 1000; ++i) check(std::exp2(exponent(random)));
  check(std::numeric_limits<float>::max());
  check(std::numeric_limits<float>::denorm_min());
}

TEST(DType, HalfRoundsToNearestEven) {
  std::vector<float> values;
  for (uint32_t code = 0; code < 0x7c00; ++code) values.push_back(F16ToFloat(code));
  CheckRounding(values, 65520.0f, FloatToF16, 0x8000, 0x7c00);
  for (uint32_t code = 0; code <= 0xffff; ++code) {
    float value = F16ToFloat(static_cast<uint16_t>(code));
    if (!std::isnan(value)) {
      ASSERT_EQ(FloatToF16(value), code);
    }
  }
  EXPECT_EQ(FloatToF16(kInf), 0x7c00);
  EXPECT_EQ(FloatToF16(-kInf), 0xfc00);
  EXPECT_TRUE(std::isnan(F16ToFloat(FloatToF16(kNan))));
}

TEST(DType, E4m3RoundsToNearestEvenAndSaturates) {
  std::vector<float> values;
  for (uint32_t code = 0; code < 0x7f; ++code) values.push_back(E4m3ToFloat(code));
  EXPECT_EQ(values.back(), 448.0f);
  CheckRounding(values, 448.0f, FloatToE4m3, 0x80, 0x7e);
  for (uint32_t code = 0; code <= 0xff; ++code) {
    float value = E4m3ToFloat(static_cast<uint8_t>(code));
    if (!std::isnan(value)) {
      ASSERT_EQ(FloatToE4m3(value), code);
    }
  }
  EXPECT_EQ(FloatToE4m3(kInf), 0x7e);
  EXPECT_EQ(FloatToE4m3(-1e30f), 0xfe);
  EXPECT_EQ(FloatToE4m3(kNan), 0x7f);
}

TEST(DType, Bf16RoundsToNearestEven) {
  for (uint32_t code = 0; code <= 0xffff; ++code) {
    float value = Bf16ToFloat(static_cast<uint16_t>(code));
    if (!std::isnan(value)) {
      ASSERT_EQ(FloatToBf16(value), code);
    }
  }
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3f808000u)), 0x3f80) << "tie to even, down";
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3f818000u)), 0x3f82) << "tie to even, up";
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(FloatToBf16(std::numeric_limits<float>::max()), 0x7f80) << "rounds to infinity";
  EXPECT_EQ(FloatToBf16(kInf), 0x7f80);
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(std::bit_cast<float>(0x7f800001u)))))
      << "a NaN whose payload lies in the low half stays one";
}

TEST(DType, E8m0IsAPowerOfTwo) {
  EXPECT_EQ(E8m0ToFloat(127), 1.0f);
  EXPECT_EQ(E8m0ToFloat(0), std::ldexp(1.0f, -127));
  EXPECT_EQ(E8m0ToFloat(254), std::ldexp(1.0f, 127));
  EXPECT_TRUE(std::isnan(E8m0ToFloat(255)));
}

TEST(DType, LoadAsDoubleReadsEveryType) {
  const uint8_t bytes[] = {0, 7};
  EXPECT_EQ(LoadAsDouble(bytes, DType::kBool, 1), 1);
  EXPECT_EQ(LoadAsDouble(bytes, DType::kU8, 1), 7);
  const int32_t ints[] = {1, -5};
  EXPECT_EQ(LoadAsDouble(ints, DType::kI32, 1), -5);
  const int64_t longs[] = {1, -(int64_t{1} << 40)};
  EXPECT_EQ(LoadAsDouble(longs, DType::kI64, 1), -std::ldexp(1.0, 40));
  const uint16_t halves[] = {0, FloatToF16(0.5f), FloatToBf16(-2.0f)};
  EXPECT_EQ(LoadAsDouble(halves, DType::kF16, 1), 0.5);
  EXPECT_EQ(LoadAsDouble(halves, DType::kBF16, 2), -2.0);
  const uint8_t eights[] = {FloatToE4m3(-1.5f), 128};
  EXPECT_EQ(LoadAsDouble(eights, DType::kF8E4M3, 0), -1.5);
  EXPECT_EQ(LoadAsDouble(eights, DType::kF8E8M0, 1), 2.0);
  const float floats[] = {0, 0.25f};
  EXPECT_EQ(LoadAsDouble(floats, DType::kF32, 1), 0.25);
  const double doubles[] = {0, 1e300};
  EXPECT_EQ(LoadAsDouble(doubles, DType::kF64, 1), 1e300);
}

}  // namespace
}  // namespace kvr
