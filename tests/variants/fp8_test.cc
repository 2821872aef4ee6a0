// SPDX-License-Identifier: Apache-2.0
//
// The 8-bit formats of quantised caches on the host: codes, rounding, powers of two.
#include "variants/common/fp8.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kvr {
namespace {

TEST(E4m3, EveryCodeComesBack) {
  for (int code = 0; code < 256; ++code) {
    const double value = DecodeE4m3(static_cast<uint8_t>(code));
    if (code % 128 == 127) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(EncodeE4m3(static_cast<float>(value)), code) << value;
    }
  }
  EXPECT_EQ(DecodeE4m3(0x44), 3);
  EXPECT_EQ(DecodeE4m3(0x01), 0x1p-9);
  EXPECT_EQ(DecodeE4m3(0x7e), 448);
}

TEST(E4m3, RoundsToTheNearestTiesToEvenAndSaturates) {
  constexpr uint8_t kOne = 0x38, kTwo = 0x40;
  EXPECT_EQ(EncodeE4m3(1.0625f), kOne);      // between 1 and 1.125
  EXPECT_EQ(EncodeE4m3(1.1875f), kOne + 2);  // between 1.125 and 1.25
  EXPECT_EQ(EncodeE4m3(1.07f), kOne + 1);
  EXPECT_EQ(EncodeE4m3(1.99f), kTwo);
  EXPECT_EQ(EncodeE4m3(0x1p-10f), 0);      // between 0 and the smallest
  EXPECT_EQ(EncodeE4m3(0x1.8p-9f), 2);     // between the smallest and twice that
  EXPECT_EQ(EncodeE4m3(0x1.fp-7f), 0x08);  // the smallest normal
  EXPECT_EQ(EncodeE4m3(-500), 0xfe);
  EXPECT_EQ(EncodeE4m3(460), 0x7e);
}

TEST(E8m0, IsAPowerOfTwo) {
  EXPECT_EQ(DecodeE8m0(kE8m0Bias), 1);
  EXPECT_EQ(DecodeE8m0(0), 0x1p-127);
  EXPECT_EQ(DecodeE8m0(254), 0x1p127);
  EXPECT_TRUE(std::isnan(DecodeE8m0(255)));
}

}  // namespace
}  // namespace kvr
