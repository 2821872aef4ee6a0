// SPDX-License-Identifier: Apache-2.0
//
// CUDA C++ as the host device runs it: threads, barriers, shared memory, warps, atomics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <vector>

#include "tests/devices/host/host_fixture.h"

namespace kvr {
namespace {

using testing::Each;
using testing::ElementsAre;

TEST(HostKernels, AddsVectors) {
  HostKernel kernel(R"(
    __global__ void add(const float* __restrict__ a, const float* b, float* out, int n) {
      const int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) out[i] = a[i] + b[i];
    })",
                    "add");
  std::vector<float> a(1000), b(1000), out(1000), want(1000);
  for (int i = 0; i < 1000; ++i) {
    a[i] = static_cast<float>(i);
    b[i] = 0.5f;
    want[i] = static_cast<float>(i) + 0.5f;
  }
  ASSERT_EQ(kernel.Run({8}, {128}, 0, a.data(), b.data(), out.data(), 1000), absl::OkStatus());
  EXPECT_EQ(out, want);
}

TEST(HostKernels, GivesEveryThreadOfA3dLaunchItsPlace) {
  HostKernel kernel(R"(
    __global__ void place(int* out) {
      const dim3 g = gridDim, b = blockDim;
      const int block = blockIdx.x + g.x * (blockIdx.y + g.y * blockIdx.z);
      const int thread = threadIdx.x + b.x * (threadIdx.y + b.y * threadIdx.z);
      out[block * b.x * b.y * b.z + thread] += block * 1000 + thread;
    })",
                    "place");
  const Dim3 grid = {2, 3, 2}, block = {3, 5, 7};
  std::vector<int> out(12 * 105), want(out.size());
  for (size_t i = 0; i < want.size(); ++i) want[i] = static_cast<int>(i / 105 * 1000 + i % 105);
  ASSERT_EQ(kernel.Run(grid, block, 0, out.data()), absl::OkStatus());
  EXPECT_EQ(out, want);
}

TEST(HostKernels, ReducesABlockThroughSharedMemory) {
  HostKernel kernel(R"(
    template <int kThreads>
    __global__ void __launch_bounds__(kThreads) sum(const float* in, float* out) {
      __shared__ float part[kThreads];
      part[threadIdx.x] = in[blockIdx.x * kThreads + threadIdx.x];
      for (int stride = kThreads / 2; stride > 0; stride /= 2) {
        __syncthreads();
        if (threadIdx.x < stride) part[threadIdx.x] += part[threadIdx.x + stride];
      }
      if (threadIdx.x == 0) out[blockIdx.x] = part[0];
    })",
                    "sum<256>");
  EXPECT_EQ(kernel.kernel().resources.smem_static, 1024);
  EXPECT_EQ(kernel.kernel().resources.max_threads, 256);
  std::vector<float> in(256 * 64);
  std::iota(in.begin(), in.end(), 0.0f);
  std::vector<float> out(64), want(64);
  for (int b = 0; b < 64; ++b) {
    for (int i = 0; i < 256; ++i) want[b] += in[b * 256 + i];
  }
  ASSERT_EQ(kernel.Run({64}, {256}, 0, in.data(), out.data()), absl::OkStatus());
  EXPECT_EQ(out, want);  // sums of small integers are exact
}

TEST(HostKernels, KeepsStaticAndDynamicSharedMemoryOfManyBlocksApart) {
  HostKernel kernel(R"(
    __global__ void mix(int* out, int rounds) {
      __shared__ int fixed[64];
      __shared__ alignas(16) char byte;
      extern __shared__ int free_size[];
      fixed[threadIdx.x] = blockIdx.x;
      free_size[threadIdx.x] = -int(blockIdx.x);
      if (threadIdx.x == 0) byte = 1;
      for (int i = 0; i < rounds; ++i) {
        __syncthreads();
        const int other = (threadIdx.x + 1) % 64;
        const int f = fixed[other], d = free_size[other];
        __syncthreads();
        fixed[threadIdx.x] = f + byte;
        free_size[threadIdx.x] = d - byte;
      }
      out[blockIdx.x * 64 + threadIdx.x] = fixed[threadIdx.x] * (free_size[threadIdx.x] == -fixed[threadIdx.x]);
    })",
                    "mix", 256);
  EXPECT_EQ(kernel.kernel().resources.smem_static, 257);
  std::vector<int> out(64 * 100), want(out.size());
  for (size_t i = 0; i < want.size(); ++i) want[i] = static_cast<int>(i / 64) + 7;
  ASSERT_EQ(kernel.Run({100}, {64}, 256, out.data(), 7), absl::OkStatus());
  EXPECT_EQ(out, want);
}

