// SPDX-License-Identifier: Apache-2.0
//
// CUDA C++ for a plain C++ compiler: declaration words, built-in variables, barriers, votes,
// shuffles, atomics and bit intrinsics.
//
// __shared__ is thread_local as far as the language goes (it makes a local variable static and goes
// with extern); the compiler's shared-memory pass gives those variables their place in the block's
// memory, so no thread-local storage exists in the object.
#pragma once

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __shared__ thread_local
#define __forceinline__ inline __attribute__((always_inline))
// Not as a macro of that name: attributes may be spelled __noinline__ too.
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

// What a lane brings to a shuffle, vote or match, and takes from it.
struct Exchange {
  u64 in;
  u64 out;
  const kvr_host_lane* self;
  unsigned source;  // of a shuffle: the lane to read
};

inline void Meet(void* const*) {}

inline void Shuffle(void* const* lanes) {
  for (int i = 0; i < 32; ++i) {
    Exchange* me = static_cast<Exchange*>(lanes[i]);
    if (me == nullptr) continue;
    const Exchange* from = static_cast<const Exchange*>(lanes[me->source]);
    if (from == nullptr) {
      kvr_host_fail(me->self, "a shuffle reads a lane that its mask does not name");
    }
    me->out = from->in;
  }
}

inline void Ballot(void* const* lanes) {
  u64 votes = 0;
  for (int i = 0; i < 32; ++i) {
    const Exchange* e = static_cast<const Exchange*>(lanes[i]);
    if (e != nullptr && e->in != 0) votes |= u64{1} << i;
  }
  for (int i = 0; i < 32; ++i) {
    if (lanes[i] != nullptr) static_cast<Exchange*>(lanes[i])->out = votes;
  }
}

inline void MatchAny(void* const* lanes) {
  for (int i = 0; i < 32; ++i) {
    Exchange* me = static_cast<Exchange*>(lanes[i]);
    if (me == nullptr) continue;
    me->out = 0;
    for (int j = 0; j < 32; ++j) {
      const Exchange* e = static_cast<const Exchange*>(lanes[j]);
      if (e != nullptr && e->in == me->in) me->out |= u64{1} << j;
    }
  }
}

template <class T, class Op>
void Reduce(void* const* lanes) {
  T value{};
  bool first = true;
  for (int i = 0; i < 32; ++i) {
    const Exchange* e = static_cast<const Exchange*>(lanes[i]);
    if (e == nullptr) continue;
    const T in = FromBits<T>(e->in);
    value = first ? in : Op::Apply(value, in);
    first = false;
  }
  for (int i = 0; i < 32; ++i) {
    if (lanes[i] != nullptr) static_cast<Exchange*>(lanes[i])->out = Bits<u64>(value);
  }
}

inline u64 Collect(kvr_host_fn fn, unsigned mask, u64 in, unsigned source, const char* name) {
  const kvr_host_lane* self = kvr_host_self();
  Exchange exchange{in, 0, self, source};
  kvr_host_collective(self, mask, fn, &exchange, name);
  return exchange.out;
}

struct Add {
  template <class T>
  static T Apply(T a, T b) {
    return a + b;
  }
};
struct Min {
  template <class T>
  static T Apply(T a, T b) {
    return b < a ? b : a;
  }
};
struct Max {
  template <class T>
  static T Apply(T a, T b) {
    return a < b ? b : a;
  }
};
struct And {
  template <class T>
  static T Apply(T a, T b) {
    return a & b;
  }
};
struct Or {
  template <class T>
  static T Apply(T a, T b) {
    return a | b;
  }
};
struct Xor {
  template <class T>
  static T Apply(T a, T b) {
    return a ^ b;
  }
};

}  // namespace kvr_host_detail

// ---- Barriers and fences ------------------------------------------------------------------------

inline void __syncthreads() { kvr_host_barrier(kvr_host_self(), 0, 0); }
inline int __syncthreads_count(int predicate) {
  return static_cast<int>(kvr_host_barrier_count(kvr_host_self(), predicate));
}
inline int __syncthreads_or(int predicate) { return __syncthreads_count(predicate) != 0; }
inline int __syncthreads_and(int predicate) { return __syncthreads_count(predicate == 0) == 0; }
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  kvr_host_collective(kvr_host_self(), mask, &kvr_host_detail::Meet, nullptr, "__syncwarp");
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __nanosleep(unsigned) { kvr_host_yield(kvr_host_self()); }
[[noreturn]] inline void __trap() { kvr_host_fail(kvr_host_self(), "__trap"); }
// Programmatic dependent launch: on host the kernel before has always finished.
inline void cudaGridDependencySynchronize() {}
inline void cudaTriggerProgrammaticLaunchCompletion() {}
inline long long clock64() { return static_cast<long long>(__builtin_readcyclecounter()); }
inline int clock() { return static_cast<int>(clock64()); }

