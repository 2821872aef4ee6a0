// SPDX-License-Identifier: Apache-2.0
//
// Bodies of kvr_host.h's matrix primitives; see there. They are compiled with each unit, so they
// use the running machine's vector instructions.
#pragma once

namespace kvr_host_detail {

typedef float f32x8 __attribute__((vector_size(32)));
typedef unsigned u32x8 __attribute__((vector_size(32)));
typedef _Float16 f16x8 __attribute__((vector_size(16)));
typedef unsigned short u16x8 __attribute__((vector_size(16)));

struct MmaArgs {
  float* d;
  const unsigned* a;
  const unsigned* b;
  const float* c;
};

// Packed pairs to the floats of even and odd k.
struct Bf16Pairs {
  static f32x8 Even(u32x8 v) { return __builtin_bit_cast(f32x8, v << 16); }
  static f32x8 Odd(u32x8 v) { return __builtin_bit_cast(f32x8, v & 0xffff0000u); }
};
struct F16Pairs {
  static f32x8 Widen(u32x8 v) {
    const u16x8 bits = __builtin_convertvector(v, u16x8);
    return __builtin_convertvector(__builtin_bit_cast(f16x8, bits), f32x8);
  }
  static f32x8 Even(u32x8 v) { return Widen(v & 0xffffu); }
  static f32x8 Odd(u32x8 v) { return Widen(v >> 16); }
};

template <class Pairs>
KVR_HOST_COLLECTIVE void Mma(void* const* lanes) {
  // Pair (row, k/2) of A and pair (k/2, column) of B, then 8 columns at a time.
  alignas(32) unsigned a[16][8];
  alignas(32) unsigned b[8][8];
  alignas(32) float c[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const MmaArgs& args = *static_cast<const MmaArgs*>(lanes[lane]);
    const int g = lane >> 2, t = lane & 3;
    a[g][t] = args.a[0];
    a[g + 8][t] = args.a[1];
    a[g][t + 4] = args.a[2];
    a[g + 8][t + 4] = args.a[3];
    b[t][g] = args.b[0];
    b[t + 4][g] = args.b[1];
    c[g][2 * t] = args.c[0];
    c[g][2 * t + 1] = args.c[1];
    c[g + 8][2 * t] = args.c[2];
    c[g + 8][2 * t + 1] = args.c[3];
  }
  f32x8 even[8], odd[8];
  for (int k = 0; k < 8; ++k) {
    const u32x8 v = *reinterpret_cast<const u32x8*>(b[k]);
    even[k] = Pairs::Even(v);
    odd[k] = Pairs::Odd(v);
  }
  for (int row = 0; row < 16; ++row) {
    const u32x8 v = *reinterpret_cast<const u32x8*>(a[row]);
    const f32x8 a_even = Pairs::Even(v), a_odd = Pairs::Odd(v);
    f32x8 sum = *reinterpret_cast<const f32x8*>(c[row]);
#pragma clang loop unroll(full)
    for (int k = 0; k < 8; ++k) {
      sum += a_even[k] * even[k];
      sum += a_odd[k] * odd[k];
    }
    *reinterpret_cast<f32x8*>(c[row]) = sum;
  }
  for (int lane = 0; lane < 32; ++lane) {
    float* d = static_cast<const MmaArgs*>(lanes[lane])->d;
    const int g = lane >> 2, t = lane & 3;
    d[0] = c[g][2 * t];
    d[1] = c[g][2 * t + 1];
    d[2] = c[g + 8][2 * t];
    d[3] = c[g + 8][2 * t + 1];
  }
}

struct LdmatrixArgs {
  unsigned* r;
  const void* row;
  unsigned site;
  const kvr_host_lane* self;
};

KVR_HOST_COLLECTIVE inline void ReadRows(void* const* lanes, int count) {
  for (int lane = 0; lane < count; ++lane) {
    const LdmatrixArgs& args = *static_cast<const LdmatrixArgs*>(lanes[lane]);
    kvr_host_access(args.self, args.row, 16, args.site << 2);
  }
}

template <int kCount>
KVR_HOST_COLLECTIVE void Ldmatrix(void* const* lanes) {
  ReadRows(lanes, 8 * kCount);
  for (int j = 0; j < kCount; ++j) {
    for (int lane = 0; lane < 32; ++lane) {
      const LdmatrixArgs& source = *static_cast<const LdmatrixArgs*>(lanes[8 * j + (lane >> 2)]);
      static_cast<LdmatrixArgs*>(lanes[lane])->r[j] =
          static_cast<const unsigned*>(source.row)[lane & 3];
    }
  }
}

template <int kCount>
KVR_HOST_COLLECTIVE void LdmatrixTrans(void* const* lanes) {
  ReadRows(lanes, 8 * kCount);
  for (int j = 0; j < kCount; ++j) {
    for (int lane = 0; lane < 32; ++lane) {
      const int column = lane >> 2, row = 8 * j + 2 * (lane & 3);
      const unsigned short* low =
          static_cast<const unsigned short*>(static_cast<const LdmatrixArgs*>(lanes[row])->row);
      const unsigned short* high =
          static_cast<const unsigned short*>(static_cast<const LdmatrixArgs*>(lanes[row + 1])->row);
      static_cast<LdmatrixArgs*>(lanes[lane])->r[j] =
          low[column] | static_cast<unsigned>(high[column]) << 16;
    }
  }
}

}  // namespace kvr_host_detail

__forceinline__ void kvr_host_mma_m16n8k16_bf16(float d[4], const unsigned a[4],
                                                const unsigned b[2], const float c[4]) {
  kvr_host_detail::MmaArgs args{d, a, b, c};
  kvr_host_warp_collective(&kvr_host_detail::Mma<kvr_host_detail::Bf16Pairs>, &args, "mma",
                           kvr_host_site());
}

__forceinline__ void kvr_host_mma_m16n8k16_f16(float d[4], const unsigned a[4], const unsigned b[2],
                                               const float c[4]) {
  kvr_host_detail::MmaArgs args{d, a, b, c};
  kvr_host_warp_collective(&kvr_host_detail::Mma<kvr_host_detail::F16Pairs>, &args, "mma",
                           kvr_host_site());
}

#define KVR_HOST_LDMATRIX_(name, body)                                         \
  __forceinline__ void name(unsigned* r, const void* row) {                    \
    const unsigned site = kvr_host_site();                                     \
    kvr_host_detail::LdmatrixArgs args{r, row, site, kvr_host_self()};         \
    kvr_host_warp_collective(&kvr_host_detail::body, &args, "ldmatrix", site); \
  }
KVR_HOST_LDMATRIX_(kvr_host_ldmatrix_x4, Ldmatrix<4>)
KVR_HOST_LDMATRIX_(kvr_host_ldmatrix_x2, Ldmatrix<2>)
KVR_HOST_LDMATRIX_(kvr_host_ldmatrix_x1, Ldmatrix<1>)
KVR_HOST_LDMATRIX_(kvr_host_ldmatrix_x4_trans, LdmatrixTrans<4>)
KVR_HOST_LDMATRIX_(kvr_host_ldmatrix_x2_trans, LdmatrixTrans<2>)
KVR_HOST_LDMATRIX_(kvr_host_ldmatrix_x1_trans, LdmatrixTrans<1>)
#undef KVR_HOST_LDMATRIX_
