// SPDX-License-Identifier: Apache-2.0
//
// NVRTC has memcpy and memset itself.
#pragma once
inline int memcmp(const void* a, const void* b, size_t size) {
  const unsigned char* x = static_cast<const unsigned char*>(a);
  const unsigned char* y = static_cast<const unsigned char*>(b);
  for (size_t i = 0; i < size; ++i)
    if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
  return 0;
}
inline void* memmove(void* to, const void* from, size_t size) {
  unsigned char* x = static_cast<unsigned char*>(to);
  const unsigned char* y = static_cast<const unsigned char*>(from);
  if (x <= y) {
    for (size_t i = 0; i < size; ++i) x[i] = y[i];
  } else {
    for (size_t i = size; i > 0; --i) x[i - 1] = y[i - 1];
  }
  return to;
}
