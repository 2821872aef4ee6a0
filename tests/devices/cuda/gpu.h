// SPDX-License-Identifier: Apache-2.0
//
// A GPU, a stream and some memory for a test.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "devices/cuda/cuda.h"
#include "devices/cuda/driver.h"

namespace kvr {

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    auto driver = cuda::GetDriver();
    ASSERT_TRUE(driver.ok()) << driver.status();
    driver_ = *driver;
    auto device = OpenCuda(0);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    auto stream = device_->CreateStream();
    ASSERT_TRUE(stream.ok()) << stream.status();
    stream_ = *stream;
    auto out = device_->Allocate(kOutBytes);
    ASSERT_TRUE(out.ok()) << out.status();
    out_ = *out;
  }
  void TearDown() override {
    if (device_ == nullptr) return;
    device_->Free(out_);
    device_->DestroyStream(stream_);
  }

  std::unique_ptr<Module> Load(const char* ptx) {
    Binary binary;
    binary.target = device_->info().target;
    binary.bytes = ptx;
    auto module = device_->Load(binary);
    EXPECT_TRUE(module.ok()) << module.status();
    return module.ok() ? *std::move(module) : nullptr;
  }

  absl::Status LaunchSum(Function function, int64_t smem, LaunchAttributes attributes = {}) {
    KernelLaunch launch;
    launch.smem = smem;
    uint32_t words = static_cast<uint32_t>(smem / 4);
    void* params[] = {&out_, &words};
    return device_->Launch(function, launch, attributes, params, stream_);
  }

  std::vector<uint32_t> Out(int count) {
    std::vector<uint32_t> host(count);
    EXPECT_EQ(device_->CopyToHost(host.data(), out_, count * 4, stream_), absl::OkStatus());
    EXPECT_EQ(device_->Synchronize(stream_), absl::OkStatus());
    return host;
  }

  static uint32_t SumOf(int64_t smem) {
    const auto words = static_cast<uint32_t>(smem / 4);
    return words * (words + 1) / 2;
  }

  static constexpr int64_t kOutBytes = 4096;
  const cuda::Driver* driver_ = nullptr;
  std::unique_ptr<Device> device_;
  Stream stream_;
  void* out_ = nullptr;
};

}  // namespace kvr
