// SPDX-License-Identifier: Apache-2.0
//
// The matrix primitives against plain loops, with the fragment layouts of the PTX manual.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "core/dtype.h"
#include "tests/devices/host/host_fixture.h"

namespace kvr {
namespace {

constexpr char kMma[] = R"(
  // A [16][16] and B [16][8] row by row, 16-bit; C and D [16][8] float.
  __global__ void mma(const unsigned short* A, const unsigned short* B, const float* C, float* D) {
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    auto pair = [](unsigned low, unsigned high) { return low | high << 16; };
    const unsigned a[4] = {
        pair(A[g * 16 + 2 * t], A[g * 16 + 2 * t + 1]),
        pair(A[(g + 8) * 16 + 2 * t], A[(g + 8) * 16 + 2 * t + 1]),
        pair(A[g * 16 + 2 * t + 8], A[g * 16 + 2 * t + 9]),
        pair(A[(g + 8) * 16 + 2 * t + 8], A[(g + 8) * 16 + 2 * t + 9])};
    const unsigned b[2] = {pair(B[2 * t * 8 + g], B[(2 * t + 1) * 8 + g]),
                           pair(B[(2 * t + 8) * 8 + g], B[(2 * t + 9) * 8 + g])};
    float d[4] = {C[g * 8 + 2 * t], C[g * 8 + 2 * t + 1], C[(g + 8) * 8 + 2 * t],
                  C[(g + 8) * 8 + 2 * t + 1]};
    KIND(d, a, b, d);
    D[g * 8 + 2 * t] = d[0];
    D[g * 8 + 2 * t + 1] = d[1];
    D[(g + 8) * 8 + 2 * t] = d[2];
    D[(g + 8) * 8 + 2 * t + 1] = d[3];
  })";

void CheckMma(const std::string& function, uint16_t (*to_bits)(float),
              float (*to_float)(uint16_t)) {
  HostKernel kernel("#define KIND " + function + "\n" + kMma, "mma");
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> a(256), b(128);
  std::vector<float> c(128), d(128);
  for (uint16_t& x : a) x = to_bits(normal(random));
  for (uint16_t& x : b) x = to_bits(normal(random));
  for (float& x : c) x = normal(random);
  ASSERT_EQ(kernel.Run({1}, {32}, 0, a.data(), b.data(), c.data(), d.data()), absl::OkStatus());
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float want = c[row * 8 + column];
      for (int k = 0; k < 16; ++k) {
        want = std::fma(to_float(a[row * 16 + k]), to_float(b[k * 8 + column]), want);
      }
      EXPECT_EQ(d[row * 8 + column], want) << row << " " << column;
    }
  }
}

TEST(HostMatrix, MultipliesBf16) {
  CheckMma("kvr_host_mma_m16n8k16_bf16", &FloatToBf16, &Bf16ToFloat);
}
TEST(HostMatrix, MultipliesF16) { CheckMma("kvr_host_mma_m16n8k16_f16", &FloatToF16, &F16ToFloat); }

TEST(HostMatrix, LoadsFragmentsPlainAndTransposed) {
  HostKernel kernel(R"(
    #include <kvr/matrix.cuh>
    __global__ void load(uint32_t* out) {
      __shared__ alignas(16) uint16_t tile[4][8][8];  // element = matrix, row, column in hex digits
      for (int i = threadIdx.x; i < 256; i += 32) {
        tile[i / 64][i / 8 % 8][i % 8] = i / 64 << 8 | (i / 8 % 8) << 4 | i % 8;
      }
      __syncthreads();
      const int lane = threadIdx.x;
      const void* row = tile[lane / 8][lane % 8];
      const void* row2 = lane < 16 ? row : nullptr;
      uint32_t x4[4], x4t[4], x2[2], x2t[2];
      kvr::LoadMatrixX4(x4, row);
      kvr::LoadMatrixX4Trans(x4t, row);
      kvr::LoadMatrixX2(x2, row2);
      kvr::LoadMatrixX2Trans(x2t, row2);
      for (int i = 0; i < 4; ++i) {
        out[lane * 12 + i] = x4[i];
        out[lane * 12 + 4 + i] = x4t[i];
      }
      for (int i = 0; i < 2; ++i) {
        out[lane * 12 + 8 + i] = x2[i];
        out[lane * 12 + 10 + i] = x2t[i];
      }
    })",
                    "load");
  std::vector<uint32_t> out(32 * 12);
  ASSERT_EQ(kernel.Run({1}, {32}, 0, out.data()), absl::OkStatus());
  auto element = [](int matrix, int row, int column) {
    return static_cast<uint32_t>(matrix << 8 | row << 4 | column);
  };
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int m = 0; m < 4; ++m) {
      const uint32_t plain = element(m, g, 2 * t) | element(m, g, 2 * t + 1) << 16;
      const uint32_t transposed = element(m, 2 * t, g) | element(m, 2 * t + 1, g) << 16;
      EXPECT_EQ(out[lane * 12 + m], plain);
      EXPECT_EQ(out[lane * 12 + 4 + m], transposed);
      if (m < 2) {
        EXPECT_EQ(out[lane * 12 + 8 + m], plain);
        EXPECT_EQ(out[lane * 12 + 10 + m], transposed);
      }
    }
  }
}

}  // namespace
}  // namespace kvr
