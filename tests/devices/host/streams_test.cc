// SPDX-License-Identifier: Apache-2.0
//
// Streams and events of the host device.
#include <gtest/gtest.h>

#include <vector>

#include "tests/devices/host/host_fixture.h"

namespace kvr {
namespace {

TEST(HostStreams, RunInOrderAndBesideEachOther) {
  absl::StatusOr<Binary> binary =
      CompileForHost("__global__ void twice(int* p) { p[threadIdx.x] *= 2; }", {"twice"});
  ASSERT_TRUE(binary.ok()) << binary.status();
  Device& device = HostDeviceUnderTest();
  auto module = device.Load(*binary);
  ASSERT_TRUE(module.ok()) << module.status();
  const Function function = (*module)->Get(binary->kernels[0].symbol, 0).value();
  std::vector<Stream> streams;
  std::vector<std::vector<int>> data(4, std::vector<int>(32));
  for (size_t s = 0; s < data.size(); ++s) streams.push_back(device.CreateStream().value());
  for (int round = 0; round < 5; ++round) {
    for (size_t s = 0; s < data.size(); ++s) {
      KernelLaunch launch;
      launch.block = {32};
      int* p = data[s].data();
      void* params[] = {&p};
      if (round == 0) {
        ASSERT_EQ(device.MemsetAsync(p, 1, 32 * sizeof(int), streams[s]), absl::OkStatus());
      }
      ASSERT_EQ(device.Launch(function, launch, {}, params, streams[s]), absl::OkStatus());
    }
  }
  for (size_t s = 0; s < data.size(); ++s) {
    EXPECT_EQ(device.Synchronize(streams[s]), absl::OkStatus());
    EXPECT_EQ(data[s][31], 0x01010101 << 5);
    device.DestroyStream(streams[s]);
  }
}

// Between what was enqueued before it and what after.
TEST(HostStreams, CallFunctionsInOrder) {
  class Function : public LaunchFunction {
   public:
    absl::Status Launch(const FunctionLaunch& launch) const override {
      auto* p = static_cast<unsigned char*>(launch.workspace[0]);
      if (p[0] != 1) return absl::InternalError("not in order");
      p[1] = 7;
      return absl::OkStatus();
    }
  };
  const Function function;
  Device& device = HostDeviceUnderTest();
  const Stream stream = device.CreateStream().value();
  std::vector<unsigned char> memory(1 << 20);
  void* const workspace[] = {memory.data()};
  FunctionLaunch launch;
  launch.workspace = workspace;
  for (int round = 0; round < 5; ++round) {
    ASSERT_EQ(device.MemsetAsync(memory.data(), 1, 1 << 20, stream), absl::OkStatus());
    ASSERT_EQ(device.Call(function, launch, stream), absl::OkStatus());
    ASSERT_EQ(device.MemsetAsync(memory.data(), 2, 1, stream), absl::OkStatus());
  }
  EXPECT_EQ(device.Synchronize(stream), absl::OkStatus());
  EXPECT_EQ(memory[0], 2);
  EXPECT_EQ(memory[1], 7);
  device.DestroyStream(stream);
}

TEST(HostStreams, EventsTakeTimesInOrder) {
  Device& device = HostDeviceUnderTest();
  const Event start = device.CreateEvent().value(), stop = device.CreateEvent().value();
  EXPECT_FALSE(device.ElapsedUs(start, stop).ok());  // never recorded
  const Stream stream = device.CreateStream().value();
  std::vector<char> memory(1 << 20);
  ASSERT_EQ(device.Record(start, stream), absl::OkStatus());
  ASSERT_EQ(device.MemsetAsync(memory.data(), 3, 1 << 20, stream), absl::OkStatus());
  ASSERT_EQ(device.Record(stop, stream), absl::OkStatus());
  EXPECT_GT(device.ElapsedUs(start, stop).value(), 0);
  EXPECT_LT(device.ElapsedUs(stop, start).value(), 0);
  EXPECT_EQ(device.IsCapturing(stream).value(), false);
  device.DestroyEvent(start);
  device.DestroyEvent(stop);
  device.DestroyStream(stream);
}

TEST(HostStreams, DescribesItself) {
  const DeviceInfo& info = HostDeviceUnderTest().info();
  EXPECT_EQ(info.kind, "host");
  EXPECT_EQ(info.target, "host");
  EXPECT_EQ(info.model, "host");
  EXPECT_GE(info.sms, 1);
  EXPECT_EQ(info.smem_per_block, 227 << 10);
}

}  // namespace
}  // namespace kvr
