// SPDX-License-Identifier: Apache-2.0
//
// bfloat16 is the upper half of a float.
#pragma once

#include <bit>
#include <cstdint>

namespace kvr {

inline float WidenBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// To the nearest, ties to even. Not for NaN.
inline uint16_t RoundToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace kvr
