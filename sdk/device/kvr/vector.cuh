// SPDX-License-Identifier: Apache-2.0
//
// Vector accesses: one instruction moves 4, 8 or 16 bytes, at an address aligned to that size.
// LoadReadOnly is for memory that no thread writes while the kernel runs; LoadOnce (8 and 16 bytes)
// for such memory that nobody reads a second time soon, so that no cache keeps it: it takes no room
// in L1 and is the first to leave L2.
#pragma once

#include <kvr/platform.cuh>

namespace kvr {

// T: uint32_t, float, float2, uint2, float4, uint4, ...
template <typename T>
KVR_DEVICE T Load(const void* address) {
  return *static_cast<const T*>(address);
}

template <typename T>
KVR_DEVICE T LoadReadOnly(const void* address) {
#if defined(KVR_HOST)
  return Load<T>(address);
#else
  return __ldg(static_cast<const T*>(address));
#endif
}

template <typename T>
KVR_DEVICE T LoadOnce(const void* address) {
  static_assert(sizeof(T) == 8 || sizeof(T) == 16);
#if defined(KVR_HOST)
  return Load<T>(address);
#else
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  union {
    T value;
    uint32_t words[sizeof(T) / 4];
  } loaded;
  if constexpr (sizeof(T) == 16) {
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(loaded.words[0]), "=r"(loaded.words[1]), "=r"(loaded.words[2]),
                   "=r"(loaded.words[3])
                 : "l"(address), "l"(policy));
  } else {
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;"
                 : "=r"(loaded.words[0]), "=r"(loaded.words[1])
                 : "l"(address), "l"(policy));
  }
  return loaded.value;
#endif
}

template <typename T>
KVR_DEVICE void Store(void* address, const T& value) {
  *static_cast<T*>(address) = value;
}

}  // namespace kvr