TEST(HostKernels, SharesStaticMemoryOfHelpersOnlyWithKernelsThatCallThem) {
  absl::StatusOr<Binary> binary = CompileForHost(R"(
    __device__ __noinline__ int helper(int x) {
      __shared__ int words[100];
      words[x] = x;
      return words[x];
    }
    __global__ void with(int* out) { __shared__ double d[2]; d[0] = helper(1); *out = int(d[0]); }
    __global__ void without(int* out) { __shared__ char c[3]; c[*out] = 1; *out = c[0]; }
    __global__ void nothing(int* out) { *out = 1; })",
                                                 {"with", "without", "nothing"});
  ASSERT_TRUE(binary.ok()) << binary.status();
  EXPECT_EQ(binary->kernels[0].resources.smem_static, 416);
  EXPECT_EQ(binary->kernels[1].resources.smem_static, 3);
  EXPECT_EQ(binary->kernels[2].resources.smem_static, 0);
}

TEST(HostKernels, SharesVariablesOfClassTypes) {
  HostKernel kernel(R"(
    #include <cuda_bf16.h>
    struct Tile {
      __nv_bfloat16 value[32];
      float2 scale;
      static __device__ Tile& Shared() { __shared__ Tile tile; return tile; }
    };
    union Both { Tile tile; int words[4]; };
    template <class T, int N> struct Storage { T data[N]; __device__ T& operator[](int i) { return data[i]; } };
    extern __shared__ alignas(128) unsigned char raw[];
    template <int N>
    __launch_bounds__(N) __global__ void k(float* out) {
      __shared__ Both both;
      static __shared__ Storage<__nv_bfloat162, N> pairs;
      __nv_bfloat16* dynamic = reinterpret_cast<__nv_bfloat16*>(raw);
      const int t = threadIdx.x;
      Tile::Shared().value[t] = t;
      both.tile.value[t] = 2 * t;
      pairs[t] = {t, -t};
      dynamic[t] = 0.5f;
      if (t == 0) Tile::Shared().scale = make_float2(3, 4);
      __syncthreads();
      const int o = N - 1 - t;
      out[t] = float(Tile::Shared().value[o]) + float(both.tile.value[o]) + float(pairs[o].y) +
               float(dynamic[o]) + Tile::Shared().scale.y;
    })",
                    "k<32>", 64);
  EXPECT_EQ(kernel.kernel().resources.max_threads, 32);
  EXPECT_EQ(kernel.kernel().resources.smem_static, 72 + 72 + 128);
  std::vector<float> out(32);
  ASSERT_EQ(kernel.Run({1}, {32}, 64, out.data()), absl::OkStatus());
  EXPECT_EQ(out[0], 31 + 62 - 31 + 4.5f);
  EXPECT_EQ(out[31], 4.5f);
}

TEST(HostKernels, ShufflesWithinWarps) {
  HostKernel kernel(R"(
    __global__ void shuffle(int* out, double* sums) {
      const int lane = threadIdx.x % 32;
      const int v = threadIdx.x;
      int* o = out + threadIdx.x * 6;
      o[0] = __shfl_sync(0xffffffff, v, 5);
      o[1] = __shfl_sync(0xffffffff, v, 3, 8);
      o[2] = __shfl_up_sync(0xffffffff, v, 2);
      o[3] = __shfl_down_sync(0xffffffff, v, 4, 16);
      o[4] = __shfl_xor_sync(0xffffffff, v, 16);
      o[5] = lane < 16 ? __shfl_xor_sync(0x0000ffff, v, 1) : __shfl_xor_sync(0xffff0000, v, 2);
      double s = v;
      for (int step = 16; step > 0; step /= 2) s += __shfl_xor_sync(0xffffffff, s, step);
      sums[threadIdx.x] = s;
    })",
                    "shuffle");
  std::vector<int> out(64 * 6);
  std::vector<double> sums(64);
  ASSERT_EQ(kernel.Run({1}, {64}, 0, out.data(), sums.data()), absl::OkStatus());
  for (int t = 0; t < 64; ++t) {
    const int lane = t % 32, base = t - lane;
    const int* o = &out[t * 6];
    EXPECT_EQ(o[0], base + 5);
    EXPECT_EQ(o[1], base + lane / 8 * 8 + 3);
    EXPECT_EQ(o[2], lane < 2 ? t : t - 2);
    EXPECT_EQ(o[3], lane % 16 >= 12 ? t : t + 4);
    EXPECT_EQ(o[4], base + (lane ^ 16));
    EXPECT_EQ(o[5], lane < 16 ? (t ^ 1) : (t ^ 2));
    EXPECT_EQ(sums[t], 32 * base + 496);
  }
}

