// SPDX-License-Identifier: Apache-2.0
#include "devices/host/kernel_symbols.h"

#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "sdk/device/host/kvr_host_abi.h"

namespace kvr::host {
namespace {

using F1 = float (*)(float);
using F2 = float (*)(float, float);
using D1 = double (*)(double);
using D2 = double (*)(double, double);

// What kernels print goes to stderr: stdout may carry a protocol.
int PrintFormatted(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int written = std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  return written;
}
int PrintCharacter(int character) { return std::fputc(character, stderr); }
int PrintLine(const char* text) { return std::fprintf(stderr, "%s\n", text); }

#define KVR_SYMBOL(name) \
  { #name, reinterpret_cast < void*>(&::name) }
#define KVR_MATH1(name)                                                \
  {#name "f", reinterpret_cast<void*>(static_cast<F1>(&::name##f))}, { \
#name, reinterpret_cast < void*>(static_cast <D1>(&::name))        \
  }
#define KVR_MATH2(name)                                                \
  {#name "f", reinterpret_cast<void*>(static_cast<F2>(&::name##f))}, { \
#name, reinterpret_cast < void*>(static_cast <D2>(&::name))        \
  }

const KernelSymbol kSymbols[] = {
    KVR_SYMBOL(kvr_host_self),
    KVR_SYMBOL(kvr_host_collective),
    KVR_SYMBOL(kvr_host_barrier),
    KVR_SYMBOL(kvr_host_barrier_arrive),
    KVR_SYMBOL(kvr_host_barrier_count),
    KVR_SYMBOL(kvr_host_active_mask),
    KVR_SYMBOL(kvr_host_yield),
    KVR_SYMBOL(kvr_host_fail),
    {"memcpy", reinterpret_cast<void*>(&std::memcpy)},
    {"memmove", reinterpret_cast<void*>(&std::memmove)},
    {"memset", reinterpret_cast<void*>(&std::memset)},
    {"memcmp", reinterpret_cast<void*>(&std::memcmp)},
    {"bcmp", reinterpret_cast<void*>(&std::memcmp)},
    {"printf", reinterpret_cast<void*>(&PrintFormatted)},
    {"putchar", reinterpret_cast<void*>(&PrintCharacter)},
    {"puts", reinterpret_cast<void*>(&PrintLine)},
    KVR_MATH1(sqrt),
    KVR_MATH1(cbrt),
    KVR_MATH1(exp),
    KVR_MATH1(exp2),
    KVR_MATH1(exp10),
    KVR_MATH1(expm1),
    KVR_MATH1(log),
    KVR_MATH1(log2),
    KVR_MATH1(log10),
    KVR_MATH1(log1p),
    KVR_MATH1(sin),
    KVR_MATH1(cos),
    KVR_MATH1(tan),
    KVR_MATH1(asin),
    KVR_MATH1(acos),
    KVR_MATH1(atan),
    KVR_MATH1(sinh),
    KVR_MATH1(cosh),
    KVR_MATH1(tanh),
    KVR_MATH1(asinh),
    KVR_MATH1(acosh),
    KVR_MATH1(atanh),
    KVR_MATH1(erf),
    KVR_MATH1(erfc),
    KVR_MATH1(lgamma),
    KVR_MATH1(tgamma),
    KVR_MATH1(floor),
    KVR_MATH1(ceil),
    KVR_MATH1(trunc),
    KVR_MATH1(round),
    KVR_MATH1(rint),
    KVR_MATH1(nearbyint),
    KVR_MATH1(roundeven),
    KVR_MATH2(pow),
    KVR_MATH2(fmod),
    KVR_MATH2(remainder),
    KVR_MATH2(atan2),
    KVR_MATH2(hypot),
    KVR_MATH2(fdim),
    KVR_MATH2(fmax),
    KVR_MATH2(fmin),
    KVR_MATH2(nextafter),
    KVR_MATH2(copysign),
    {"fmaf", reinterpret_cast<void*>(static_cast<float (*)(float, float, float)>(&::fmaf))},
    {"fma", reinterpret_cast<void*>(static_cast<double (*)(double, double, double)>(&::fma))},
    {"ldexpf", reinterpret_cast<void*>(static_cast<float (*)(float, int)>(&::ldexpf))},
    {"ldexp", reinterpret_cast<void*>(static_cast<double (*)(double, int)>(&::ldexp))},
    {"frexpf", reinterpret_cast<void*>(static_cast<float (*)(float, int*)>(&::frexpf))},
    {"frexp", reinterpret_cast<void*>(static_cast<double (*)(double, int*)>(&::frexp))},
    {"sincosf", reinterpret_cast<void*>(static_cast<void (*)(float, float*, float*)>(&::sincosf))},
    {"sincos", reinterpret_cast<void*>(static_cast<void (*)(double, double*, double*)>(&::sincos))},
};

}  // namespace

absl::Span<const KernelSymbol> KernelSymbols() { return kSymbols; }

}  // namespace kvr::host
