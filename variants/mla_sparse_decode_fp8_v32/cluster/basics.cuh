// SPDX-License-Identifier: Apache-2.0
//
// What is the same whatever a row and a block's shape are.
#pragma once

#include <kvr/cluster.cuh>
#include <kvr/device.cuh>

namespace mla {

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

// 2^(biased - 127), 0 below the normal floats.
KVR_DEVICE float PowerOfTwo(int biased) { return __uint_as_float(max(biased, 0) << 23); }

}  // namespace mla
