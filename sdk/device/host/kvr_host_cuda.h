// SPDX-License-Identifier: Apache-2.0
//
// CUDA C++ for a plain C++ compiler: declaration words, built-in variables, barriers and fences,
// memory accesses. Warp functions, atomics and bit intrinsics have headers of their own.
//
// __shared__ is thread_local as far as the language goes (it makes a local variable static and goes
// with extern); the compiler's shared-memory pass gives those variables their place in the block's
// memory, so no thread-local storage exists in the object.
#pragma once

#define __global__ __attribute__((annotate("kvr_global")))
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __shared__ thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...) __attribute__((annotate("kvr_launch_bounds", __VA_ARGS__)))
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __builtin_align__(n) __attribute__((aligned(n)))
// CUDA compilers take alignas anywhere among the specifiers; C++ in front only.
#define alignas(n) __attribute__((aligned(n)))

#define threadIdx (kvr_host_self()->thread)
#define blockIdx (kvr_host_self()->block)
#define blockDim (kvr_host_self()->block_dim)
#define gridDim (kvr_host_self()->grid_dim)
#define warpSize 32

namespace kvr_host_detail {

typedef unsigned long long u64;

inline unsigned LaneId() { return kvr_host_self()->lane; }

template <class To, class From>
inline To Bits(const From& from) {
  static_assert(sizeof(To) >= sizeof(From));
  To to{};
  __builtin_memcpy(&to, &from, sizeof(From));
  return to;
}
template <class To>
inline To FromBits(u64 bits) {
  To to;
  __builtin_memcpy(&to, &bits, sizeof(To));
  return to;
}

// The unsigned integer of a size.
template <int kBytes>
struct Word;
template <>
struct Word<2> {
  typedef unsigned short type;
};
template <>
struct Word<4> {
  typedef unsigned type;
};
template <>
struct Word<8> {
  typedef u64 type;
};

}  // namespace kvr_host_detail

// ---- Barriers and fences ------------------------------------------------------------------------

__forceinline__ void __syncthreads() { kvr_host_barrier(kvr_host_self(), 0, 0, kvr_host_site()); }
__forceinline__ int __syncthreads_count(int predicate) {
  return static_cast<int>(kvr_host_barrier_count(kvr_host_self(), predicate, kvr_host_site()));
}
__forceinline__ int __syncthreads_or(int predicate) { return __syncthreads_count(predicate) != 0; }
__forceinline__ int __syncthreads_and(int predicate) {
  return __syncthreads_count(predicate == 0) == 0;
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __nanosleep(unsigned) { kvr_host_yield(kvr_host_self()); }
[[noreturn]] __forceinline__ void __trap() {
  kvr_host_fail(kvr_host_self(), "__trap", kvr_host_site());
}
// Programmatic dependent launch: on host the kernel before has always finished.
inline void cudaGridDependencySynchronize() {}
inline void cudaTriggerProgrammaticLaunchCompletion() {}
inline long long clock64() { return static_cast<long long>(__builtin_readcyclecounter()); }
inline int clock() { return static_cast<int>(clock64()); }

// ---- Memory -------------------------------------------------------------------------------------

template <class T>
inline T __ldg(const T* p) {
  return *p;
}
template <class T>
inline T __ldcg(const T* p) {
  return *p;
}
template <class T>
inline T __ldca(const T* p) {
  return *p;
}
template <class T>
inline T __ldcs(const T* p) {
  return *p;
}
template <class T>
inline T __ldlu(const T* p) {
  return *p;
}
// Volatile, so it can poll.
template <class T>
inline T __ldcv(const T* p) {
  typedef typename kvr_host_detail::Word<sizeof(T)>::type W;
  return kvr_host_detail::FromBits<T>(*reinterpret_cast<const volatile W*>(p));
}
template <class T>
inline void __stwb(T* p, T value) {
  *p = value;
}
template <class T>
inline void __stcg(T* p, T value) {
  *p = value;
}
template <class T>
inline void __stcs(T* p, T value) {
  *p = value;
}
template <class T>
inline void __stwt(T* p, T value) {
  *p = value;
}
inline unsigned long __cvta_generic_to_shared(const void* p) {
  return reinterpret_cast<unsigned long>(p);
}
inline unsigned long __cvta_generic_to_global(const void* p) {
  return reinterpret_cast<unsigned long>(p);
}
inline unsigned __isShared(const void*) { return 1; }

// ---- printf and assert
// ----------------------------------------------------------------------------

extern "C" int printf(const char* format, ...) __attribute__((format(printf, 1, 2)));