// ---- Votes, shuffles, reductions ----------------------------------------------------------------

// Calls in two branches must not become one call after them.
[[clang::nomerge]] inline __attribute__((noinline, convergent)) unsigned __activemask() {
  return kvr_host_active_mask(kvr_host_self(), __builtin_return_address(0));
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(
      kvr_host_detail::Collect(&kvr_host_detail::Ballot, mask, predicate != 0, 0, "__ballot_sync"));
}
inline int __any_sync(unsigned mask, int predicate) {
  return kvr_host_detail::Collect(&kvr_host_detail::Ballot, mask, predicate != 0, 0,
                                  "__any_sync") != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return kvr_host_detail::Collect(&kvr_host_detail::Ballot, mask, predicate == 0, 0,
                                  "__all_sync") == 0;
}
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value) {
  return static_cast<unsigned>(kvr_host_detail::Collect(
      &kvr_host_detail::MatchAny, mask, kvr_host_detail::Bits<kvr_host_detail::u64>(value), 0,
      "__match_any_sync"));
}
template <class T>
inline unsigned __match_all_sync(unsigned mask, T value, int* all) {
  const unsigned same = __match_any_sync(mask, value);
  *all = __all_sync(mask, same == mask);
  return *all ? mask : 0;
}

namespace kvr_host_detail {
template <class T>
inline T ShuffleFrom(unsigned mask, T value, int source, const char* name) {
  static_assert(sizeof(T) <= 8, "shuffles move 4 or 8 bytes");
  return FromBits<T>(
      Collect(&Shuffle, mask, Bits<u64>(value), static_cast<unsigned>(source), name));
}
}  // namespace kvr_host_detail

// `width`: a power of two up to 32; lanes outside the segment give a lane its own value.
template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int lane = static_cast<int>(kvr_host_detail::LaneId());
  return kvr_host_detail::ShuffleFrom(mask, value, (lane & ~(width - 1)) | (source & (width - 1)),
                                      "__shfl_sync");
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = static_cast<int>(kvr_host_detail::LaneId());
  const int source = lane - static_cast<int>(delta);
  return kvr_host_detail::ShuffleFrom(mask, value, source < (lane & ~(width - 1)) ? lane : source,
                                      "__shfl_up_sync");
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = static_cast<int>(kvr_host_detail::LaneId());
  const int source = lane + static_cast<int>(delta);
  return kvr_host_detail::ShuffleFrom(mask, value, source > (lane | (width - 1)) ? lane : source,
                                      "__shfl_down_sync");
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  const int lane = static_cast<int>(kvr_host_detail::LaneId());
  const int source = lane ^ lane_mask;
  return kvr_host_detail::ShuffleFrom(mask, value, source > (lane | (width - 1)) ? lane : source,
                                      "__shfl_xor_sync");
}

