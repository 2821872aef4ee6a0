// SPDX-License-Identifier: Apache-2.0
//
// Accesses to shared memory that nothing orders: each is an error with both threads and lines; and
// the idioms that look like one and are none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/status.h"
#include "tests/devices/host/host_fixture.h"

namespace kvr {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The kernel's body begins on line 3.
absl::Status RunBody(const std::string& body, Dim3 grid, Dim3 block, int64_t smem = 0) {
  HostKernel kernel("#include <kvr/device.cuh>\n__global__ void k(int* p) {\n" + body + "}", "k",
                    smem);
  std::vector<int> memory(8192);
  return kernel.Run(grid, block, smem, memory.data());
}

std::string Race(const std::string& body, Dim3 grid, Dim3 block, int64_t smem = 0) {
  const absl::Status status = RunBody(body, grid, block, smem);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(Fix(status)), HasSubstr("put __sync"));
  return std::string(What(status));
}

void ExpectClean(const std::string& body, Dim3 grid, Dim3 block, int64_t smem = 0) {
  EXPECT_EQ(RunBody(body, grid, block, smem), absl::OkStatus());
}

// Whichever thread comes first, the later one is told of it.
TEST(HostRaces, MissingBarrierBeforeReading) {
  EXPECT_THAT(Race("__shared__ int s[64];\n"
                   "s[threadIdx.x] = 1 + threadIdx.x;\n"
                   "if (threadIdx.x >= 32) p[threadIdx.x] = s[threadIdx.x ^ 32];",
                   {1}, {64}),
              AllOf(HasSubstr("k: race in block (0,0,0): thread (32,0,0)"),
                    HasSubstr("reads byte 0 of static shared memory at kernel.cu:5"),
                    HasSubstr("which thread (0,0,0) wrote at kernel.cu:4")));
  EXPECT_THAT(Race("__shared__ int s[64];\n"
                   "s[threadIdx.x] = 1 + threadIdx.x;\n"
                   "if (threadIdx.x < 32) p[threadIdx.x] = s[threadIdx.x ^ 32];",
                   {1}, {64}),
              AllOf(HasSubstr("k: race in block (0,0,0): thread (32,0,0)"),
                    HasSubstr("writes byte 128 of static shared memory at kernel.cu:4"),
                    HasSubstr("which thread (0,0,0) read at kernel.cu:5")));
  ExpectClean(
      "__shared__ int s[64]; s[threadIdx.x] = 1 + threadIdx.x; __syncthreads();\n"
      "p[threadIdx.x] = s[threadIdx.x ^ 32];",
      {1}, {64});
}

TEST(HostRaces, MissingBarrierBeforeWritingAgain) {
  const std::string loop =
      "extern __shared__ float t[];\n"
      "for (int i = 0; i < 3; ++i) {\n"
      "  t[threadIdx.x] = i + threadIdx.x;\n"
      "  __syncthreads();\n"
      "  p[threadIdx.x] += t[(threadIdx.x + 40) % 128];\n";
  EXPECT_THAT(Race(loop + "}", {1}, {128}, 512),
              AllOf(HasSubstr("writes byte"), HasSubstr("dynamic shared memory at kernel.cu:5"),
                    HasSubstr(" read at kernel.cu:7")));
  ExpectClean(loop + "__syncthreads(); }", {2}, {128}, 512);
}

TEST(HostRaces, TwoWarpsThatWriteOneByte) {
  EXPECT_THAT(Race("__shared__ unsigned char s[4];\n"
                   "if (threadIdx.x % 32 == 3) s[1] = threadIdx.x;\n"
                   "__syncthreads(); p[0] = s[1];",
                   {1, 2}, {96}),
              AllOf(HasSubstr("race in block (0,0,0)"), HasSubstr("writes byte 1 of static"),
                    HasSubstr("wrote at kernel.cu:4")));
}

TEST(HostRaces, LanesThatNeedSyncwarp) {
  const absl::Status status = RunBody(
      "__shared__ int s[32]; s[threadIdx.x] = threadIdx.x; p[threadIdx.x] = s[31 - threadIdx.x];",
      {1}, {32});
  EXPECT_THAT(std::string(What(status)), HasSubstr("race in block (0,0,0)"));
  EXPECT_THAT(std::string(Fix(status)), HasSubstr("__syncwarp"));
  ExpectClean(
      "__shared__ int s[32]; s[threadIdx.x] = threadIdx.x; __syncwarp();"
      "p[threadIdx.x] = s[31 - threadIdx.x];",
      {1}, {32});
}

