// SPDX-License-Identifier: Apache-2.0
//
// Memory, copies, fills, streams and events: what a device does before it runs anything.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/throttle.h"
#include "tests/conformance/devices/device_conformance.h"
#include "tests/conformance/devices/device_tools.h"

namespace kvr {

void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.name; }

std::string SubjectName(const testing::TestParamInfo<Subject>& info) { return info.param.name; }

void DeviceConformance::SetUp() {
  auto device = GetParam().open();
  ASSERT_TRUE(device.ok()) << device.status();
  device_ = *std::move(device);
}

namespace {

using absl::StatusCode;

TEST_P(DeviceConformance, InfoMakesSense) {
  const DeviceInfo& info = device_->info();
  EXPECT_FALSE(info.kind.empty());
  EXPECT_FALSE(info.name.empty());
  EXPECT_FALSE(info.target.empty());
  EXPECT_FALSE(info.model.empty());
  EXPECT_EQ(info.model.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"),
            std::string::npos)
      << info.model;
  EXPECT_GE(info.sms, 1);
  EXPECT_GE(info.max_threads_per_block, 32);
  EXPECT_GE(info.max_threads_per_sm, info.max_threads_per_block);
  EXPECT_GE(info.max_blocks_per_sm, 1);
  EXPECT_GE(info.max_cluster_size, 1);
  EXPECT_GE(info.regs_per_sm, info.regs_per_block);
  EXPECT_GT(info.smem_per_block, 0);
  EXPECT_GE(info.smem_per_sm, info.smem_per_block + info.smem_reserved_per_block);
  EXPECT_GE(info.memory_bandwidth, 0);
}

TEST_P(DeviceConformance, AllocationsAreAlignedAndApart) {
  std::vector<std::pair<uintptr_t, int64_t>> ranges;
  for (const int64_t bytes : {1, 255, 256, 257, 1 << 20, 3}) {
    auto memory = device_->Allocate(bytes);
    ASSERT_TRUE(memory.ok()) << memory.status();
    const auto address = reinterpret_cast<uintptr_t>(*memory);
    EXPECT_EQ(address % 256, 0u) << bytes;
    ranges.emplace_back(address, bytes);
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    EXPECT_GE(ranges[i].first, ranges[i - 1].first + ranges[i - 1].second);
  }
  for (const auto& [address, bytes] : ranges) device_->Free(reinterpret_cast<void*>(address));
}

TEST_P(DeviceConformance, NothingCanBeAllocatedAndFreed) {
  auto memory = device_->Allocate(0);
  ASSERT_TRUE(memory.ok()) << memory.status();
  device_->Free(*memory);
  device_->Free(nullptr);
}

TEST_P(DeviceConformance, ImpossibleAllocationsAreRefused) {
  EXPECT_EQ(device_->Allocate(-1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(device_->Allocate(int64_t{1} << 50).status().code(), StatusCode::kResourceExhausted);
  Memory still_works(device_.get(), 16);
  EXPECT_NE(still_works.data(), nullptr);
}

TEST_P(DeviceConformance, CopiesRoundTrip) {
  for (const int64_t bytes : {1, 255, 4097, (1 << 20) + 3}) {
    std::vector<uint8_t> sent(bytes);
    for (int64_t i = 0; i < bytes; ++i) sent[i] = static_cast<uint8_t>(i * 31 + 7);
    Memory memory(device_.get(), bytes + 1);
    OwnStream stream(device_.get());
    ASSERT_EQ(device_->CopyToDevice(memory.data() + 1, sent.data(), bytes, stream),
              absl::OkStatus());
    EXPECT_EQ(Download<uint8_t>(device_.get(), memory.data() + 1, bytes, stream), sent);
  }
}

TEST_P(DeviceConformance, CopiesAndFillsOfNothingSucceed) {
  Memory memory(device_.get(), 16);
  EXPECT_EQ(device_->CopyToDevice(memory.data(), nullptr, 0, {}), absl::OkStatus());
  EXPECT_EQ(device_->CopyToHost(nullptr, memory.data(), 0, {}), absl::OkStatus());
  EXPECT_EQ(device_->MemsetAsync(memory.data(), 1, 0, {}), absl::OkStatus());
  EXPECT_EQ(device_->Synchronize({}), absl::OkStatus());
}

TEST_P(DeviceConformance, NegativeSizesAreRefused) {
  Memory memory(device_.get(), 16);
  char byte = 0;
  EXPECT_EQ(device_->CopyToDevice(memory.data(), &byte, -1, {}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(device_->CopyToHost(&byte, memory.data(), -1, {}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(device_->MemsetAsync(memory.data(), 1, -1, {}).code(), StatusCode::kInvalidArgument);
}

TEST_P(DeviceConformance, FillsStayInside) {
  Memory memory(device_.get(), 1024);
  OwnStream stream(device_.get());
  ASSERT_EQ(device_->MemsetAsync(memory.data(), 0xA5, 1024, stream), absl::OkStatus());
  ASSERT_EQ(device_->MemsetAsync(memory.data() + 13, 0x5A, 501, stream), absl::OkStatus());
  const auto got = Download<uint8_t>(device_.get(), memory.data(), 1024, stream);
  for (int i = 0; i < 1024; ++i) {
    ASSERT_EQ(got[i], i >= 13 && i < 13 + 501 ? 0x5A : 0xA5) << i;
  }
}

TEST_P(DeviceConformance, StreamsKeepOrder) {
  OwnStream own(device_.get());
  for (const Stream stream : {Stream{}, own.get()}) {
    Memory memory(device_.get(), 1 << 20);
    const uint8_t last = 77;
    for (int i = 0; i < 20; ++i) {
      ASSERT_EQ(device_->MemsetAsync(memory.data(), static_cast<uint8_t>(i), 1 << 20, stream),
                absl::OkStatus());
    }
    ASSERT_EQ(device_->CopyToDevice(memory.data() + 5, &last, 1, stream), absl::OkStatus());
    const auto got = Download<uint8_t>(device_.get(), memory.data(), 16, stream);
    EXPECT_EQ(got[4], 19);
    EXPECT_EQ(got[5], 77);
    EXPECT_EQ(got[6], 19);
  }
}

TEST_P(DeviceConformance, EventsTellTime) {
  OwnStream stream(device_.get());
  Memory memory(device_.get(), 1 << 20);
  auto start = device_->CreateEvent();
  auto stop = device_->CreateEvent();
  ASSERT_TRUE(start.ok() && stop.ok());
  EXPECT_FALSE(device_->ElapsedUs(*start, *stop).ok()) << "neither was recorded";
  for (int round = 0; round < 2; ++round) {  // recording again is fine
    ASSERT_EQ(device_->Record(*start, stream), absl::OkStatus());
    ASSERT_EQ(device_->MemsetAsync(memory.data(), 1, 1 << 20, stream), absl::OkStatus());
    ASSERT_EQ(device_->Record(*stop, stream), absl::OkStatus());
    const auto elapsed = device_->ElapsedUs(*start, *stop);
    ASSERT_TRUE(elapsed.ok()) << elapsed.status();
    EXPECT_GE(*elapsed, 0);
    EXPECT_LT(*elapsed, 60e6);
  }
  device_->DestroyEvent(*start);
  device_->DestroyEvent(*stop);
}

TEST_P(DeviceConformance, StreamsDoNotCaptureByThemselves) {
  OwnStream stream(device_.get());
  for (const Stream s : {Stream{}, stream.get()}) {
    const auto capturing = device_->IsCapturing(s);
    ASSERT_TRUE(capturing.ok()) << capturing.status();
    EXPECT_FALSE(*capturing);
  }
}

TEST_P(DeviceConformance, SaysWhatSlowsItDownInTheBitsThatAreKnown) {
  EXPECT_EQ(device_->ThrottleBits() & ~kThrottleMask, 0u);
}

TEST_P(DeviceConformance, BinaryForAnotherTargetIsRefused) {
  Binary binary;
  binary.target = "sm_1z";
  binary.bytes = "not for you";
  const auto module = device_->Load(binary);
  EXPECT_EQ(module.status().code(), StatusCode::kFailedPrecondition);
  const std::string message(module.status().message());
  EXPECT_NE(message.find("sm_1z"), std::string::npos) << message;
  EXPECT_NE(message.find(device_->info().target), std::string::npos) << message;
}

}  // namespace
}  // namespace kvr
