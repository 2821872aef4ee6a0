// SPDX-License-Identifier: Apache-2.0
//
// A row of the V4 cache, in the cache and in shared memory, and what is done with it and its copies
// whatever a block's shape is: `wide` has this file from `cluster`.
#pragma once

#include <kvr/cluster.cuh>
#include <kvr/device.cuh>

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

// Rows in shared memory are 592 bytes apart: 20 banks more than a multiple of 32, so that neither
// the 8 rows of a fragment of keys nor the 4 tokens of one of values share banks.
inline constexpr int kRowStride = kRowBytes + 16;

// Rows of a tile in shared memory.
template <int kTile>
struct Rows {
  alignas(16) uint8_t rows[kTile][kRowStride];
  alignas(16) uint8_t scales[kTile][kScaleBytes];
};

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

inline constexpr int kMostSplits = 16;  // blocks of a cluster

// Where a ring of kStages stands: the stage, and the parity of its phase.
template <int kStages>
struct Ring {
  int stage = 0, parity = 0;
  KVR_DEVICE void Next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// Four e4m3 to two pairs of f16: exact.
KVR_DEVICE void UnpackE4m3(uint32_t four, uint32_t& low, uint32_t& high) {
  asm("{\n"
      ".reg .b16 l, h;\n"
      "mov.b32 {l, h}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, l;\n"
      "cvt.rn.f16x2.e4m3x2 %1, h;\n"
      "}\n"
      : "=r"(low), "=r"(high)
      : "r"(four));
}

KVR_DEVICE uint32_t MultiplyF16x2(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;\n" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// 2^(biased - 127), 0 below the normal floats: of a UE8M0 byte, the scale.
KVR_DEVICE float PowerOfTwo(int biased) { return __uint_as_float(max(biased, 0) << 23); }

// Biased, of the least power of two that a scale does not exceed.
KVR_DEVICE int Exponent(Scale scale) { return scale; }
// 2^exponent times it, or 0.
KVR_DEVICE float TimesPowerOfTwo(Scale scale, int exponent) { return PowerOfTwo(scale + exponent); }

}  // namespace mla