TEST(HostRaces, ReadsOfFragments) {
  const std::string body =
      "__shared__ alignas(16) uint16_t tile[8][8];\n"
      "for (int i = threadIdx.x; i < 64; i += 64) tile[i / 8][i % 8] = i;\n"
      "BARRIER\n"
      "uint32_t r[2]; kvr::LoadMatrixX2(r, tile[threadIdx.x % 8]); p[threadIdx.x] = r[0];";
  EXPECT_THAT(Race("#define BARRIER\n" + body, {1}, {64}),
              AllOf(HasSubstr("at kernel.cu:7, which"), HasSubstr("wrote at kernel.cu:5")));
  ExpectClean("#define BARRIER __syncthreads();\n" + body, {1}, {64});
}

TEST(HostRaces, CopiesThatNobodyWaitedFor) {
  const std::string body =
      "__shared__ uint4 s[64];\n"
      "kvr::CopyAsync16(&s[threadIdx.x], p + 4 * threadIdx.x);\n"
      "kvr::CommitCopies();\n"
      "WAIT __syncthreads();\n"
      "p[4096 + threadIdx.x] = s[threadIdx.x ^ 33].x; __syncthreads(); kvr::WaitForCopies<0>();";
  EXPECT_THAT(Race("#define WAIT\n" + body, {1}, {64}),
              AllOf(HasSubstr("writes byte"), HasSubstr("at kernel.cu:5"),
                    HasSubstr("read at kernel.cu:8")));
  ExpectClean("#define WAIT kvr::WaitForCopies<0>();\n" + body, {1}, {64});
  EXPECT_THAT(Race("#define WAIT kvr::WaitForCopies<1>();\n" + body, {1}, {64}),
              HasSubstr("writes byte"));
}

TEST(HostRaces, CopiesIntoWhatOthersStillRead) {
  EXPECT_THAT(Race("__shared__ uint4 s[64];\n"
                   "s[threadIdx.x] = make_uint4(0, 0, 0, 0); __syncthreads();\n"
                   "p[threadIdx.x] = s[threadIdx.x ^ 32].y;\n"
                   "kvr::CopyAsync16(&s[threadIdx.x], p + 4096);\n"
                   "kvr::CommitCopies(); kvr::WaitForCopies<0>();",
                   {1}, {64}),
              AllOf(HasSubstr("race in"), HasSubstr("kernel.cu:5"), HasSubstr("kernel.cu:6")));
}

TEST(HostRaces, CopiesArriveWhenTheyAreWaitedFor) {
  HostKernel kernel(R"(
    #include <kvr/device.cuh>
    __global__ void k(const int* in, int* out) {
      __shared__ int4 s[3];
      for (int i = 0; i < 3; ++i) {
        kvr::CopyAsync16(&s[i], in + 4 * i, i != 1);
        kvr::CommitCopies();
      }
      out[0] = s[0].x;
      kvr::WaitForCopies<2>();
      out[1] = s[0].x, out[2] = s[1].x;
      kvr::WaitForCopies<1>();
      out[3] = s[1].x, out[4] = s[2].x;
      kvr::WaitForCopies<0>();
      out[5] = s[2].x;
      kvr::CopyAsync16(&s[0], in);  // never waited for: harmless
    })",
                    "k");
  alignas(16) const int in[12] = {5, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0};
  std::vector<int> out(6);
  ASSERT_EQ(kernel.Run({1}, {1}, 0, &in[0], out.data()), absl::OkStatus());
  EXPECT_THAT(out, testing::ElementsAre(-1, 5, -1, 0, -1, 7));
}

TEST(HostRaces, CopiesMustBeAligned) {
  EXPECT_THAT(std::string(What(RunBody("extern __shared__ int s[];\n"
                                       "kvr::CopyAsync16(s + 1, p);",
                                       {1}, {1}, 64))),
              AllOf(HasSubstr("at kernel.cu:4"), HasSubstr("aligned to 16 bytes")));
}

TEST(HostRaces, NoneBetweenNeighboursInAWord) {
  ExpectClean(
      "__shared__ unsigned char s[256]; __shared__ unsigned short h[256];\n"
      "s[threadIdx.x] = threadIdx.x; h[threadIdx.x] = threadIdx.x;\n"
      "s[threadIdx.x] += h[threadIdx.x]; p[threadIdx.x] = s[threadIdx.x];",
      {1}, {256});
}

