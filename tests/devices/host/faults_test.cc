// SPDX-License-Identifier: Apache-2.0
//
// Faults of kernels and launches: each is an error that says where, and the device goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "tests/devices/host/host_fixture.h"

namespace kvr {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Fault(const std::string& body, Dim3 grid, Dim3 block, int64_t smem = 0) {
  HostKernel kernel("__global__ void k(int* p) {" + body + "}", "k", smem);
  std::vector<int> memory(4096);
  const absl::Status status = kernel.Run(grid, block, smem, memory.data());
  EXPECT_NE(status, absl::OkStatus());
  EXPECT_FALSE(Fix(status).empty());
  // The device is fine.
  HostKernel after("__global__ void k(int* p) { __syncthreads(); p[threadIdx.x] = 7; }", "k");
  EXPECT_EQ(after.Run({2}, {64}, 0, memory.data()), absl::OkStatus());
  EXPECT_EQ(memory[63], 7);
  return std::string(What(status));
}

TEST(HostFaults, BarrierThatAThreadSkippedByReturning) {
  EXPECT_THAT(Fault("if (blockIdx.x == 1 && threadIdx.x == 5) return; __syncthreads();", {3}, {64}),
              AllOf(HasSubstr("block (1,0,0)"), HasSubstr("thread (0,0,0) waits at __syncthreads"),
                    HasSubstr("thread (5,0,0) cannot reach: it has returned")));
}

TEST(HostFaults, BarriersOfDifferentKinds) {
  EXPECT_THAT(
      Fault("if (threadIdx.x < 32) __syncthreads(); else __syncthreads_count(1);", {1}, {64}),
      AllOf(HasSubstr("block (0,0,0), thread (32,0,0)"), HasSubstr("__syncthreads_count"),
            HasSubstr("wait at __syncthreads")));
}

TEST(HostFaults, BarrierAgainstCollective) {
  EXPECT_THAT(
      Fault("if (threadIdx.x == 3) __syncthreads(); else __shfl_sync(~0u, 1, 0);", {1}, {32}),
      AllOf(HasSubstr("thread (0,0,0) waits in __shfl_sync"),
            HasSubstr("thread (3,0,0) cannot reach: it waits at __syncthreads")));
}

TEST(HostFaults, CollectiveThatALaneSkipped) {
  EXPECT_THAT(Fault("if (threadIdx.x != 40) p[0] = __ballot_sync(~0u, 1);", {1}, {64}),
              AllOf(HasSubstr("thread (32,0,0) waits in __ballot_sync"),
                    HasSubstr("thread (40,0,0) cannot reach: it has returned")));
}

TEST(HostFaults, CollectivesWithOverlappingMasks) {
  EXPECT_THAT(Fault("p[0] = __ballot_sync(threadIdx.x < 4 ? 0xffu : ~0u, 1);", {1}, {32}),
              AllOf(HasSubstr("thread (0,0,0) waits in __ballot_sync at kernel.cu:1 (mask 0xff)"),
                    HasSubstr("thread (4,0,0) cannot reach: it waits in __ballot_sync at "
                              "kernel.cu:1 (mask 0xffffffff)")));
}

TEST(HostFaults, MaskWithoutTheCaller) {
  EXPECT_THAT(Fault("p[0] = __ballot_sync(1u, 1);", {1}, {32}),
              AllOf(HasSubstr("thread (1,0,0)"), HasSubstr("leaves it out")));
}

TEST(HostFaults, ShuffleFromALaneOutsideTheMask) {
  EXPECT_THAT(Fault("if (threadIdx.x < 8) p[0] = __shfl_sync(0xff, 1, 20);", {1}, {32}),
              AllOf(HasSubstr("thread (0,0,0)"), HasSubstr("shuffle reads a lane")));
}

TEST(HostFaults, AccessesAroundSharedMemory) {
  EXPECT_THAT(
      Fault("extern __shared__ int s[];\n if (threadIdx.x == 2) s[14 + threadIdx.x + *p] = 1;", {1},
            {4}, 64),
      AllOf(HasSubstr("block (0,0,0), thread (2,0,0) at kernel.cu:2"),
            HasSubstr("a write at byte 64 of dynamic shared memory"), HasSubstr("64 bytes")));
  EXPECT_THAT(Fault("extern __shared__ int s[]; *p = s[*p + 100];", {1}, {1}, 64),
              HasSubstr("a read at byte 400 of dynamic shared memory"));
  EXPECT_THAT(Fault("__shared__ volatile int s[4]; s[4 + *p + threadIdx.x] = 1;", {1}, {1}),
              HasSubstr("byte 16 of static shared memory"));
  EXPECT_THAT(Fault("__shared__ volatile int s[4]; s[*p - 1] = 1;", {1}, {1}),
              HasSubstr("byte -4 of static shared memory"));
  EXPECT_THAT(Fault("__shared__ int s[4]; extern __shared__ int d[]; d[0] = s[0]; d[*p - 1] = 1;",
                    {1}, {1}, 64),
              HasSubstr("byte -4 of dynamic shared memory"));
  // Through a pointer of unknown origin, a copy and a helper that is not inlined.
  EXPECT_THAT(Fault(R"(
      struct H { static __device__ __noinline__ void Fill(int* to, int n) {
        for (int i = 0; i < n; ++i) to[i] = i; } };
      __shared__ int s[8]; H::Fill(s + *p, 9); *p = s[1];)",
                    {1}, {1}),
              AllOf(HasSubstr("a write at byte 32 of static"), HasSubstr("at kernel.cu:3")));
  EXPECT_THAT(Fault("__shared__ int s[8]; __builtin_memset(s, 0, 33 + *p); *p = s[1];", {1}, {1}),
              HasSubstr("a write at byte 32 of static"));
}

