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

TEST_F(Null, CapturingStreamTakesLaunchesAndFillsOnly) {
  const Stream stream = *device_->CreateStream();
  const Event event = *device_->CreateEvent();
  void* memory = *device_->Allocate(16);
  char byte = 0;
  device_->SetCapturing(stream, true);
  EXPECT_TRUE(*device_->IsCapturing(stream));
  EXPECT_FALSE(*device_->IsCapturing({}));
  EXPECT_TRUE(Launch(stream).ok());
  EXPECT_TRUE(device_->MemsetAsync(memory, 0, 16, stream).ok());
  EXPECT_EQ(device_->CopyToHost(&byte, memory, 1, stream).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(device_->Synchronize(stream).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(device_->Record(event, stream).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(device_->Synchronize({}).ok()) << "another stream";
  EXPECT_EQ(device_->counters().captured_launches, 1);

  Binary binary;
  binary.target = device_->info().target;
  EXPECT_EQ(device_->Allocate(1).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(device_->Load(binary).status().code(), StatusCode::kFailedPrecondition);
  std::thread([&] { EXPECT_TRUE(device_->Load(binary).ok()) << "another thread may"; }).join();

  device_->SetCapturing(stream, false);
  EXPECT_TRUE(device_->Load(binary).ok());
  EXPECT_TRUE(Launch(stream).ok());
  EXPECT_EQ(device_->counters().launches, 2);
  EXPECT_EQ(device_->counters().captured_launches, 1);
  device_->Free(memory);
  device_->DestroyEvent(event);
  device_->DestroyStream(stream);
}

TEST_F(Null, DestroyingACapturingStreamEndsItsCapture) {
  const Stream stream = *device_->CreateStream();
  device_->SetCapturing(stream, true);
  device_->DestroyStream(stream);
  const auto memory = device_->Allocate(1);
  ASSERT_TRUE(memory.ok()) << memory.status();
  device_->Free(*memory);
}

}  // namespace
}  // namespace kvr
