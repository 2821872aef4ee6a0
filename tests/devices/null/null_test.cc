// SPDX-License-Identifier: Apache-2.0
#include "devices/null/null.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace kvr {
namespace {

using absl::StatusCode;

class Null : public testing::Test {
 protected:
  Null() {
    Binary binary;
    binary.target = device_->info().target;
    module_ = *device_->Load(binary);
    function_ = *module_->Get("anything", 0);
  }
  absl::Status Launch(Stream stream = {}) {
    return device_->Launch(function_, KernelLaunch{}, {}, nullptr, stream);
  }

  std::unique_ptr<NullDevice> device_ = OpenNull();
  std::unique_ptr<Module> module_;
  Function function_;
};

TEST_F(Null, DescribesWhatItIsTold) {
  DeviceInfo info = NullDeviceInfo();
  info.target = "sm_90a";
  info.sms = 7;
  const auto device = OpenNull(info);
  EXPECT_EQ(device->info().sms, 7);
  Binary binary;
  binary.target = "sm_90a";
  EXPECT_TRUE(device->Load(binary).ok());
}

TEST_F(Null, CountsLaunchesOfAllThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([this] {
      for (int i = 0; i < 1000; ++i) EXPECT_TRUE(Launch().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(device_->counters().launches, 8000);
}

TEST_F(Null, CountsOfTwoDevicesStayApart) {
  const auto other = OpenNull();
  Binary binary;
  binary.target = other->info().target;
  const auto module = *other->Load(binary);
  const Function function = *module->Get("anything", 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Launch().ok());
    EXPECT_TRUE(other->Launch(function, KernelLaunch{}, {}, nullptr, {}).ok());
    EXPECT_TRUE(Launch().ok());
  }
  EXPECT_EQ(device_->counters().launches, 6);
  EXPECT_EQ(other->counters().launches, 3);
}

TEST_F(Null, CountsBytesAndModules) {
  void* memory = *device_->Allocate(100);
  char byte = 0;
  EXPECT_TRUE(device_->CopyToHost(&byte, memory, 1, {}).ok());
  EXPECT_TRUE(device_->MemsetAsync(memory, 0, 40, {}).ok());
  EXPECT_EQ(device_->counters().bytes_allocated, 100);
  EXPECT_EQ(device_->counters().bytes_copied, 1);
  EXPECT_EQ(device_->counters().bytes_set, 40);
  EXPECT_EQ(device_->counters().modules, 1);
  device_->Free(memory);
  module_.reset();
  EXPECT_EQ(device_->counters().bytes_allocated, 0);
  EXPECT_EQ(device_->counters().allocations, 1);
  EXPECT_EQ(device_->counters().modules, 0);
}

TEST_F(Null, LaunchesThatAreRecordedAreCountedWhenTheirGraphIsLaunched) {
  const Stream stream = *device_->CreateStream();
  void* memory = *device_->Allocate(16);
  const auto graph = device_->Capture(stream, [&] {
    EXPECT_TRUE(device_->MemsetAsync(memory, 0, 16, stream).ok());
    EXPECT_TRUE(Launch().ok()) << "of another stream";
    EXPECT_TRUE(Launch(stream).ok());
    return Launch(stream);
  });
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(device_->counters().launches, 1);
  EXPECT_EQ(device_->counters().captured_launches, 2);
  EXPECT_EQ(device_->counters().bytes_set, 0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE((*graph)->Launch({}).ok());
  EXPECT_EQ(device_->counters().launches, 7);
  EXPECT_EQ(device_->counters().captured_launches, 2);
  EXPECT_EQ(device_->counters().bytes_set, 48);
  device_->Free(memory);
  device_->DestroyStream(stream);
}

TEST_F(Null, TheThreadThatCapturesNeitherAllocatesNorLoads) {
  const Stream stream = *device_->CreateStream();
  Binary binary;
  binary.target = device_->info().target;
  const auto graph = device_->Capture(stream, [&] {
    EXPECT_EQ(device_->Allocate(1).status().code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(device_->CreateStream().status().code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(device_->CreateEvent().status().code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(device_->Load(binary).status().code(), StatusCode::kFailedPrecondition);
    std::thread([&] { EXPECT_TRUE(device_->Load(binary).ok()) << "another thread may"; }).join();
    return Launch(stream);
  });
  EXPECT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(device_->Load(binary).ok());
  device_->DestroyStream(stream);
}

}  // namespace
}  // namespace kvr