TEST(HostFaults, TrapsAndAssertions) {
  EXPECT_THAT(Fault("if (threadIdx.x == 9) __trap();", {1}, {32}),
              AllOf(HasSubstr("thread (9,0,0)"), HasSubstr("at kernel.cu:1: __trap")));
  HostKernel kernel("#include <cassert>\n__global__ void k(int x) { assert(x < threadIdx.y); }",
                    "k");
  EXPECT_THAT(std::string(What(kernel.Run({1}, {1, 4}, 0, 0))),
              AllOf(HasSubstr("thread (0,0,0)"), HasSubstr("assertion failed: x < threadIdx.y")));
}

TEST(HostFaults, AddressesWithoutMemory) {
  EXPECT_THAT(Fault("int* q = p; if (threadIdx.x == 5 && blockIdx.x == 2) q = nullptr;\n"
                    "if (q != p) q[3] = *p;",
                    {3}, {32}),
              AllOf(HasSubstr("block (2,0,0), thread (5,0,0): "),
                    HasSubstr("a write to address 0xc: a null pointer")));
  EXPECT_THAT(Fault("p[1] = *(int*)(8ull + *p);", {1}, {1}),
              HasSubstr("a read of address 0x8: a null pointer"));
  EXPECT_THAT(Fault("p[(1ll << 43) + *p] = 1;", {1}, {1}),
              AllOf(HasSubstr("thread (0,0,0): a write to address 0x"),
                    HasSubstr("where the kernel has no memory")));
  EXPECT_THAT(Fault("p[1] = *(int*)(0x8000000000000000ull + *p);", {1}, {1}),
              HasSubstr("an address that cannot exist"));
  // With other lanes waiting, in a helper, in a function of the runtime's and in one of libc's.
  EXPECT_THAT(Fault("__syncthreads(); if (threadIdx.x == 40) *(volatile int*)4 = 1; "
                    "__syncthreads();",
                    {2}, {64}),
              HasSubstr("block (0,0,0), thread (40,0,0): a write to address 0x4"));
  EXPECT_THAT(Fault("struct H { static __device__ __noinline__ void F(int* q) { *q = 1; } };\n"
                    "H::F((int*)(16ull + *p));",
                    {1}, {1}),
              HasSubstr("a write to address 0x10"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Fault("printf(\"%s\", (const char*)(32ull + *p));", {1}, {1}),
                HasSubstr("a read of address 0x20"));
  }
}

TEST(HostFaults, MisalignedVectors) {
  EXPECT_THAT(Fault("*(float4*)(p + 1 + threadIdx.x * 4) = make_float4(1, 2, 3, 4);", {1}, {2}),
              AllOf(HasSubstr("block (0,0,0), thread (0,0,0): "), HasSubstr("not aligned")));
}

TEST(HostFaults, IntegerDivisionByZero) {
  EXPECT_THAT(Fault("p[1] = 7 / (int)(threadIdx.x - 3 + *p);", {1}, {8}),
              AllOf(HasSubstr("thread (3,0,0): an integer division by zero")));
}

void WriteNowhere() {
  volatile uintptr_t address = 8;
  *reinterpret_cast<volatile int*>(address) = 1;
}

TEST(HostFaultsDeathTest, FaultsOfTheProgramGoWhereTheyWent) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        HostKernel kernel("__global__ void k(int* p) { *p = 1; }", "k");
        WriteNowhere();
      },
      testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(
      {
        HostKernel kernel("__global__ void k(int* p) { *p = 1; }", "k");
        raise(SIGFPE);
      },
      testing::KilledBySignal(SIGFPE), "");
  EXPECT_EXIT(
      {
        signal(SIGSEGV, [](int) { _exit(7); });
        HostKernel kernel("__global__ void k(int* p) { *(volatile int*)4 = 1; }", "k");
        int* p = nullptr;
        if (kernel.Run({1}, {1}, 0, p).ok()) _exit(1);
        WriteNowhere();
      },
      testing::ExitedWithCode(7), "");
}

