// SPDX-License-Identifier: Apache-2.0
//
// CUDA's math functions. The precise ones are libm's or the machine's instructions; the fast
// intrinsics (__expf, __fdividef, ...) are at least as accurate as on a GPU.
#pragma once

#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define HUGE_VALF (__builtin_inff())

#define KVR_HOST_MATH1_(name)               \
  extern "C" float name##f(float) noexcept; \
  extern "C" double name(double) noexcept;  \
  inline float name(float x) { return name##f(x); }
#define KVR_HOST_MATH2_(name)                      \
  extern "C" float name##f(float, float) noexcept; \
  extern "C" double name(double, double) noexcept; \
  inline float name(float x, float y) { return name##f(x, y); }

KVR_HOST_MATH1_(sqrt)
KVR_HOST_MATH1_(cbrt)
KVR_HOST_MATH1_(exp)
KVR_HOST_MATH1_(exp2)
KVR_HOST_MATH1_(exp10)
KVR_HOST_MATH1_(expm1)
KVR_HOST_MATH1_(log)
KVR_HOST_MATH1_(log2)
KVR_HOST_MATH1_(log10)
KVR_HOST_MATH1_(log1p)
KVR_HOST_MATH1_(sin)
KVR_HOST_MATH1_(cos)
KVR_HOST_MATH1_(tan)
KVR_HOST_MATH1_(asin)
KVR_HOST_MATH1_(acos)
KVR_HOST_MATH1_(atan)
KVR_HOST_MATH1_(sinh)
KVR_HOST_MATH1_(cosh)
KVR_HOST_MATH1_(tanh)
KVR_HOST_MATH1_(asinh)
KVR_HOST_MATH1_(acosh)
KVR_HOST_MATH1_(atanh)
KVR_HOST_MATH1_(erf)
KVR_HOST_MATH1_(erfc)
KVR_HOST_MATH1_(lgamma)
KVR_HOST_MATH1_(tgamma)
KVR_HOST_MATH1_(floor)
KVR_HOST_MATH1_(ceil)
KVR_HOST_MATH1_(trunc)
KVR_HOST_MATH1_(round)
KVR_HOST_MATH1_(rint)
KVR_HOST_MATH1_(nearbyint)
KVR_HOST_MATH1_(fabs)
KVR_HOST_MATH2_(pow)
KVR_HOST_MATH2_(fmod)
KVR_HOST_MATH2_(remainder)
KVR_HOST_MATH2_(atan2)
KVR_HOST_MATH2_(hypot)
KVR_HOST_MATH2_(fdim)
KVR_HOST_MATH2_(fmax)
KVR_HOST_MATH2_(fmin)
KVR_HOST_MATH2_(nextafter)
KVR_HOST_MATH2_(copysign)
#undef KVR_HOST_MATH1_
#undef KVR_HOST_MATH2_

extern "C" float fmaf(float, float, float) noexcept;
extern "C" double fma(double, double, double) noexcept;
extern "C" float ldexpf(float, int) noexcept;
extern "C" double ldexp(double, int) noexcept;
extern "C" float frexpf(float, int*) noexcept;
extern "C" double frexp(double, int*) noexcept;
extern "C" void sincosf(float, float*, float*) noexcept;
extern "C" void sincos(double, double*, double*) noexcept;
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float ldexp(float x, int e) { return ldexpf(x, e); }

inline float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
inline float sinpif(float x) { return sinf(x * 3.14159265358979323846f); }
inline float cospif(float x) { return cosf(x * 3.14159265358979323846f); }
inline float saturate(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }

inline bool isnan(float x) { return __builtin_isnan(x); }
inline bool isnan(double x) { return __builtin_isnan(x); }
inline bool isinf(float x) { return __builtin_isinf(x); }
inline bool isinf(double x) { return __builtin_isinf(x); }
inline bool isfinite(float x) { return __builtin_isfinite(x); }
inline bool isfinite(double x) { return __builtin_isfinite(x); }
inline bool signbit(float x) { return __builtin_signbit(x); }
inline bool signbit(double x) { return __builtin_signbit(x); }

inline int abs(int x) { return x < 0 ? -x : x; }
inline long abs(long x) { return x < 0 ? -x : x; }
inline long long abs(long long x) { return x < 0 ? -x : x; }
inline float abs(float x) { return __builtin_fabsf(x); }
inline double abs(double x) { return __builtin_fabs(x); }
inline long long llabs(long long x) { return x < 0 ? -x : x; }

// Integers mix as in CUDA: the wider type, unsigned if either is.
#define KVR_HOST_MINMAX_(type)                                 \
  constexpr type min(type a, type b) { return b < a ? b : a; } \
  constexpr type max(type a, type b) { return a < b ? b : a; }
KVR_HOST_MINMAX_(int)
KVR_HOST_MINMAX_(unsigned)
KVR_HOST_MINMAX_(long)
KVR_HOST_MINMAX_(unsigned long)
KVR_HOST_MINMAX_(long long)
KVR_HOST_MINMAX_(unsigned long long)
#undef KVR_HOST_MINMAX_
#define KVR_HOST_MINMAX_(result, a_type, b_type)                \
  constexpr result min(a_type a, b_type b) {                    \
    return min(static_cast<result>(a), static_cast<result>(b)); \
  }                                                             \
  constexpr result max(a_type a, b_type b) {                    \
    return max(static_cast<result>(a), static_cast<result>(b)); \
  }                                                             \
  constexpr result min(b_type a, a_type b) {                    \
    return min(static_cast<result>(a), static_cast<result>(b)); \
  }                                                             \
  constexpr result max(b_type a, a_type b) {                    \
    return max(static_cast<result>(a), static_cast<result>(b)); \
  }
KVR_HOST_MINMAX_(unsigned, int, unsigned)
KVR_HOST_MINMAX_(long, int, long)
KVR_HOST_MINMAX_(long, unsigned, long)
KVR_HOST_MINMAX_(long long, int, long long)
KVR_HOST_MINMAX_(unsigned long, int, unsigned long)
KVR_HOST_MINMAX_(unsigned long, unsigned, unsigned long)
KVR_HOST_MINMAX_(unsigned long, long, unsigned long)
KVR_HOST_MINMAX_(unsigned long long, int, unsigned long long)
#undef KVR_HOST_MINMAX_
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline unsigned umin(unsigned a, unsigned b) { return b < a ? b : a; }
inline unsigned umax(unsigned a, unsigned b) { return a < b ? b : a; }

// ---- Fast intrinsics ----------------------------------------------------------------------------

inline float __expf(float x) { return exp2f(x * 1.44269504088896340736f); }
inline float __exp10f(float x) { return exp2f(x * 3.32192809488736234787f); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __powf(float x, float y) { return exp2f(y * log2f(x)); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __tanhf(float x) { return tanhf(x); }
inline void __sincosf(float x, float* s, float* c) { sincosf(x, s, c); }
inline float __fdividef(float a, float b) { return a / b; }
inline float fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return saturate(x); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
// Never contracted into a multiply-add.
#define KVR_HOST_EXACT_(name, type, op) \
  inline type name(type a, type b) { _Pragma("clang fp contract(off)") return a op b; }
KVR_HOST_EXACT_(__fadd_rn, float, +)
KVR_HOST_EXACT_(__fsub_rn, float, -)
KVR_HOST_EXACT_(__fmul_rn, float, *)
KVR_HOST_EXACT_(__dadd_rn, double, +)
KVR_HOST_EXACT_(__dsub_rn, double, -)
KVR_HOST_EXACT_(__dmul_rn, double, *)
#undef KVR_HOST_EXACT_

// ---- Conversions: out of range saturates, NaN becomes 0
// -------------------------------------------

namespace kvr_host_detail {
template <class To>
inline To Saturate(double x) {
  constexpr bool kSigned = To(-1) < To(0);
  constexpr int kBits = 8 * sizeof(To);
  constexpr To kMax = kSigned ? To((1ull << (kBits - 1)) - 1) : To(-1);
  constexpr To kMin = kSigned ? To(-kMax - 1) : To(0);
  if (x != x) return 0;
  if (x >= static_cast<double>(kMax)) return kMax;
  if (x <= static_cast<double>(kMin)) return kMin;
  return static_cast<To>(x);
}
}  // namespace kvr_host_detail

#define KVR_HOST_CONVERT_(from, from_type, to, to_type)            \
  inline to_type __##from##2##to##_rn(from_type x) {               \
    return kvr_host_detail::Saturate<to_type>(__builtin_rint(x));  \
  }                                                                \
  inline to_type __##from##2##to##_rz(from_type x) {               \
    return kvr_host_detail::Saturate<to_type>(__builtin_trunc(x)); \
  }                                                                \
  inline to_type __##from##2##to##_ru(from_type x) {               \
    return kvr_host_detail::Saturate<to_type>(__builtin_ceil(x));  \
  }                                                                \
  inline to_type __##from##2##to##_rd(from_type x) {               \
    return kvr_host_detail::Saturate<to_type>(__builtin_floor(x)); \
  }
KVR_HOST_CONVERT_(float, float, int, int)
KVR_HOST_CONVERT_(float, float, uint, unsigned)
KVR_HOST_CONVERT_(float, float, ll, long long)
KVR_HOST_CONVERT_(float, float, ull, unsigned long long)
KVR_HOST_CONVERT_(double, double, int, int)
KVR_HOST_CONVERT_(double, double, uint, unsigned)
KVR_HOST_CONVERT_(double, double, ll, long long)
#undef KVR_HOST_CONVERT_
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
inline double __int2double_rn(int x) { return x; }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
