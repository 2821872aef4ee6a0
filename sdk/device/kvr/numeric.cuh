// SPDX-License-Identifier: Apache-2.0
//
// Numbers: base-2 exponential and logarithm, integers that order as floats do, and pairs of 16-bit
// floats in one register, the form that fragments (matrix.cuh) take. Conversions round to nearest
// even.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <kvr/platform.cuh>

namespace kvr {

inline constexpr float kLog2E = 1.44269504088896340736f;

// +infinity; -kInfinity is what a masked score and the lse of an empty row are.
inline constexpr float kInfinity = __builtin_bit_cast(float, 0x7f800000u);

// 2^x, relative error below 2^-22; Exp2(-kInfinity) == 0.
KVR_DEVICE float Exp2(float x) {
#if defined(KVR_HOST)
  return __builtin_exp2f(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
#endif
}

// log2(x), error below 2^-22, absolute where |log2 x| < 1 and relative beyond;
// Log2(0) == -kInfinity.
KVR_DEVICE float Log2(float x) {
#if defined(KVR_HOST)
  return __builtin_log2f(x);
#else
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
#endif
}

// Orders as the values do, -0 and 0 as equal, and is above 0 for every number: one
// __reduce_max_sync finds a warp's largest, and 0 is free to mean none. A NaN comes first or last,
// by its sign.
KVR_DEVICE uint32_t OrderedKey(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0f);  // -0 becomes 0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Two bf16 values: `low` in bits 0...15.
KVR_DEVICE uint32_t PackBf16x2(float low, float high) {
#if defined(KVR_HOST)
  const uint32_t l = __bfloat16_as_ushort(__float2bfloat16_rn(low));
  const uint32_t h = __bfloat16_as_ushort(__float2bfloat16_rn(high));
  return l | (h << 16);
#else
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#endif
}

KVR_DEVICE uint32_t PackF16x2(float low, float high) {
#if defined(KVR_HOST)
  const uint32_t l = __half_as_ushort(__float2half_rn(low));
  const uint32_t h = __half_as_ushort(__float2half_rn(high));
  return l | (h << 16);
#else
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#endif
}

// The halves of a bf16 pair as floats: exact.
KVR_DEVICE float LowBf16(uint32_t pair) { return __uint_as_float(pair << 16); }
KVR_DEVICE float HighBf16(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

}  // namespace kvr
