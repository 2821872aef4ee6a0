// SPDX-License-Identifier: Apache-2.0
//
// What __half and __nv_bfloat16 have in common: arithmetic, comparisons and CUDA's intrinsics, each
// computed in float and rounded once to nearest even. KVR_HOST_FLOAT16_ is expanded once per type.
#pragma once

#define KVR_HOST_FLOAT16_OP_(T, op)                                  \
  inline T operator op(T a, T b) { return T(float(a) op float(b)); } \
  inline T& operator op##=(T& a, T b) { return a = T(float(a) op float(b)); }

#define KVR_HOST_FLOAT16_COMPARE_(T, T2, name, op)                     \
  inline bool operator op(T a, T b) { return float(a) op float(b); }   \
  inline bool name(T a, T b) { return float(a) op float(b); }          \
  inline T2 name##2(T2 a, T2 b) {                                      \
    return {T(a.x op b.x ? 1.0f : 0.0f), T(a.y op b.y ? 1.0f : 0.0f)}; \
  }

#define KVR_HOST_FLOAT16_BINARY_(T, T2, name, expression) \
  inline T name(T a_, T b_) {                             \
    const float a = a_, b = b_;                           \
    return T(expression);                                 \
  }                                                       \
  inline T2 name##2(T2 a, T2 b) { return {name(a.x, b.x), name(a.y, b.y)}; }

#define KVR_HOST_FLOAT16_UNARY_(T, T2, name, expression) \
  inline T h##name(T x_) {                               \
    const float x = x_;                                  \
    return T(expression);                                \
  }                                                      \
  inline T2 h2##name(T2 v) { return {h##name(v.x), h##name(v.y)}; }

// T2 is the pair type, a struct with members x and y.
#define KVR_HOST_FLOAT16_(T, T2)                                                                 \
  KVR_HOST_FLOAT16_OP_(T, +)                                                                     \
  KVR_HOST_FLOAT16_OP_(T, -)                                                                     \
  KVR_HOST_FLOAT16_OP_(T, *)                                                                     \
  KVR_HOST_FLOAT16_OP_(T, /)                                                                     \
  inline T operator-(T a) { return T(-float(a)); }                                               \
  inline T2 operator+(T2 a, T2 b) { return {a.x + b.x, a.y + b.y}; }                             \
  inline T2 operator-(T2 a, T2 b) { return {a.x - b.x, a.y - b.y}; }                             \
  inline T2 operator*(T2 a, T2 b) { return {a.x * b.x, a.y * b.y}; }                             \
  inline T2 operator/(T2 a, T2 b) { return {a.x / b.x, a.y / b.y}; }                             \
  KVR_HOST_FLOAT16_COMPARE_(T, T2, __heq, ==)                                                    \
  KVR_HOST_FLOAT16_COMPARE_(T, T2, __hne, !=)                                                    \
  KVR_HOST_FLOAT16_COMPARE_(T, T2, __hlt, <)                                                     \
  KVR_HOST_FLOAT16_COMPARE_(T, T2, __hle, <=)                                                    \
  KVR_HOST_FLOAT16_COMPARE_(T, T2, __hgt, >)                                                     \
  KVR_HOST_FLOAT16_COMPARE_(T, T2, __hge, >=)                                                    \
  KVR_HOST_FLOAT16_BINARY_(T, T2, __hadd, a + b)                                                 \
  KVR_HOST_FLOAT16_BINARY_(T, T2, __hsub, a - b)                                                 \
  KVR_HOST_FLOAT16_BINARY_(T, T2, __hmul, a* b)                                                  \
  KVR_HOST_FLOAT16_BINARY_(T, T2, __hmax, __builtin_fmaxf(a, b))                                 \
  KVR_HOST_FLOAT16_BINARY_(T, T2, __hmin, __builtin_fminf(a, b))                                 \
  inline T __hadd_rn(T a, T b) { return __hadd(a, b); }                                          \
  inline T __hmul_rn(T a, T b) { return __hmul(a, b); }                                          \
  inline T __hdiv(T a, T b) { return a / b; }                                                    \
  inline T2 __h2div(T2 a, T2 b) { return a / b; }                                                \
  inline T __hfma(T a, T b, T c) { return T(__builtin_fmaf(float(a), float(b), float(c))); }     \
  inline T2 __hfma2(T2 a, T2 b, T2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; } \
  inline T __hneg(T a) { return -a; }                                                            \
  inline T2 __hneg2(T2 a) { return {-a.x, -a.y}; }                                               \
  inline T __habs(T a) { return T(__builtin_fabsf(float(a))); }                                  \
  inline T2 __habs2(T2 a) { return {__habs(a.x), __habs(a.y)}; }                                 \
  inline bool __hisnan(T a) { return __builtin_isnan(float(a)); }                                \
  inline int __hisinf(T a) { return __builtin_isinf_sign(float(a)); }                            \
  KVR_HOST_FLOAT16_UNARY_(T, T2, exp, expf(x))                                                   \
  KVR_HOST_FLOAT16_UNARY_(T, T2, exp2, exp2f(x))                                                 \
  KVR_HOST_FLOAT16_UNARY_(T, T2, log, logf(x))                                                   \
  KVR_HOST_FLOAT16_UNARY_(T, T2, log2, log2f(x))                                                 \
  KVR_HOST_FLOAT16_UNARY_(T, T2, sqrt, __builtin_sqrtf(x))                                       \
  KVR_HOST_FLOAT16_UNARY_(T, T2, rsqrt, rsqrtf(x))                                               \
  KVR_HOST_FLOAT16_UNARY_(T, T2, rcp, 1.0f / x)                                                  \
  KVR_HOST_FLOAT16_UNARY_(T, T2, floor, floorf(x))                                               \
  KVR_HOST_FLOAT16_UNARY_(T, T2, ceil, ceilf(x))                                                 \
  KVR_HOST_FLOAT16_UNARY_(T, T2, tanh, tanhf(x))                                                 \
  inline float __low2float(T2 v) { return v.x; }                                                 \
  inline float __high2float(T2 v) { return v.y; }                                                \
  inline T2 __lows2##T2(T2 a, T2 b) { return {a.x, b.x}; }                                       \
  inline T2 __highs2##T2(T2 a, T2 b) { return {a.y, b.y}; }                                      \
  inline T2 __lowhigh2highlow(T2 v) { return {v.y, v.x}; }
