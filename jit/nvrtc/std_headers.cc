// SPDX-License-Identifier: Apache-2.0
#include "jit/nvrtc/std_headers.h"

namespace kvr {
namespace {

constexpr char kCstdint[] = R"(#pragma once
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef int64_t intptr_t;
typedef uint64_t uintptr_t;
typedef int64_t intmax_t;
typedef uint64_t uintmax_t;
#ifndef INT8_MIN
#define INT8_MIN (-128)
#define INT8_MAX 127
#define UINT8_MAX 255
#define INT16_MIN (-32767 - 1)
#define INT16_MAX 32767
#define UINT16_MAX 65535
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define UINT32_MAX 4294967295U
#define INT64_MIN (-9223372036854775807LL - 1)
#define INT64_MAX 9223372036854775807LL
#define UINT64_MAX 18446744073709551615ULL
#define SIZE_MAX 18446744073709551615UL
#endif
namespace std {
using ::int8_t;
using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::intmax_t;
using ::intptr_t;
using ::uint8_t;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uintmax_t;
using ::uintptr_t;
}
)";

constexpr char kCstddef[] = R"(#pragma once
typedef decltype(static_cast<char*>(nullptr) - static_cast<char*>(nullptr)) ptrdiff_t;
#ifndef NULL
#define NULL 0
#endif
#ifndef offsetof
#define offsetof(type, member) __builtin_offsetof(type, member)
#endif
namespace std {
using ::ptrdiff_t;
using ::size_t;
using nullptr_t = decltype(nullptr);
}
)";

constexpr char kClimits[] = R"(#pragma once
#ifndef INT_MAX
#define CHAR_BIT 8
#define SCHAR_MIN (-128)
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define SHRT_MIN (-32767 - 1)
#define SHRT_MAX 32767
#define USHRT_MAX 65535
#define INT_MIN (-2147483647 - 1)
#define INT_MAX 2147483647
#define UINT_MAX 4294967295U
#define LONG_MIN (-9223372036854775807L - 1)
#define LONG_MAX 9223372036854775807L
#define ULONG_MAX 18446744073709551615UL
#define LLONG_MIN (-9223372036854775807LL - 1)
#define LLONG_MAX 9223372036854775807LL
#define ULLONG_MAX 18446744073709551615ULL
#endif
)";

constexpr char kCfloat[] = R"(#pragma once
#ifndef FLT_MAX
#define FLT_MAX 3.40282346638528859812e+38f
#define FLT_MIN 1.17549435082228750797e-38f
#define FLT_EPSILON 1.19209289550781250000e-7f
#define DBL_MAX 1.79769313486231570814527423731704356798070e+308
#define DBL_MIN 2.22507385850720138309023271733240406421921e-308
#define DBL_EPSILON 2.22044604925031308084726333618164062e-16
#endif
)";

