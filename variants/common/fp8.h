// SPDX-License-Identifier: Apache-2.0
//
// The 8-bit formats of the OCP specification that quantised caches use: e4m3 (the "fn" form: no
// infinity, one NaN, largest 448) and UE8M0, a power of two.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace kvr {

inline constexpr float kE4m3Largest = 448;
inline constexpr int kE8m0Bias = 127;

constexpr double DecodeE4m3Bits(unsigned code) {
  const int exponent = static_cast<int>(code >> 3 & 15), mantissa = static_cast<int>(code & 7);
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<double>::quiet_NaN();
  // Subnormal: a multiple of 2^-9. Normal: (8 + mantissa) * 2^(exponent - 10).
  double magnitude = exponent == 0 ? mantissa : 8 + mantissa;
  for (int e = exponent == 0 ? -9 : exponent - 10; e != 0; e += e < 0 ? 1 : -1) {
    magnitude *= e < 0 ? 0.5 : 2;
  }
  return code & 0x80 ? -magnitude : magnitude;
}

inline constexpr std::array<double, 256> kE4m3Values = [] {
  std::array<double, 256> values{};
  for (unsigned code = 0; code < 256; ++code) values[code] = DecodeE4m3Bits(code);
  return values;
}();

inline double DecodeE4m3(uint8_t code) { return kE4m3Values[code]; }

// To the nearest, ties to even; beyond +-448 it is +-448. Not for NaN.
inline uint8_t EncodeE4m3(float value) {
  constexpr float kSmallestNormal = 0x1p-6f, kUlp = 0x1p-9f;
  const float magnitude = std::fabs(value);
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (magnitude >= kE4m3Largest) return sign | 0x7e;
  if (magnitude < kSmallestNormal) {  // may round up to the first normal code, which is the next
    return sign | static_cast<uint8_t>(std::nearbyint(magnitude / kUlp));
  }
  const uint32_t bits = std::bit_cast<uint32_t>(magnitude);
  const uint32_t rounded = (bits + 0x7ffff + (bits >> 20 & 1)) >> 20;  // 3 of 23 mantissa bits stay
  return sign | static_cast<uint8_t>(rounded - ((127 - 7) << 3));
}

inline double DecodeE8m0(uint8_t code) {
  return code == 0xff ? std::numeric_limits<double>::quiet_NaN()
                      : std::ldexp(1.0, code - kE8m0Bias);
}

}  // namespace kvr
