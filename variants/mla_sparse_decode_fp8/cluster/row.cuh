// SPDX-License-Identifier: Apache-2.0
//
// A row of the V4 cache, in the cache and in shared memory, and what is done with it and its copies
// whatever a block's shape is: `wide` has this file from `cluster`.
#pragma once

#include <kvr/cluster.cuh>
#include <kvr/device.cuh>

namespace mla {

inline constexpr int kDim = 512;   // a latent row: key and value
inline constexpr int kGroups = 8;  // of 64 dims that share a scale; the last is RoPE, bf16
inline constexpr int kGroupDims = kDim / kGroups;
inline constexpr int kRopeGroup = 7;
inline constexpr int kRowBytes = 576;  // 448 e4m3, 64 bf16
inline constexpr int kScaleBytes = 8;  // 7 UE8M0, a pad
inline constexpr int kTokenBytes = kRowBytes + kScaleBytes;

// Rows in shared memory are 592 bytes apart: 20 banks more than a multiple of 32, so that neither
// the 8 rows of a fragment of keys nor the 4 tokens of one of values share banks.
inline constexpr int kRowStride = kRowBytes + 16;

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

}  // namespace mla
