// SPDX-License-Identifier: Apache-2.0
//
// A row of the V3.2 cache: 512 e4m3 codes, 4 fp32 scales, one per 128 codes, and 64 bf16 of RoPE,
// which is a part of keys alone. 656 bytes, in shared memory, too.
#pragma once

#include "basics.cuh"

namespace mla {

inline constexpr int kDim = 512;  // of a value: the first ones of a key
inline constexpr int kRopeDims = 64, kKeyDims = kDim + kRopeDims;
inline constexpr int kGroups = 8;  // of 64 dims; two share a scale
inline constexpr int kGroupDims = kDim / kGroups;
inline constexpr int kScaledGroups = 2;
inline constexpr int kRopeGroup = kGroups;
inline constexpr bool kRopeIsValue = kRopeGroup < kGroups;

// Where in a row scales and RoPE begin.
inline constexpr int kScalesAt = kDim, kRopeAt = kScalesAt + 16;
inline constexpr int kRowBytes = kRopeAt + kRopeDims * 2;
inline constexpr int kScaleBytes = 0;  // beside the row
inline constexpr int kTokenBytes = kRowBytes + kScaleBytes;

// Rows in shared memory need no pad: 656 bytes are 4 banks more than a multiple of 32, so neither
// the 8 rows of a fragment of keys nor the 4 tokens of one of values share banks.
inline constexpr int kRowStride = kRowBytes;

// Rows of a tile in shared memory.
template <int kTile>
struct Rows {
  alignas(16) uint8_t rows[kTile][kRowStride];
};

// From the first of a tile's rows to another.
constexpr KVR_DEVICE int RowOffset(int row) { return row * kRowStride; }

// Where a slot's row lies: at slot * 656, whatever the page size.
struct RowAddress {
  const uint8_t* row;
  static constexpr const uint8_t* scales = nullptr;  // in the row

  KVR_DEVICE RowAddress(const uint8_t* cache, int /*page_size*/, int /*reciprocal*/, uint32_t slot)
      : row(cache + static_cast<uint64_t>(slot) * kRowBytes) {}
};

using Scale = float;

// Of rows 2 pair and 2 pair + 1. Scales of rows 8 apart share banks; so every other four lanes read
// the second row first.
template <int kTile>
KVR_DEVICE void LoadScales(const Rows<kTile>& rows, int pair, int group, Scale& low, Scale& high) {
  const bool swap = pair / 4 % 2 != 0;
  const uint8_t* at = rows.rows[2 * pair] + kScalesAt + group / kScaledGroups * sizeof(Scale);
  const Scale first = kvr::Load<Scale>(at + (swap ? kRowStride : 0));
  const Scale second = kvr::Load<Scale>(at + (swap ? 0 : kRowStride));
  low = swap ? second : first, high = swap ? first : second;
}

// Biased, of the least power of two that a scale, 2^126 at most, does not exceed; of a power of
// two, the next one.
KVR_DEVICE int Exponent(Scale scale) { return (__float_as_int(scale) >> 23) + 1; }
// 2^exponent times it, which is a normal number, or 0.
KVR_DEVICE float TimesPowerOfTwo(Scale scale, int exponent) {
  return scale * PowerOfTwo(127 + exponent);
}

}  // namespace mla
