// SPDX-License-Identifier: Apache-2.0
//
// Vector accesses: one instruction moves 4, 8 or 16 bytes, at an address aligned to that size.
// LoadReadOnly is for memory that no thread writes while the kernel runs.
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
KVR_DEVICE void Store(void* address, const T& value) {
  *static_cast<T*>(address) = value;
}

}  // namespace kvr