constexpr char kTypeTraits[] = R"(#pragma once
namespace std {
template <class T, T V> struct integral_constant {
  static constexpr T value = V;
  using value_type = T;
  using type = integral_constant;
  __host__ __device__ constexpr operator T() const { return V; }
};
template <bool B> using bool_constant = integral_constant<bool, B>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;
template <bool B, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { using type = T; };
template <bool B, class T = void> using enable_if_t = typename enable_if<B, T>::type;
template <bool B, class T, class F> struct conditional { using type = T; };
template <class T, class F> struct conditional<false, T, F> { using type = F; };
template <bool B, class T, class F> using conditional_t = typename conditional<B, T, F>::type;
template <class...> using void_t = void;
template <class T> struct remove_reference { using type = T; };
template <class T> struct remove_reference<T&> { using type = T; };
template <class T> struct remove_reference<T&&> { using type = T; };
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> struct remove_const { using type = T; };
template <class T> struct remove_const<const T> { using type = T; };
template <class T> using remove_const_t = typename remove_const<T>::type;
template <class T> struct remove_volatile { using type = T; };
template <class T> struct remove_volatile<volatile T> { using type = T; };
template <class T> using remove_volatile_t = typename remove_volatile<T>::type;
template <class T> using remove_cv_t = remove_const_t<remove_volatile_t<T>>;
template <class T> struct remove_cv { using type = remove_cv_t<T>; };
template <class T> using remove_cvref_t = remove_cv_t<remove_reference_t<T>>;
template <class T> struct remove_cvref { using type = remove_cvref_t<T>; };
template <class T> struct remove_pointer { using type = T; };
template <class T> struct remove_pointer<T*> { using type = T; };
template <class T> using remove_pointer_t = typename remove_pointer<T>::type;
template <class A, class B> struct is_same : false_type {};
template <class A> struct is_same<A, A> : true_type {};
template <class A, class B> inline constexpr bool is_same_v = is_same<A, B>::value;
template <class T> struct is_pointer : false_type {};
template <class T> struct is_pointer<T*> : true_type {};
template <class T> inline constexpr bool is_pointer_v = is_pointer<remove_cv_t<T>>::value;
template <class T> struct is_floating_point
    : bool_constant<is_same_v<remove_cv_t<T>, float> || is_same_v<remove_cv_t<T>, double>> {};
template <class T> inline constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <class T> struct is_integral : bool_constant<
    is_same_v<remove_cv_t<T>, bool> || is_same_v<remove_cv_t<T>, char> ||
    is_same_v<remove_cv_t<T>, signed char> || is_same_v<remove_cv_t<T>, unsigned char> ||
    is_same_v<remove_cv_t<T>, short> || is_same_v<remove_cv_t<T>, unsigned short> ||
    is_same_v<remove_cv_t<T>, int> || is_same_v<remove_cv_t<T>, unsigned> ||
    is_same_v<remove_cv_t<T>, long> || is_same_v<remove_cv_t<T>, unsigned long> ||
    is_same_v<remove_cv_t<T>, long long> || is_same_v<remove_cv_t<T>, unsigned long long>> {};
template <class T> inline constexpr bool is_integral_v = is_integral<T>::value;
template <class T> inline constexpr bool is_arithmetic_v = is_integral_v<T> || is_floating_point_v<T>;
template <class T> inline constexpr bool is_trivially_copyable_v = __is_trivially_copyable(T);
template <class T> remove_reference_t<T>&& declval() noexcept;
}
)";

constexpr char kUtility[] = R"(#pragma once
#include <type_traits>
namespace std {
template <class T> __host__ __device__ constexpr remove_reference_t<T>&& move(T&& t) noexcept {
  return static_cast<remove_reference_t<T>&&>(t);
}
template <class T> __host__ __device__ constexpr T&& forward(remove_reference_t<T>& t) noexcept {
  return static_cast<T&&>(t);
}
template <class T> __host__ __device__ constexpr T&& forward(remove_reference_t<T>&& t) noexcept {
  return static_cast<T&&>(t);
}
template <class T> __host__ __device__ constexpr void swap(T& a, T& b) {
  T t = static_cast<T&&>(a);
  a = static_cast<T&&>(b);
  b = static_cast<T&&>(t);
}
template <class T, T... I> struct integer_sequence {
  __host__ __device__ static constexpr decltype(sizeof(0)) size() { return sizeof...(I); }
};
template <decltype(sizeof(0))... I> using index_sequence = integer_sequence<decltype(sizeof(0)), I...>;
template <decltype(sizeof(0)) N, decltype(sizeof(0))... I>
struct kvr_count : kvr_count<N - 1, N - 1, I...> {};
template <decltype(sizeof(0))... I> struct kvr_count<0, I...> {
  template <class T> using as = integer_sequence<T, static_cast<T>(I)...>;
};
template <class T, T N> using make_integer_sequence = typename kvr_count<N>::template as<T>;
template <decltype(sizeof(0)) N>
using make_index_sequence = make_integer_sequence<decltype(sizeof(0)), N>;
}
)";

