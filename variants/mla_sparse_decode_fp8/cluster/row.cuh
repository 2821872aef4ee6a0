// SPDX-License-Identifier: Apache-2.0
//
// A row of the V4 cache, in the cache and in shared memory: `wide` has this file from `cluster`.
#pragma once

#include "basics.cuh"

namespace mla {

inline constexpr int kDim = 512;      // a latent row: key and value
inline constexpr int kKeyDims = 512;  // RoPE is a part of the value
inline constexpr int kGroups = 8;     // of 64 dims that share a scale; the last is RoPE, bf16
inline constexpr int kGroupDims = kDim / kGroups;
inline constexpr int kRopeGroup = 7;
inline constexpr bool kRopeIsValue = kRopeGroup < kGroups;
inline constexpr int kRowBytes = 576;  // 448 e4m3, 64 bf16
inline constexpr int kScaleBytes = 8;  // 7 UE8M0, a pad
inline constexpr int kTokenBytes = kRowBytes + kScaleBytes;

// Rows in shared memory take 592 bytes each: 20 banks more than a multiple of 32, so that neither
// the 8 rows of a fragment of keys nor the 4 tokens of one of values share banks.
inline constexpr int kRowStride = kRowBytes + 16;

// Rows of a tile in shared memory, in pairs with the pad of both behind them: so each begins at a
// multiple of 32, as in the cache. Copies of 16 bytes that end in the other half of their sector
// of 32 would have L2 send each half's sector by itself, half as much again in all.
template <int kTile>
struct Rows {
  alignas(16) uint8_t rows[kTile / 2][2 * kRowStride];
  alignas(16) uint8_t scales[kTile][kScaleBytes];
};

// From the first of a tile's rows to another, and from an even one to one so much further.
constexpr KVR_DEVICE int RowOffset(int row) {
  return row / 2 * (2 * kRowStride) + row % 2 * kRowBytes;
}

// Where a slot's row and its scales lie. A page holds page_size rows, then their scales.
struct RowAddress {
  const uint8_t *row, *scales;

  // reciprocal: floor((2^32 - 1) / page_size).
  KVR_DEVICE RowAddress(const uint8_t* cache, int page_size, int reciprocal, uint32_t slot) {
    // The quotient, or one less.
    uint32_t page = __umulhi(slot, reciprocal);
    int offset = slot - page * page_size;
    if (offset >= page_size) ++page, offset -= page_size;
    const uint8_t* base = cache + static_cast<int64_t>(page) * (page_size * kTokenBytes);
    row = base + offset * kRowBytes;
    scales = base + page_size * kRowBytes + offset * kScaleBytes;
  }
};

// Scales are powers of two, known by their biased exponent.
using Scale = int;

// Of rows 2 pair and 2 pair + 1.
template <int kTile>
KVR_DEVICE void LoadScales(const Rows<kTile>& rows, int pair, int group, Scale& low, Scale& high) {
  low = rows.scales[2 * pair][group], high = rows.scales[2 * pair + 1][group];
}

// Biased, of the least power of two that a scale does not exceed.
KVR_DEVICE int Exponent(Scale scale) { return scale; }
// 2^exponent times it, or 0.
KVR_DEVICE float TimesPowerOfTwo(Scale scale, int exponent) { return PowerOfTwo(scale + exponent); }

}  // namespace mla
