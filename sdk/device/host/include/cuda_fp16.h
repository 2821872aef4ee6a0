// SPDX-License-Identifier: Apache-2.0
//
// __half and __half2 on host, with the names and layouts of CUDA's header of this name.
#pragma once

#include <kvr_host_float16.h>

struct __half_raw {
  unsigned short x;
};
struct __half2_raw {
  unsigned short x, y;
};

struct __attribute__((aligned(2))) __half {
  unsigned short __x;

  __half() = default;
  constexpr __half(__half_raw raw) : __x(raw.x) {}
  __half(float f) : __x(__builtin_bit_cast(unsigned short, static_cast<_Float16>(f))) {}
  __half(double d) : __x(__builtin_bit_cast(unsigned short, static_cast<_Float16>(d))) {}
  __half(int i) : __half(static_cast<float>(i)) {}
  __half(unsigned i) : __half(static_cast<float>(i)) {}
  __half(long i) : __half(static_cast<float>(i)) {}
  __half(long long i) : __half(static_cast<float>(i)) {}
  __half(unsigned long i) : __half(static_cast<float>(i)) {}
  __half(unsigned long long i) : __half(static_cast<float>(i)) {}

  operator float() const { return static_cast<float>(__builtin_bit_cast(_Float16, __x)); }
  operator __half_raw() const { return {__x}; }
  explicit operator bool() const { return (__x & 0x7fff) != 0; }
  explicit operator int() const { return static_cast<int>(float(*this)); }
};
typedef __half half;
typedef __half __nv_half;

struct __attribute__((aligned(4))) __half2 {
  __half x, y;

  __half2() = default;
  __half2(__half low, __half high) : x(low), y(high) {}
  constexpr __half2(__half2_raw raw) : x(__half_raw{raw.x}), y(__half_raw{raw.y}) {}
  operator __half2_raw() const { return {x.__x, y.__x}; }
};
typedef __half2 half2;
typedef __half2 __nv_half2;

KVR_HOST_FLOAT16_(__half, __half2)

inline __half __float2half(float x) { return __half(x); }
inline __half __float2half_rn(float x) { return __half(x); }
inline __half __double2half(double x) { return __half(x); }
inline __half __float2half_rz(float x) {
  __half h(x);
  if (__builtin_fabsf(float(h)) > __builtin_fabsf(x)) --h.__x;  // it was rounded away from zero
  return h;
}
inline float __half2float(__half h) { return h; }
inline __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
inline __half2 __floats2half2_rn(float low, float high) { return {__half(low), __half(high)}; }
inline __half2 __float22half2_rn(float2 v) { return {__half(v.x), __half(v.y)}; }
inline float2 __half22float2(__half2 v) { return {v.x, v.y}; }
inline __half __low2half(__half2 v) { return v.x; }
inline __half __high2half(__half2 v) { return v.y; }
inline __half2 __half2half2(__half h) { return {h, h}; }
inline __half2 __halves2half2(__half low, __half high) { return {low, high}; }
inline __half2 make_half2(__half low, __half high) { return {low, high}; }
inline __half2 __low2half2(__half2 v) { return {v.x, v.x}; }
inline __half2 __high2half2(__half2 v) { return {v.y, v.y}; }
inline unsigned short __half_as_ushort(__half h) { return h.__x; }
inline short __half_as_short(__half h) { return static_cast<short>(h.__x); }
inline __half __ushort_as_half(unsigned short bits) { return __half_raw{bits}; }
inline __half __short_as_half(short bits) { return __half_raw{static_cast<unsigned short>(bits)}; }
inline int __half2int_rn(__half h) { return __float2int_rn(h); }
inline int __half2int_rz(__half h) { return __float2int_rz(h); }
inline __half __int2half_rn(int i) { return __half(i); }
inline __half __uint2half_rn(unsigned i) { return __half(i); }