TEST(HostRaces, NoneWhenAllWriteTheSame) {
  ExpectClean(
      "__shared__ int flag; flag = 0; __syncthreads(); if (threadIdx.x % 3) flag = 1;\n"
      "__syncthreads(); p[threadIdx.x] = flag;",
      {2}, {128});
}

TEST(HostRaces, NoneUnderALockOrBetweenAtomics) {
  ExpectClean(R"(
      __shared__ int lock, sum, bins[8];
      if (threadIdx.x == 0) lock = sum = 0;
      if (threadIdx.x < 8) bins[threadIdx.x] = 0;
      __syncthreads();
      atomicAdd(&bins[threadIdx.x % 8], 1);
      for (bool done = false; !done;) {
        if (atomicCAS(&lock, 0, 1) != 0) continue;
        sum += 1;
        __threadfence_block();
        atomicExch(&lock, 0);
        done = true;
      }
      __syncthreads();
      p[threadIdx.x] = sum + bins[0];)",
              {1}, {96});
}

// Whichever warp comes first: other blocks begin with the other one.
TEST(HostRaces, NoneBehindAVolatileFlag) {
  HostKernel kernel(R"(
    __global__ void k(int* p) {
      __shared__ int data[32];
      __shared__ volatile int flag;
      if (threadIdx.x == 0) flag = 0;
      __syncthreads();
      if (threadIdx.x < 32) {
        data[threadIdx.x] = threadIdx.x + blockIdx.x;
        __syncwarp();
        __threadfence_block();
        if (threadIdx.x == 0) flag = 1;
      } else {
        while (flag == 0) {}
        p[32 * blockIdx.x + threadIdx.x - 32] = data[threadIdx.x - 32];
      }
    })",
                    "k");
  std::vector<int> out(4 * 32);
  ASSERT_EQ(kernel.Run({4}, {64}, 0, out.data()), absl::OkStatus());
  for (int i = 0; i < 4 * 32; ++i) EXPECT_EQ(out[i], i / 32 + i % 32);
}

TEST(HostRaces, AtomicsOnWhatIsBeingSetUp) {
  EXPECT_THAT(Race("__shared__ int bins[64];\n"
                   "bins[threadIdx.x] = 0;\n"
                   "atomicAdd(&bins[(threadIdx.x * 7 + 1) % 64], 1);\n"
                   "__syncthreads(); p[threadIdx.x] = bins[threadIdx.x];",
                   {1}, {64}),
              AllOf(HasSubstr("race in"), HasSubstr("kernel.cu:4"), HasSubstr("kernel.cu:5")));
}

TEST(HostRaces, NoneBetweenWarpsThatMeetAtANamedBarrier) {
  const std::string body =
      "__shared__ int s[128]; const int warp = threadIdx.x / 32;\n"
      "s[threadIdx.x] = threadIdx.x;\n"
      "kvr_host_barrier(kvr_host_self(), 1 + warp / 2, 64, kvr_host_site());\n";
  ExpectClean(body + "p[threadIdx.x] = s[threadIdx.x ^ 32];", {1}, {128});
  EXPECT_THAT(Race(body + "p[threadIdx.x] = s[threadIdx.x ^ 64];", {1}, {128}),
              HasSubstr("race in block"));
}

// What the log of shared memory does not see: memory that blocks exchange through.
TEST(HostRaces, WarpsTakeTurnsInAnotherOrderInOtherBlocks) {
  HostKernel kernel(
      "__global__ void k(int* order) {\n"
      "  if (threadIdx.x % 32 == 0) order[blockIdx.x] = order[blockIdx.x] * 8 + threadIdx.x / 32;\n"
      "  __syncthreads(); }",
      "k");
  std::vector<int> first(8), second(8);
  ASSERT_EQ(kernel.Run({8}, {128}, 0, first.data()), absl::OkStatus());
  ASSERT_EQ(kernel.Run({8}, {128}, 0, second.data()), absl::OkStatus());
  EXPECT_EQ(first, second);
  EXPECT_EQ(first[0], 00123);
  EXPECT_EQ(first[1], 01230);
  EXPECT_EQ(first[4], 00321);
  EXPECT_EQ(first[7], 03210);
}

}  // namespace
}  // namespace kvr
