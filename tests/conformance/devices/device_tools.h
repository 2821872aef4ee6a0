// SPDX-License-Identifier: Apache-2.0
//
// What the device suite's tests are written with.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "core/device.h"
#include "tests/conformance/devices/device_conformance.h"

namespace kvr {

// Device memory with a lifetime.
class Memory {
 public:
  Memory(Device* device, int64_t bytes) : device_(device) {
    auto memory = device->Allocate(bytes);
    EXPECT_TRUE(memory.ok()) << memory.status();
    if (memory.ok()) data_ = *memory;
  }
  ~Memory() { device_->Free(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  char* data() const { return static_cast<char*>(data_); }

 private:
  Device* device_;
  void* data_ = nullptr;
};

class OwnStream {
 public:
  explicit OwnStream(Device* device) : device_(device) {
    auto stream = device->CreateStream();
    EXPECT_TRUE(stream.ok()) << stream.status();
    if (stream.ok()) stream_ = *stream;
  }
  ~OwnStream() { device_->DestroyStream(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  Stream get() const { return stream_; }
  operator Stream() const { return stream_; }  // NOLINT(google-explicit-constructor)

 private:
  Device* device_;
  Stream stream_;
};

template <typename T>
std::vector<T> Download(Device* device, const void* from, int64_t count, Stream stream) {
  std::vector<T> host(count);
  EXPECT_EQ(device->CopyToHost(host.data(), from, count * sizeof(T), stream), absl::OkStatus());
  EXPECT_EQ(device->Synchronize(stream), absl::OkStatus());
  return host;
}

// The kernel `add`, loaded, with its arguments.
class Add {
 public:
  Add(Device* device, const Subject& subject) : device_(device) {
    auto binary = subject.kernels(*device);
    EXPECT_TRUE(binary.ok()) << binary.status();
    if (!binary.ok()) return;
    auto module = device->Load(*binary);
    EXPECT_TRUE(module.ok()) << module.status();
    if (!module.ok()) return;
    module_ = *std::move(module);
    auto function = module_->Get("add", /*dynamic_smem=*/0);
    EXPECT_TRUE(function.ok()) << function.status();
    if (function.ok()) function_ = *function;
  }

  static KernelLaunch Shape(int n) {
    KernelLaunch launch;
    launch.block.x = 128;
    launch.grid.x = (n + 127) / 128;
    return launch;
  }

  absl::Status operator()(const void* a, const void* b, void* out, int n, Stream stream) {
    return Launch(Shape(n), a, b, out, n, stream);
  }

  absl::Status Launch(const KernelLaunch& launch, const void* a, const void* b, void* out, int n,
                      Stream stream) {
    void* params[] = {&a, &b, &out, &n};
    absl::Status status = device_->Launch(function_, launch, {}, params, stream);
    a = b = out = nullptr;  // a device that reads them after the launch returned will notice
    n = 1 << 30;
    return status;
  }

  Function function() const { return function_; }
  Module* module() const { return module_.get(); }

 private:
  Device* device_;
  std::unique_ptr<Module> module_;
  Function function_;
};

inline std::vector<float> Ramp(int n, float start) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), start);
  return values;
}

}  // namespace kvr