#define KVR_HOST_REDUCE_(name, type, op)                                                        \
  inline type name(unsigned mask, type value) {                                                 \
    namespace detail = kvr_host_detail;                                                         \
    return detail::FromBits<type>(detail::Collect(&detail::Reduce<type, detail::op>, mask,      \
                                                  detail::Bits<detail::u64>(value), 0, #name)); \
  }
KVR_HOST_REDUCE_(__reduce_add_sync, unsigned, Add)
KVR_HOST_REDUCE_(__reduce_add_sync, int, Add)
KVR_HOST_REDUCE_(__reduce_min_sync, unsigned, Min)
KVR_HOST_REDUCE_(__reduce_min_sync, int, Min)
KVR_HOST_REDUCE_(__reduce_max_sync, unsigned, Max)
KVR_HOST_REDUCE_(__reduce_max_sync, int, Max)
KVR_HOST_REDUCE_(__reduce_and_sync, unsigned, And)
KVR_HOST_REDUCE_(__reduce_or_sync, unsigned, Or)
KVR_HOST_REDUCE_(__reduce_xor_sync, unsigned, Xor)
#undef KVR_HOST_REDUCE_

// ---- Atomics (blocks run at once, on several threads) -------------------------------------------

namespace kvr_host_detail {

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

// *address = next(*address), atomically; the old value.
template <class T, class Next>
inline T Update(T* address, Next next) {
  typedef typename Word<sizeof(T)>::type W;
  W* word = reinterpret_cast<W*>(address);
  W seen = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &seen, Bits<W>(next(FromBits<T>(seen))), false,
                                      __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
  }
  return FromBits<T>(seen);
}

// The second argument of an atomic is converted to the type of the memory, as with CUDA's
// overloads.
template <class T>
struct Same {
  typedef T type;
};
template <class T>
using NoDeduce = typename Same<T>::type;

}  // namespace kvr_host_detail

template <class T>
inline T atomicAdd(T* address, kvr_host_detail::NoDeduce<T> value) {
  return kvr_host_detail::Update(address, [value](T old) -> T { return old + value; });
}
inline int atomicAdd(int* address, int value) {
  return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
}
inline unsigned atomicAdd(unsigned* address, unsigned value) {
  return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
}
inline unsigned long long atomicAdd(unsigned long long* address, unsigned long long value) {
  return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
}
template <class T>
inline T atomicSub(T* address, kvr_host_detail::NoDeduce<T> value) {
  return kvr_host_detail::Update(address, [value](T old) -> T { return old - value; });
}
template <class T>
inline T atomicMin(T* address, kvr_host_detail::NoDeduce<T> value) {
  return kvr_host_detail::Update(address, [value](T old) { return value < old ? value : old; });
}
template <class T>
inline T atomicMax(T* address, kvr_host_detail::NoDeduce<T> value) {
  return kvr_host_detail::Update(address, [value](T old) { return old < value ? value : old; });
}
template <class T>
inline T atomicAnd(T* address, kvr_host_detail::NoDeduce<T> value) {
  return __atomic_fetch_and(address, value, __ATOMIC_SEQ_CST);
}
template <class T>
inline T atomicOr(T* address, kvr_host_detail::NoDeduce<T> value) {
  return __atomic_fetch_or(address, value, __ATOMIC_SEQ_CST);
}
template <class T>
inline T atomicXor(T* address, kvr_host_detail::NoDeduce<T> value) {
  return __atomic_fetch_xor(address, value, __ATOMIC_SEQ_CST);
}
inline unsigned atomicInc(unsigned* address, unsigned limit) {
  return kvr_host_detail::Update(address,
                                 [limit](unsigned old) { return old >= limit ? 0u : old + 1; });
}
inline unsigned atomicDec(unsigned* address, unsigned limit) {
  return kvr_host_detail::Update(
      address, [limit](unsigned old) { return old == 0 || old > limit ? limit : old - 1; });
}
// Exch and CAS are what locks spin on: they let the block's other lanes run when they lose.
template <class T>
inline T atomicExch(T* address, kvr_host_detail::NoDeduce<T> value) {
  typedef typename kvr_host_detail::Word<sizeof(T)>::type W;
  const W was = __atomic_exchange_n(reinterpret_cast<W*>(address), kvr_host_detail::Bits<W>(value),
                                    __ATOMIC_SEQ_CST);
  if (was == kvr_host_detail::Bits<W>(value)) kvr_host_yield(kvr_host_self());
  return kvr_host_detail::FromBits<T>(was);
}
template <class T>
inline T atomicCAS(T* address, kvr_host_detail::NoDeduce<T> compare,
                   kvr_host_detail::NoDeduce<T> value) {
  typedef typename kvr_host_detail::Word<sizeof(T)>::type W;
  W seen = kvr_host_detail::Bits<W>(compare);
  if (!__atomic_compare_exchange_n(reinterpret_cast<W*>(address), &seen,
                                   kvr_host_detail::Bits<W>(value), false, __ATOMIC_SEQ_CST,
                                   __ATOMIC_SEQ_CST)) {
    kvr_host_yield(kvr_host_self());
  }
  return kvr_host_detail::FromBits<T>(seen);
}
#define atomicAdd_block atomicAdd
#define atomicAdd_system atomicAdd
#define atomicCAS_block atomicCAS
#define atomicCAS_system atomicCAS
#define atomicExch_block atomicExch
#define atomicExch_system atomicExch
#define atomicMax_block atomicMax
#define atomicMin_block atomicMin

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
// Volatile: reads what other blocks wrote, also in a loop.
template <class T>
inline T __ldcv(const T* p) {
  typedef typename kvr_host_detail::Word<sizeof(T)>::type W;
  kvr_host_yield(kvr_host_self());
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

// ---- Bits ---------------------------------------------------------------------------------------

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) {
  return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) { return __builtin_bitreverse32(x); }
inline unsigned long long __brevll(unsigned long long x) { return __builtin_bitreverse64(x); }
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned>(both << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned>(both >> (shift & 31));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long bytes = static_cast<unsigned long long>(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned pick = selector >> 4 * i & 0xf;
    unsigned byte = static_cast<unsigned>(bytes >> 8 * (pick & 7)) & 0xff;
    if (pick & 8) byte = byte & 0x80 ? 0xff : 0;  // its sign, replicated
    result |= byte << 8 * i;
  }
  return result;
}
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
inline unsigned __sad(int a, int b, unsigned c) {
  return c + static_cast<unsigned>(a < b ? b - a : a - b);
}
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) {
    c += static_cast<signed char>(a >> 8 * i) * static_cast<signed char>(b >> 8 * i);
  }
  return c;
}
inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }

// ---- printf and assert
// ----------------------------------------------------------------------------

extern "C" int printf(const char* format, ...) __attribute__((format(printf, 1, 2)));
