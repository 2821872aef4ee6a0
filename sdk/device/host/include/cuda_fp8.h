// SPDX-License-Identifier: Apache-2.0
//
// The 8-bit floating types on host, with the names and layouts of CUDA's header of this name:
// e4m3 (the OCP "fn" form: no infinity, NaN 0x7f), e5m2 (IEEE-like) and e8m0 (a power of two,
// bias 127, NaN 0xff).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

namespace kvr_host_detail {

// An 8-bit float: kMantissa explicit bits, exponent bias kBias, kMax its largest finite value.
template <int kMantissa, int kBias, unsigned kMaxCode, bool kInfinity>
struct Fp8 {
  static float Decode(unsigned code) {
    const unsigned magnitude = code & 0x7f;
    float value;
    if (magnitude > kMaxCode) {
      value = kInfinity && magnitude == kMaxCode + 1 ? INFINITY : NAN;
    } else if (magnitude >> kMantissa == 0) {
      value = static_cast<float>(magnitude) * Scale(1 - kBias - kMantissa);
    } else {
      value = __uint_as_float((magnitude << (23 - kMantissa)) + (unsigned(127 - kBias) << 23));
    }
    return code & 0x80 ? -value : value;
  }

  // Nearest even.
  static unsigned Encode(float x, bool saturate) {
    const unsigned bits = __float_as_uint(x);
    const unsigned sign = bits >> 24 & 0x80;
    if (x != x) return 0x7f;
    const float magnitude = __builtin_fabsf(x);
    unsigned code;
    if (magnitude < Scale(1 - kBias)) {
      // Subnormal: the addition rounds to a multiple of the smallest value.
      const float magic = Scale(23 + 1 - kBias - kMantissa);
      code = __float_as_uint(magnitude + magic) - __float_as_uint(magic);
    } else {
      const unsigned u = bits & 0x7fffffff;
      const unsigned rounded = u + ((1u << (22 - kMantissa)) - 1) + (u >> (23 - kMantissa) & 1);
      const unsigned biased = (rounded >> (23 - kMantissa)) - (unsigned(127 - kBias) << kMantissa);
      code = rounded >= 0x7f800000 ? 0xff : biased;
    }
    if (code > kMaxCode) code = saturate ? kMaxCode : kInfinity ? kMaxCode + 1 : 0x7f;
    return sign | code;
  }

 private:
  static constexpr float Scale(int exponent) {
    return __builtin_bit_cast(float, unsigned(exponent + 127) << 23);
  }
};
typedef Fp8<3, 7, 0x7e, false> E4m3;
typedef Fp8<2, 15, 0x7b, true> E5m2;

}  // namespace kvr_host_detail

inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturate,
                                                __nv_fp8_interpretation_t kind) {
  const bool finite = saturate == __NV_SATFINITE;
  return static_cast<__nv_fp8_storage_t>(kind == __NV_E4M3
                                             ? kvr_host_detail::E4m3::Encode(x, finite)
                                             : kvr_host_detail::E5m2::Encode(x, finite));
}
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 v, __nv_saturation_t saturate,
                                                     __nv_fp8_interpretation_t kind) {
  return static_cast<__nv_fp8x2_storage_t>(__nv_cvt_float_to_fp8(v.x, saturate, kind) |
                                           __nv_cvt_float_to_fp8(v.y, saturate, kind) << 8);
}
inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw h, __nv_saturation_t saturate,
                                                  __nv_fp8_interpretation_t kind) {
  return __nv_cvt_float_to_fp8(__half(h), saturate, kind);
}
inline __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw b,
                                                      __nv_saturation_t saturate,
                                                      __nv_fp8_interpretation_t kind) {
  return __nv_cvt_float_to_fp8(__nv_bfloat16(b), saturate, kind);
}
inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t kind) {
  return __half(kind == __NV_E4M3 ? kvr_host_detail::E4m3::Decode(x)
                                  : kvr_host_detail::E5m2::Decode(x));
}
inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x,
                                              __nv_fp8_interpretation_t kind) {
  return {__nv_cvt_fp8_to_halfraw(static_cast<unsigned char>(x), kind).x,
          __nv_cvt_fp8_to_halfraw(static_cast<unsigned char>(x >> 8), kind).x};
}