constexpr char kLimits[] = R"(#pragma once
#include <climits>
namespace std {
template <class T> struct numeric_limits { static constexpr bool is_specialized = false; };
#define KVR_INTEGER_LIMITS(T, LOW, HIGH)                                      \
  template <> struct numeric_limits<T> {                                      \
    static constexpr bool is_specialized = true, is_integer = true;           \
    __host__ __device__ static constexpr T min() noexcept { return LOW; }     \
    __host__ __device__ static constexpr T lowest() noexcept { return LOW; }  \
    __host__ __device__ static constexpr T max() noexcept { return HIGH; }    \
  };
KVR_INTEGER_LIMITS(signed char, SCHAR_MIN, SCHAR_MAX)
KVR_INTEGER_LIMITS(unsigned char, 0, UCHAR_MAX)
KVR_INTEGER_LIMITS(short, SHRT_MIN, SHRT_MAX)
KVR_INTEGER_LIMITS(unsigned short, 0, USHRT_MAX)
KVR_INTEGER_LIMITS(int, INT_MIN, INT_MAX)
KVR_INTEGER_LIMITS(unsigned, 0, UINT_MAX)
KVR_INTEGER_LIMITS(long, LONG_MIN, LONG_MAX)
KVR_INTEGER_LIMITS(unsigned long, 0, ULONG_MAX)
KVR_INTEGER_LIMITS(long long, LLONG_MIN, LLONG_MAX)
KVR_INTEGER_LIMITS(unsigned long long, 0, ULLONG_MAX)
#undef KVR_INTEGER_LIMITS
template <> struct numeric_limits<float> {
  static constexpr bool is_specialized = true, is_integer = false, has_infinity = true;
  __host__ __device__ static constexpr float min() noexcept { return 1.17549435082228750797e-38f; }
  __host__ __device__ static constexpr float lowest() noexcept { return -3.40282346638528859812e+38f; }
  __host__ __device__ static constexpr float max() noexcept { return 3.40282346638528859812e+38f; }
  __host__ __device__ static constexpr float epsilon() noexcept { return 1.1920928955078125e-7f; }
  __host__ __device__ static constexpr float infinity() noexcept { return __builtin_bit_cast(float, 0x7f800000); }
  __host__ __device__ static constexpr float quiet_NaN() noexcept { return __builtin_bit_cast(float, 0x7fc00000); }
};
template <> struct numeric_limits<double> {
  static constexpr bool is_specialized = true, is_integer = false, has_infinity = true;
  __host__ __device__ static constexpr double min() noexcept { return 2.2250738585072014e-308; }
  __host__ __device__ static constexpr double lowest() noexcept { return -1.7976931348623157e+308; }
  __host__ __device__ static constexpr double max() noexcept { return 1.7976931348623157e+308; }
  __host__ __device__ static constexpr double epsilon() noexcept { return 2.220446049250313e-16; }
  __host__ __device__ static constexpr double infinity() noexcept { return __builtin_bit_cast(double, 0x7ff0000000000000LL); }
  __host__ __device__ static constexpr double quiet_NaN() noexcept { return __builtin_bit_cast(double, 0x7ff8000000000000LL); }
};
}
)";

// NVRTC declares these functions itself, in the global namespace.
constexpr char kCmath[] = R"(#pragma once
#ifndef INFINITY
#define INFINITY __builtin_bit_cast(float, 0x7f800000)
#endif
#ifndef NAN
#define NAN __builtin_bit_cast(float, 0x7fc00000)
#endif
namespace std {
using ::abs;
using ::ceil;
using ::cos;
using ::exp;
using ::exp2;
using ::fabs;
using ::floor;
using ::fma;
using ::fmax;
using ::fmin;
using ::isfinite;
using ::isinf;
using ::isnan;
using ::log;
using ::log2;
using ::pow;
using ::round;
using ::rsqrt;
using ::sin;
using ::sqrt;
using ::tanh;
using ::trunc;
}
)";

constexpr char kCstring[] = R"(#pragma once
namespace std {
using ::memcpy;
using ::memset;
using ::size_t;
}
)";

constexpr char kCassert[] = R"(#ifndef assert
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
#define assert(condition) ((condition) ? (void)0 : __trap())
#endif
#endif
)";

constexpr char kAlgorithm[] = R"(#pragma once
namespace std {
template <class T> __host__ __device__ constexpr const T& min(const T& a, const T& b) {
  return b < a ? b : a;
}
template <class T> __host__ __device__ constexpr const T& max(const T& a, const T& b) {
  return a < b ? b : a;
}
}
)";

// What the toolkit's own headers ask for in branches that do not count under NVRTC.
constexpr char kEmpty[] = "#pragma once\n";

}  // namespace

std::map<std::string, std::string> NvrtcStandardHeaders() {
  return {
      {"algorithm", kAlgorithm}, {"assert.h", kCassert}, {"cassert", kCassert},
      {"cfloat", kCfloat},       {"climits", kClimits},  {"cmath", kCmath},
      {"cstddef", kCstddef},     {"cstdint", kCstdint},  {"cstdio", kEmpty},
      {"cstdlib", kEmpty},       {"cstring", kCstring},  {"float.h", kCfloat},
      {"limits", kLimits},       {"limits.h", kClimits}, {"math.h", kCmath},
      {"stddef.h", kCstddef},    {"stdint.h", kCstdint}, {"stdio.h", kEmpty},
      {"stdlib.h", kEmpty},      {"string.h", kCstring}, {"type_traits", kTypeTraits},
      {"utility", kUtility},
  };
}

}  // namespace kvr
