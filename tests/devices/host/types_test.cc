// SPDX-License-Identifier: Apache-2.0
//
// The small floating types and intrinsics of the host's headers against core's conversions.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/dtype.h"
#include "tests/devices/host/host_fixture.h"

namespace kvr {
namespace {

uint32_t BitsOf(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof bits);
  return bits;
}

TEST(HostTypes, DecodesEveryValue) {
  HostKernel kernel(R"(
    #include <cuda_bf16.h>
    #include <cuda_fp16.h>
    #include <cuda_fp8.h>
    __global__ void decode(float* bf16, float* f16, float* e4m3, float* e8m0) {
      for (unsigned i = blockIdx.x * 256 + threadIdx.x; i < 65536; i += gridDim.x * 256) {
        bf16[i] = __bfloat162float(__ushort_as_bfloat16(i));
        f16[i] = __half2float(__ushort_as_half(i));
        if (i < 256) {
          __nv_fp8_e4m3 x; x.__x = i;
          e4m3[i] = float(x);
          __nv_fp8_e8m0 s; s.__x = i;
          e8m0[i] = float(s);
        }
      }
    })",
                    "decode");
  std::vector<float> bf16(65536), f16(65536), e4m3(256), e8m0(256);
  ASSERT_EQ(kernel.Run({8}, {256}, 0, bf16.data(), f16.data(), e4m3.data(), e8m0.data()),
            absl::OkStatus());
  auto same = [](float a, float b) { return (a != a && b != b) || BitsOf(a) == BitsOf(b); };
  for (int i = 0; i < 65536; ++i) {
    ASSERT_TRUE(same(bf16[i], Bf16ToFloat(static_cast<uint16_t>(i)))) << i;
    ASSERT_TRUE(same(f16[i], F16ToFloat(static_cast<uint16_t>(i)))) << i;
  }
  for (int i = 0; i < 256; ++i) {
    EXPECT_TRUE(same(e4m3[i], E4m3ToFloat(static_cast<uint8_t>(i)))) << i;
    EXPECT_TRUE(same(e8m0[i], E8m0ToFloat(static_cast<uint8_t>(i)))) << i;
  }
}

TEST(HostTypes, RoundsToNearestEven) {
  HostKernel kernel(R"(
    #include <cuda_bf16.h>
    #include <cuda_fp16.h>
    #include <cuda_fp8.h>
    __global__ void encode(const float* in, int n, unsigned short* bf16, unsigned short* f16,
                           unsigned char* e4m3) {
      const int i = blockIdx.x * 256 + threadIdx.x;
      if (i >= n) return;
      bf16[i] = __bfloat16_as_ushort(__float2bfloat16_rn(in[i]));
      f16[i] = __half_as_ushort(__float2half_rn(in[i]));
      e4m3[i] = __nv_fp8_e4m3(in[i]).__x;
    })",
                    "encode");
  std::vector<float> in = {
      0.0f,      -0.0f,         1.0f,          448.0f,   464.0f,
      464.1f,    -1000.0f,      65504.0f,      65520.0f, std::numeric_limits<float>::infinity(),
      1e-8f,     0.0009765625f, 0.0029296875f, 3e38f,    0.0078125f,
      0.015625f, 0.0146484375f};
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    in.push_back(std::ldexp(std::uniform_real_distribution<float>(-2, 2)(random),
                            std::uniform_int_distribution<int>(-20, 18)(random)));
  }
  const int n = static_cast<int>(in.size());
  std::vector<uint16_t> bf16(in.size()), f16(in.size());
  std::vector<uint8_t> e4m3(in.size());
  ASSERT_EQ(kernel.Run({static_cast<uint32_t>(n + 255) / 256}, {256}, 0, in.data(), n, bf16.data(),
                       f16.data(), e4m3.data()),
            absl::OkStatus());
  for (size_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(bf16[i], FloatToBf16(in[i])) << in[i];
    ASSERT_EQ(f16[i], FloatToF16(in[i])) << in[i];
    ASSERT_EQ(e4m3[i], FloatToE4m3(in[i])) << in[i];
  }
}