TEST(HostKernels, OrderedKeysOrderAsTheirValuesAndPrefixSumsCountTheLanesBefore) {
  HostKernel kernel(R"(
    #include <kvr/device.cuh>
    __global__ void k(const float* values, unsigned* keys, int* sums) {
      const int t = threadIdx.x;
      keys[t] = kvr::OrderedKey(values[t]);
      sums[t] = kvr::WarpPrefixSum(t % 7 - 2);
    })",
                    "k");
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = {-kInfinity, -3e38f, -1, -0x1p-149f, -0.0f,    0,
                               0x1p-149f,  0.5f,   1,  3e38f,      kInfinity};
  const size_t count = values.size();
  values.resize(64, 2);
  std::vector<unsigned> keys(64);
  std::vector<int> sums(64);
  ASSERT_EQ(kernel.Run({1}, {64}, 0, values.data(), keys.data(), sums.data()), absl::OkStatus());
  for (size_t i = 0; i < count; ++i) {
    EXPECT_GT(keys[i], 0u) << values[i];
    for (size_t j = 0; j < count; ++j) {
      EXPECT_EQ(keys[i] < keys[j], values[i] < values[j]) << values[i] << " " << values[j];
    }
  }
  for (int t = 0, sum = 0; t < 64; ++t) {
    sum = (t % 32 == 0 ? 0 : sum) + t % 7 - 2;
    EXPECT_EQ(sums[t], sum) << t;
  }
}

TEST(HostKernels, VotesReducesAndMatches) {
  HostKernel kernel(R"(
    __global__ void vote(unsigned* out) {
      const unsigned lane = threadIdx.x;
      unsigned* o = out + lane * 10;
      o[0] = __ballot_sync(~0u, lane % 3 == 0);
      o[1] = __any_sync(~0u, lane == 31);
      o[2] = __all_sync(~0u, lane < 31);
      o[3] = __reduce_add_sync(~0u, lane);
      o[4] = __reduce_max_sync(~0u, -int(lane));
      o[5] = __reduce_xor_sync(~0u, 1u << lane);
      o[6] = __match_any_sync(~0u, lane / 8);
      o[7] = __syncthreads_count(lane % 2) + 100 * __syncthreads_or(lane == 7) +
             1000 * __syncthreads_and(lane < 32);
      if (lane & 1) o[8] = __activemask(); else o[8] = ~__activemask();
      int all;
      o[9] = __match_all_sync(~0u, 3, &all) == ~0u && all == 1;
      __syncwarp();
    })",
                    "vote");
  std::vector<unsigned> out(320);
  ASSERT_EQ(kernel.Run({1}, {32}, 0, out.data()), absl::OkStatus());
  for (unsigned lane = 0; lane < 32; ++lane) {
    EXPECT_THAT(std::vector<unsigned>(&out[lane * 10], &out[lane * 10 + 10]),
                ElementsAre(0x49249249u, 1u, 0u, 496u, 0u, 0xffffffffu, 0xffu << lane / 8 * 8,
                            1116u, 0xaaaaaaaau, 1u));
  }
}

TEST(HostKernels, RunsWarpsThatAreNotFull) {
  HostKernel kernel(R"(
    __global__ void part(unsigned* out) {
      out[threadIdx.x] = __ballot_sync(0xffffffff, 1) + threadIdx.x / 32;
    })",
                    "part");
  std::vector<unsigned> out(40);
  ASSERT_EQ(kernel.Run({1}, {40}, 0, out.data()), absl::OkStatus());
  EXPECT_EQ(out[0], 0xffffffffu);
  EXPECT_EQ(out[39], 0xffu + 1);
}

