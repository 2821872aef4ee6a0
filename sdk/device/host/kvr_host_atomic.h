// SPDX-License-Identifier: Apache-2.0
//
// Atomics. Blocks run at once, on several threads, so these are atomic for the whole process.
#pragma once

#include "kvr_host_cuda.h"

namespace kvr_host_detail {

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