TEST(HostTypes, KnowsCudasIntrinsics) {
  HostKernel kernel(R"(
    #include <cuda_bf16.h>
    #include <cuda_fp16.h>
    #include <cstdint>
    #include <cmath>
    #include <type_traits>
    #include <utility>
    #include <limits>
    #include <algorithm>
    #include <array>
    #include <concepts>
    #include <bit>
    #include <cstring>
    #include <cfloat>
    #include <climits>
    #include <cassert>
    #include <cstddef>
    #include <cuda_runtime.h>
    template <std::integral T> __device__ T Twice(T x) { return 2 * x; }
    __global__ void k(int* ok) {
      int n = 0;
      auto check = [&](bool good) { ok[n++] = good; };
      check(__popc(0xf0u) == 4 && __clz(1) == 31 && __clz(0) == 32 && __ffs(8) == 4);
      check(__brev(1) == 0x80000000u && __byte_perm(0x33221100, 0x77665544, 0x7410) == 0x77441100u);
      check(__umulhi(0x80000000u, 6) == 3 && __mulhi(-1, 1) == -1);
      check(__funnelshift_l(0x80000000u, 1, 1) == 3 && __funnelshift_r(0, 1, 1) == 0x80000000u);
      check(__dp4a(0x01020304, 0x01010101, 5) == 15);
      check(rsqrtf(4.0f) == 0.5f && __fdividef(1, 4) == 0.25f && exp2f(3) == 8 && log2f(8) == 3);
      check(fabsf(__expf(1.0f) - 2.7182818f) < 1e-6f && fabsf(__logf(2.7182818f) - 1) < 1e-6f);
      check(isinf(-INFINITY) && isnan(NAN) && fmaxf(NAN, 1) == 1 && isfinite(1.0f));
      check(min(3, 4u) == 3 && max(-1.5f, 2.0f) == 2.0f && abs(-3) == 3 && min(1ll, 2) == 1);
      check(__float2int_rn(2.5f) == 2 && __float2int_rz(-2.7f) == -2 && __float2int_rn(1e20f) == INT_MAX);
      check(__float_as_uint(1.0f) == 0x3f800000 && __int_as_float(0x40000000) == 2.0f);
      const __nv_bfloat162 pair = __floats2bfloat162_rn(1.5f, -2.0f);
      check(__low2float(pair) == 1.5f && __bfloat1622float2(pair).y == -2.0f);
      check(float(__hfma2(pair, pair, pair).x) == 3.75f && __hgt(pair.x, pair.y));
      const __half2 h = __float22half2_rn(make_float2(0.5f, 3.0f));
      check(float(__hmul(h.x, h.y)) == 1.5f && float(h2exp2(h).y) == 8.0f);
      check(__half2float(__float2half_rz(1.9999f)) < 1.9999f);
      check(Twice(4) == 8 && std::is_same_v<std::make_unsigned_t<int>, uint32_t>);
      check(std::numeric_limits<float>::max() == FLT_MAX && std::clamp(5, 0, 3) == 3);
      std::array<int, 3> a = {3, 1, 2};
      std::swap(a[0], a[2]);
      check(a[0] == 2 && a.size() == 3 && std::popcount(7u) == 3);
      check(std::bit_cast<uint32_t>(1.0f) == 0x3f800000u && sizeof(float4) == 16 && alignof(uint4) == 16);
      // A product that __fmul_rn rounds before it is added.
      const float x = 1.0f + 3 * FLT_EPSILON;
      check(__fadd_rn(__fmul_rn(x, x), -1.0f) == 6 * FLT_EPSILON);
      check(__fmaf_rn(x, x, -1.0f) > 6 * FLT_EPSILON);
      ok[n] = -1;
    })",
                    "k");
  std::vector<int> ok(64, -2);
  ASSERT_EQ(kernel.Run({1}, {1}, 0, ok.data()), absl::OkStatus());
  int n = 0;
  for (; ok[n] >= 0; ++n) EXPECT_EQ(ok[n], 1) << "check " << n;
  EXPECT_EQ(ok[n], -1);
  EXPECT_EQ(n, 21);
}

}  // namespace
}  // namespace kvr