TEST(HostKernels, CountsAcrossBlocksWithAtomics) {
  HostKernel kernel(R"(
    __device__ unsigned finished;
    __constant__ float kQuarter = 0.25f;
    __global__ void count(int* sum, float* fsum, unsigned long long* big, int* largest,
                          unsigned* lock, int* guarded, int* last) {
      __shared__ int local;
      if (threadIdx.x == 0) local = 0;
      __syncthreads();
      atomicAdd(&local, 1);
      __syncthreads();
      if (threadIdx.x == 0) atomicAdd(sum, local);
      atomicAdd(fsum, kQuarter);
      atomicAdd(big, 1ull << 33);
      atomicMax(largest, int(blockIdx.x * 64 + threadIdx.x));
      bool done = false;
      while (!done) {
        if (atomicCAS(lock, 0u, 1u) == 0) {
          *guarded += 1;
          __threadfence();
          atomicExch(lock, 0u);
          done = true;
        }
      }
      __syncthreads();
      if (threadIdx.x == 0 && atomicAdd(&finished, 1u) == gridDim.x - 1) *last += 1;
    })",
                    "count");
  int sum = 0, largest = -1, guarded = 0, last = 0;
  float fsum = 0;
  unsigned long long big = 0;
  unsigned lock = 0;
  ASSERT_EQ(kernel.Run({50}, {64}, 0, &sum, &fsum, &big, &largest, &lock, &guarded, &last),
            absl::OkStatus());
  EXPECT_EQ(sum, 3200);
  EXPECT_EQ(fsum, 800.0f);
  EXPECT_EQ(big, 3200ull << 33);
  EXPECT_EQ(largest, 3199);
  EXPECT_EQ(guarded, 3200);
  EXPECT_EQ(last, 1);
}

TEST(HostKernels, WaitsAtNamedBarriersOfSomeWarps) {
  // Warps 0 and 1 meet at barrier 1 while warps 2 and 3 meet at barrier 2.
  HostKernel kernel(R"(
    __global__ void pairs(int* out) {
      __shared__ int value[4];
      const unsigned warp = threadIdx.x / 32;
      if (threadIdx.x % 32 == 0) value[warp] = warp + 1;
      kvr_host_barrier(kvr_host_self(), 1 + warp / 2, 64, kvr_host_site());
      out[threadIdx.x] = value[warp ^ 1];
    })",
                    "pairs");
  std::vector<int> out(128);
  ASSERT_EQ(kernel.Run({1}, {128}, 0, out.data()), absl::OkStatus());
  EXPECT_EQ(out[0], 2);
  EXPECT_EQ(out[32], 1);
  EXPECT_EQ(out[64], 4);
  EXPECT_EQ(out[127], 3);
}

TEST(HostKernels, PassesStructsAndRunsTheLargestBlock) {
  HostKernel kernel(R"(
    struct Params { int a; double b; float4 c; };
    __global__ void use(const __grid_constant__ Params p, double* out) {
      __syncthreads();
      out[threadIdx.x] = p.a + p.b + p.c.w + threadIdx.x;
    })",
                    "use");
  struct Params {
    int a;
    double b;
    alignas(16) float c[4];
  } params = {1, 0.5, {0, 0, 0, 3}};
  std::vector<double> out(1024);
  ASSERT_EQ(kernel.Run({1}, {1024}, 0, params, out.data()), absl::OkStatus());
  EXPECT_EQ(out[0], 4.5);
  EXPECT_EQ(out[1023], 1027.5);
}

TEST(HostKernels, PoisonsSharedMemoryThatNobodyWrote) {
  HostKernel kernel(R"(
    __global__ void leak(int* out) {
      extern __shared__ int words[];
      out[threadIdx.x] = words[threadIdx.x];
      words[threadIdx.x] = 5;
    })",
                    "leak", 128);
  std::vector<int> out(32);
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(kernel.Run({1}, {32}, 128, out.data()), absl::OkStatus());
    EXPECT_THAT(out, Each(-1));
  }
}

}  // namespace
}  // namespace kvr
