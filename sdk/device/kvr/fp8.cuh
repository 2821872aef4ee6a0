// SPDX-License-Identifier: Apache-2.0
//
// The 8-bit formats of quantised caches, widened: e4m3 codes (the OCP "fn" form) to pairs of bf16,
// UE8M0 scales to floats. Both are exact, and need no instruction that sm_80 lacks.
//
//   uint32_t pairs[2];
//   kvr::E4m3x4ToBf16(codes, pairs);       // bytes 0 and 1 of `codes`, then 2 and 3
//   const float scale = kvr::E8m0ToFloat(byte);
//
// NaN codes are not kept: 0x7f gives 480 on a GPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <kvr/numeric.cuh>
#include <kvr/platform.cuh>

namespace kvr {

// An e4m3 code with its exponent put where bf16 has its own is the value times 2^-120 (the biases
// are 7 and 127), subnormal codes included; one multiplication puts that right.
KVR_DEVICE void E4m3x4ToBf16(uint32_t codes, uint32_t (&pairs)[2]) {
#if defined(KVR_HOST)
  for (int i = 0; i < 2; ++i) {
    float value[2];
    for (int j = 0; j < 2; ++j) {
      __nv_fp8_e4m3 code;
      code.__x = static_cast<__nv_fp8_storage_t>(codes >> (16 * i + 8 * j));
      value[j] = static_cast<float>(code);
    }
    pairs[i] = PackBf16x2(value[0], value[1]);
  }
#else
  constexpr uint32_t kScale = 0x7b807b80;  // 2^120, twice
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    // Each byte into the upper half of 16 bits.
    const uint32_t spread = __byte_perm(codes, 0, i == 0 ? 0x1404 : 0x3424);
    const uint32_t shifted = (spread & 0x80008000u) | ((spread >> 4) & 0x07f007f0u);
    asm("{.reg .b32 zero;\n"
        "mov.b32 zero, 0x80008000;\n"  // -0, which keeps a product of -0
        "fma.rn.bf16x2 %0, %1, %2, zero;}\n"
        : "=r"(pairs[i])
        : "r"(shifted), "r"(kScale));
  }
#endif
}

// 2^(code - 127). Code 255, which stands for NaN, gives infinity.
KVR_DEVICE float E8m0ToFloat(uint32_t code) {
  return __uint_as_float(code == 0 ? 0x00400000u : code << 23);
}

}  // namespace kvr
