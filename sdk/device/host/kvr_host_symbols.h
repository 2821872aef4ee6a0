// SPDX-License-Identifier: Apache-2.0
//
// Every function that code for the host device may leave undefined: what the compiler accepts
// (jit/clang/checks.cc) and what the loader offers (devices/host/kernel_symbols.cc). Include it
// with KVR_HOST_SYMBOL(name) defined, or with KVR_HOST_FUNCTION(name, type) as well.
#ifndef KVR_HOST_FUNCTION
#define KVR_HOST_FUNCTION(name, ...) KVR_HOST_SYMBOL(name)
#endif
#ifndef KVR_HOST_RUNTIME
#define KVR_HOST_RUNTIME(name) KVR_HOST_SYMBOL(name)
#endif
#define KVR_HOST_MATH1(name)               \
  KVR_HOST_FUNCTION(name##f, float(float)) \
  KVR_HOST_FUNCTION(name, double(double))
#define KVR_HOST_MATH2(name)                      \
  KVR_HOST_FUNCTION(name##f, float(float, float)) \
  KVR_HOST_FUNCTION(name, double(double, double))

// kvr_host_abi.h
KVR_HOST_RUNTIME(kvr_host_self)
KVR_HOST_RUNTIME(kvr_host_collective)
KVR_HOST_RUNTIME(kvr_host_barrier)
KVR_HOST_RUNTIME(kvr_host_barrier_arrive)
KVR_HOST_RUNTIME(kvr_host_barrier_count)
KVR_HOST_RUNTIME(kvr_host_active_mask)
KVR_HOST_RUNTIME(kvr_host_yield)
KVR_HOST_RUNTIME(kvr_host_fail)
KVR_HOST_RUNTIME(kvr_host_copy_async)
KVR_HOST_RUNTIME(kvr_host_commit_copies)
KVR_HOST_RUNTIME(kvr_host_wait_copies)
KVR_HOST_RUNTIME(kvr_host_access)
KVR_HOST_RUNTIME(kvr_host_order)
KVR_HOST_RUNTIME(kvr_host_stack_overflow)

KVR_HOST_FUNCTION(memcpy, void*(void*, const void*, size_t))
KVR_HOST_FUNCTION(memmove, void*(void*, const void*, size_t))
KVR_HOST_FUNCTION(memset, void*(void*, int, size_t))
KVR_HOST_FUNCTION(memcmp, int(const void*, const void*, size_t))
KVR_HOST_FUNCTION(bcmp, int(const void*, const void*, size_t))
KVR_HOST_FUNCTION(printf, int(const char*, ...))
KVR_HOST_FUNCTION(putchar, int(int))
KVR_HOST_FUNCTION(puts, int(const char*))

KVR_HOST_MATH1(sqrt)
KVR_HOST_MATH1(cbrt)
KVR_HOST_MATH1(exp)
KVR_HOST_MATH1(exp2)
KVR_HOST_MATH1(exp10)
KVR_HOST_MATH1(expm1)
KVR_HOST_MATH1(log)
KVR_HOST_MATH1(log2)
KVR_HOST_MATH1(log10)
KVR_HOST_MATH1(log1p)
KVR_HOST_MATH1(sin)
KVR_HOST_MATH1(cos)
KVR_HOST_MATH1(tan)
KVR_HOST_MATH1(asin)
KVR_HOST_MATH1(acos)
KVR_HOST_MATH1(atan)
KVR_HOST_MATH1(sinh)
KVR_HOST_MATH1(cosh)
KVR_HOST_MATH1(tanh)
KVR_HOST_MATH1(asinh)
KVR_HOST_MATH1(acosh)
KVR_HOST_MATH1(atanh)
KVR_HOST_MATH1(erf)
KVR_HOST_MATH1(erfc)
KVR_HOST_MATH1(lgamma)
KVR_HOST_MATH1(tgamma)
KVR_HOST_MATH1(floor)
KVR_HOST_MATH1(ceil)
KVR_HOST_MATH1(trunc)
KVR_HOST_MATH1(round)
KVR_HOST_MATH1(rint)
KVR_HOST_MATH1(nearbyint)
KVR_HOST_MATH1(roundeven)
KVR_HOST_MATH2(pow)
KVR_HOST_MATH2(fmod)
KVR_HOST_MATH2(remainder)
KVR_HOST_MATH2(atan2)
KVR_HOST_MATH2(hypot)
KVR_HOST_MATH2(fdim)
KVR_HOST_MATH2(fmax)
KVR_HOST_MATH2(fmin)
KVR_HOST_MATH2(nextafter)
KVR_HOST_MATH2(copysign)
KVR_HOST_FUNCTION(fmaf, float(float, float, float))
KVR_HOST_FUNCTION(fma, double(double, double, double))
KVR_HOST_FUNCTION(ldexpf, float(float, int))
KVR_HOST_FUNCTION(ldexp, double(double, int))
KVR_HOST_FUNCTION(frexpf, float(float, int*))
KVR_HOST_FUNCTION(frexp, double(double, int*))
KVR_HOST_FUNCTION(sincosf, void(float, float*, float*))
KVR_HOST_FUNCTION(sincos, void(double, double*, double*))

// What the code generator calls: __int128, and _Float16 and __int128 against wider types.
KVR_HOST_RUNTIME(__divti3)
KVR_HOST_RUNTIME(__modti3)
KVR_HOST_RUNTIME(__udivti3)
KVR_HOST_RUNTIME(__umodti3)
KVR_HOST_RUNTIME(__truncdfhf2)
KVR_HOST_RUNTIME(__extendhfdf2)
KVR_HOST_RUNTIME(__fixsfti)
KVR_HOST_RUNTIME(__fixdfti)
KVR_HOST_RUNTIME(__fixunssfti)
KVR_HOST_RUNTIME(__fixunsdfti)
KVR_HOST_RUNTIME(__floattisf)
KVR_HOST_RUNTIME(__floattidf)
KVR_HOST_RUNTIME(__floatuntisf)
KVR_HOST_RUNTIME(__floatuntidf)
KVR_HOST_RUNTIME(__powisf2)
KVR_HOST_RUNTIME(__powidf2)

#undef KVR_HOST_MATH1
#undef KVR_HOST_MATH2
#undef KVR_HOST_FUNCTION
#undef KVR_HOST_RUNTIME