TEST(HostFaults, StackOverflow) {
  EXPECT_THAT(Fault(R"(
      struct Deep {
        static __device__ __noinline__ int Go(int* p, int n) {
          volatile int frame[256];
          frame[n & 255] = n;
          return n == 0 ? 0 : Go(p, n - 1) + frame[p[n] & 255];
        }
      };
      p[1] = Deep::Go(p, 4000);)",
                    {1}, {1}),
              HasSubstr("stack overflow"));
}

TEST(HostFaults, ReportsTheFirstFaultOnceAndSkipsWhatFollows) {
  HostKernel bad("__global__ void k(int* p) { __trap(); }", "k");
  std::vector<int> memory(4);
  EXPECT_EQ(bad.Run({1000}, {32}, 0, memory.data()).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(HostDeviceUnderTest().Synchronize({}), absl::OkStatus());
}

TEST(HostFaults, LaunchesOverTheLimits) {
  HostKernel kernel("__global__ void __launch_bounds__(64) k(int* p) { }", "k", 1024);
  int* p = nullptr;
  auto refused = [&](Dim3 grid, Dim3 block, int64_t smem) {
    const absl::Status status = kernel.Run(grid, block, smem, p);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refused({1}, {65}, 0),
              AllOf(HasSubstr("65 x 1 x 1"), HasSubstr("__launch_bounds__")));
  EXPECT_THAT(refused({1}, {2000}, 0), HasSubstr("1 to 64 threads"));
  EXPECT_THAT(refused({1}, {1, 1, 65}, 0), HasSubstr("1 x 1 x 65"));
  EXPECT_THAT(refused({1}, {~0u, ~0u, ~0u}, 0), HasSubstr("launch of k: a block of 4294967295"));
  EXPECT_THAT(refused({1, 70000}, {1}, 0), HasSubstr("70000"));
  EXPECT_THAT(refused({~0u, ~0u, ~0u}, {1}, 0), HasSubstr("a grid of 4294967295"));
  EXPECT_THAT(refused({0}, {1}, 0), HasSubstr("grid of 0"));
  EXPECT_THAT(refused({1}, {1}, 2048), AllOf(HasSubstr("2048"), HasSubstr("1024")));

  absl::StatusOr<Binary> binary = CompileForHost("__global__ void k(int* p) { }", {"k"});
  ASSERT_TRUE(binary.ok());
  auto module = HostDeviceUnderTest().Load(*binary);
  ASSERT_TRUE(module.ok());
  EXPECT_THAT(std::string((*module)->Get(binary->kernels[0].symbol, 300 << 10).status().message()),
              HasSubstr("the device has 232448"));
  EXPECT_EQ((*module)->Get("nope", 0).status().code(), absl::StatusCode::kNotFound);
}

TEST(HostFaults, LaunchesOfKindsThatDoNotExist) {
  const absl::StatusOr<Binary> binary = CompileForHost("__global__ void k() { }", {"k"});
  ASSERT_TRUE(binary.ok());
  Device& device = HostDeviceUnderTest();
  auto module = device.Load(*binary);
  ASSERT_TRUE(module.ok());
  const Function function = (*module)->Get(binary->kernels[0].symbol, 0).value();
  KernelLaunch launch;
  LaunchAttributes attributes;
  attributes.cooperative = true;
  absl::Status status = device.Launch(function, launch, attributes, nullptr, {});
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("launch of k: cooperative"), HasSubstr("host_skip_reason")));
  launch.cluster = {2};
  status = device.Launch(function, launch, {}, nullptr, {});
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("launch of k: thread block clusters"),
                                                   HasSubstr("host_skip_reason")));
}

TEST(HostFaults, BinariesThatAreNone) {
  Binary binary;
  binary.target = "sm_90a";
  EXPECT_EQ(HostDeviceUnderTest().Load(binary).status().code(),
            absl::StatusCode::kFailedPrecondition);
  binary.target = "host";
  binary.bytes = "not an object";
  binary.kernels.push_back({"k", "k", {}});
  EXPECT_EQ(HostDeviceUnderTest().Load(binary).status().code(), absl::StatusCode::kInternal);
  absl::StatusOr<Binary> good = CompileForHost("__global__ void k(int* p) { }", {"k"});
  ASSERT_TRUE(good.ok());
  good->bytes.resize(good->bytes.size() / 2);
  EXPECT_FALSE(HostDeviceUnderTest().Load(*good).ok());
}

TEST(HostFaults, BinariesForAnotherCpu) {
  absl::StatusOr<Binary> binary = CompileForHost("__global__ void k(int* p) { }", {"k"});
  ASSERT_TRUE(binary.ok());
  const std::string& driver = HostDeviceUnderTest().info().driver;  // the CPU's name and features
  const size_t at = binary->bytes.find(driver);
  ASSERT_NE(at, std::string::npos);
  binary->bytes[at + driver.size() - 1] = 'x';
  const absl::Status status = HostDeviceUnderTest().Load(*binary).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(driver));
}

}  // namespace
}  // namespace kvr
