// SPDX-License-Identifier: Apache-2.0
//
// What the device suite's tests are written with.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/device.h"

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

}  // namespace kvr