#define KVR_HOST_FP8_(name, format, interpretation)                                               \
  struct __nv_fp8_##name {                                                                        \
    __nv_fp8_storage_t __x;                                                                       \
    __nv_fp8_##name() = default;                                                                  \
    explicit __nv_fp8_##name(float f)                                                             \
        : __x(__nv_cvt_float_to_fp8(f, __NV_SATFINITE, interpretation)) {}                        \
    explicit __nv_fp8_##name(double d) : __nv_fp8_##name(static_cast<float>(d)) {}                \
    explicit __nv_fp8_##name(__half h) : __nv_fp8_##name(float(h)) {}                             \
    explicit __nv_fp8_##name(__nv_bfloat16 b) : __nv_fp8_##name(float(b)) {}                      \
    explicit operator float() const { return kvr_host_detail::format::Decode(__x); }              \
    explicit operator double() const { return float(*this); }                                     \
    explicit operator __half() const { return __half(float(*this)); }                             \
    explicit operator __nv_bfloat16() const { return __nv_bfloat16(float(*this)); }               \
  };                                                                                              \
  struct __attribute__((aligned(2))) __nv_fp8x2_##name {                                          \
    __nv_fp8x2_storage_t __x;                                                                     \
    __nv_fp8x2_##name() = default;                                                                \
    explicit __nv_fp8x2_##name(float2 v)                                                          \
        : __x(__nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, interpretation)) {}                     \
    explicit operator float2() const {                                                            \
      return {kvr_host_detail::format::Decode(__x & 0xff),                                        \
              kvr_host_detail::format::Decode(__x >> 8)};                                         \
    }                                                                                             \
    explicit operator __half2() const { return __nv_cvt_fp8x2_to_halfraw2(__x, interpretation); } \
  };                                                                                              \
  struct __attribute__((aligned(4))) __nv_fp8x4_##name {                                          \
    __nv_fp8x4_storage_t __x;                                                                     \
    __nv_fp8x4_##name() = default;                                                                \
    explicit __nv_fp8x4_##name(float4 v)                                                          \
        : __x(__nv_cvt_float2_to_fp8x2({v.x, v.y}, __NV_SATFINITE, interpretation) |              \
              static_cast<unsigned>(                                                              \
                  __nv_cvt_float2_to_fp8x2({v.z, v.w}, __NV_SATFINITE, interpretation))           \
                  << 16) {}                                                                       \
    explicit operator float4() const {                                                            \
      typedef kvr_host_detail::format F;                                                          \
      return {F::Decode(__x & 0xff), F::Decode(__x >> 8 & 0xff), F::Decode(__x >> 16 & 0xff),     \
              F::Decode(__x >> 24)};                                                              \
    }                                                                                             \
  };
KVR_HOST_FP8_(e4m3, E4m3, __NV_E4M3)
KVR_HOST_FP8_(e5m2, E5m2, __NV_E5M2)
#undef KVR_HOST_FP8_

// A scale: 2^(code - 127).
inline __nv_bfloat16_raw __nv_cvt_e8m0_to_bf16raw(unsigned char code) {
  if (code == 0xff) return {0x7fff};
  return {static_cast<unsigned short>(code == 0 ? 0x0040 : code << 7)};
}
struct __nv_fp8_e8m0 {
  unsigned char __x;
  __nv_fp8_e8m0() = default;
  explicit operator float() const { return __nv_bfloat16(__nv_cvt_e8m0_to_bf16raw(__x)); }
  explicit operator __nv_bfloat16() const { return __nv_cvt_e8m0_to_bf16raw(__x); }
};
