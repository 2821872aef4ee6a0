// SPDX-License-Identifier: Apache-2.0
#include "tests/devices/conformance/conformance.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace kvr {

std::string SubjectName(const testing::TestParamInfo<Subject>& info) { return info.param.name; }

void DeviceConformance::SetUp() {
  auto device = GetParam().open();
  ASSERT_TRUE(device.ok()) << device.status();
  device_ = *std::move(device);
}

namespace {

using absl::StatusCode;

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
    auto binary = subject.add_kernel(*device);
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

std::vector<float> Ramp(int n, float start) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), start);
  return values;
}

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

TEST_P(DeviceConformance, BrokenBinariesAndUnknownSymbolsAreRefused) {
  if (!GetParam().runs_kernels) GTEST_SKIP() << "this device does not look at binaries";
  for (const std::string_view bytes : {"", "garbage", "\177ELF and then nothing of use"}) {
    Binary binary;
    binary.target = device_->info().target;
    binary.bytes = bytes;
    EXPECT_FALSE(device_->Load(binary).ok()) << bytes;
  }
  Add add(device_.get(), GetParam());
  ASSERT_NE(add.module(), nullptr);
  const auto function = add.module()->Get("subtract", 0);
  EXPECT_EQ(function.status().code(), StatusCode::kNotFound) << function.status();
}

TEST_P(DeviceConformance, LaunchesRunInOrder) {
  const int n = 1000;
  Add add(device_.get(), GetParam());
  ASSERT_NE(add.function().handle, nullptr);
  OwnStream own(device_.get());
  for (const Stream stream : {Stream{}, own.get()}) {
    Memory a(device_.get(), n * 4), b(device_.get(), n * 4), out(device_.get(), (n + 1) * 4);
    const std::vector<float> host_a = Ramp(n, 1), host_b = Ramp(n, 0.5);
    ASSERT_EQ(device_->CopyToDevice(a.data(), host_a.data(), n * 4, stream), absl::OkStatus());
    ASSERT_EQ(device_->CopyToDevice(b.data(), host_b.data(), n * 4, stream), absl::OkStatus());
    ASSERT_EQ(device_->MemsetAsync(out.data(), 0, (n + 1) * 4, stream), absl::OkStatus());
    ASSERT_EQ(add(a.data(), b.data(), out.data(), n, stream), absl::OkStatus());
    for (int i = 0; i < 10; ++i) {
      ASSERT_EQ(add(out.data(), b.data(), out.data(), n, stream), absl::OkStatus());
    }
    const auto got = Download<float>(device_.get(), out.data(), n + 1, stream);
    EXPECT_EQ(got[n], 0) << "a thread beyond n wrote";
    if (!GetParam().runs_kernels) continue;
    for (int i = 0; i < n; ++i) ASSERT_EQ(got[i], host_a[i] + 11 * host_b[i]) << i;
  }
}

TEST_P(DeviceConformance, ImpossibleLaunchesAreRefusedAndHarmless) {
  const int n = 256;
  Add add(device_.get(), GetParam());
  ASSERT_NE(add.function().handle, nullptr);
  Memory a(device_.get(), n * 4);
  OwnStream stream(device_.get());
  ASSERT_EQ(device_->MemsetAsync(a.data(), 0, n * 4, stream), absl::OkStatus());
  KernelLaunch empty = Add::Shape(n);
  empty.grid.y = 0;
  KernelLaunch wide = Add::Shape(n);
  wide.block.x = device_->info().max_threads_per_block + 1;
  KernelLaunch fat = Add::Shape(n);
  fat.smem = device_->info().smem_per_block + 1;
  for (const KernelLaunch& launch : {empty, wide, fat}) {
    const absl::Status status = add.Launch(launch, a.data(), a.data(), a.data(), n, stream);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
  }
  EXPECT_EQ(add(a.data(), a.data(), a.data(), n, stream), absl::OkStatus());
  EXPECT_EQ(device_->Synchronize(stream), absl::OkStatus());
}

TEST_P(DeviceConformance, TooMuchDynamicSharedMemoryIsRefusedAtLoad) {
  Add add(device_.get(), GetParam());
  ASSERT_NE(add.module(), nullptr);
  const auto function = add.module()->Get("add", device_->info().smem_per_block + 1);
  EXPECT_EQ(function.status().code(), StatusCode::kFailedPrecondition) << function.status();
  EXPECT_FALSE(add.module()->Get("add", -1).ok());
  EXPECT_TRUE(add.module()->Get("add", device_->info().smem_per_block).ok());
}

TEST_P(DeviceConformance, OccupancyFallsWithTheSizeOfABlock) {
  Add add(device_.get(), GetParam());
  ASSERT_NE(add.function().handle, nullptr);
  const auto small = device_->BlocksPerSm(add.function(), 32, 0);
  const auto large = device_->BlocksPerSm(add.function(), device_->info().max_threads_per_block, 0);
  ASSERT_TRUE(small.ok() && large.ok()) << small.status() << large.status();
  EXPECT_GE(*large, 1);
  EXPECT_GE(*small, *large);
  EXPECT_LE(*small, device_->info().max_blocks_per_sm);
}

TEST_P(DeviceConformance, ThreadsWorkSideBySide) {
  const int n = 512;
  Add add(device_.get(), GetParam());
  ASSERT_NE(add.function().handle, nullptr);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      OwnStream stream(device_.get());
      Memory a(device_.get(), n * 4), out(device_.get(), n * 4);
      const std::vector<float> ramp = Ramp(n, static_cast<float>(t));
      EXPECT_EQ(device_->CopyToDevice(a.data(), ramp.data(), n * 4, stream), absl::OkStatus());
      EXPECT_EQ(device_->MemsetAsync(out.data(), 0, n * 4, stream), absl::OkStatus());
      for (int i = 0; i < 50; ++i) {
        EXPECT_EQ(add(out.data(), a.data(), out.data(), n, stream), absl::OkStatus());
      }
      const auto got = Download<float>(device_.get(), out.data(), n, stream);
      if (!GetParam().runs_kernels) return;
      for (int i = 0; i < n; ++i) ASSERT_EQ(got[i], 50 * ramp[i]) << i;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace kvr
