// SPDX-License-Identifier: Apache-2.0
//
// CUDA's vector types and make_* functions, with CUDA's sizes and alignments.
#pragma once

#define KVR_HOST_VECTOR_(base, name, align1, align2, align4)                     \
  struct name##1 {                                                               \
    base x;                                                                      \
  };                                                                             \
  struct __attribute__((aligned(align2))) name##2 {                              \
    base x, y;                                                                   \
  };                                                                             \
  struct name##3 {                                                               \
    base x, y, z;                                                                \
  };                                                                             \
  struct __attribute__((aligned(align4))) name##4 {                              \
    base x, y, z, w;                                                             \
  };                                                                             \
  constexpr name##1 make_##name##1(base x) { return {x}; }                       \
  constexpr name##2 make_##name##2(base x, base y) { return {x, y}; }            \
  constexpr name##3 make_##name##3(base x, base y, base z) { return {x, y, z}; } \
  constexpr name##4 make_##name##4(base x, base y, base z, base w) { return {x, y, z, w}; }

KVR_HOST_VECTOR_(signed char, char, 1, 2, 4)
KVR_HOST_VECTOR_(unsigned char, uchar, 1, 2, 4)
KVR_HOST_VECTOR_(short, short, 2, 4, 8)
KVR_HOST_VECTOR_(unsigned short, ushort, 2, 4, 8)
KVR_HOST_VECTOR_(int, int, 4, 8, 16)
KVR_HOST_VECTOR_(long, long, 8, 16, 16)
KVR_HOST_VECTOR_(unsigned long, ulong, 8, 16, 16)
KVR_HOST_VECTOR_(long long, longlong, 8, 16, 16)
KVR_HOST_VECTOR_(unsigned long long, ulonglong, 8, 16, 16)
KVR_HOST_VECTOR_(float, float, 4, 8, 16)
KVR_HOST_VECTOR_(double, double, 8, 16, 16)
#undef KVR_HOST_VECTOR_

struct uint1 {
  unsigned x;
};
struct __attribute__((aligned(8))) uint2 {
  unsigned x, y;
};
typedef kvr_host_dim uint3;
struct __attribute__((aligned(16))) uint4 {
  unsigned x, y, z, w;
};
constexpr uint1 make_uint1(unsigned x) { return {x}; }
constexpr uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
constexpr uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
constexpr uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(const uint3& v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
