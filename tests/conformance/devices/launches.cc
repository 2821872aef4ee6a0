// SPDX-License-Identifier: Apache-2.0
//
// Modules and launches: what a device does with kernels, and with those that fault.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/conformance/devices/device_conformance.h"
#include "tests/conformance/devices/device_tools.h"

namespace kvr {
namespace {

using absl::StatusCode;

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
  std::vector<KernelLaunch> impossible(8, Add::Shape(n));
  impossible[0].grid.x = 0;
  impossible[1].grid.y = 0;
  impossible[2].grid.z = 0;
  impossible[3].block.x = 0;
  impossible[4].block.z = 0;
  impossible[5].block.x = device_->info().max_threads_per_block + 1;
  impossible[6].smem = device_->info().smem_per_block + 1;
  impossible[7].smem = -1;
  for (const KernelLaunch& launch : impossible) {
    const absl::Status status = add.Launch(launch, a.data(), a.data(), a.data(), n, stream);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
  }
  EXPECT_EQ(add(a.data(), a.data(), a.data(), n, stream), absl::OkStatus());
  EXPECT_EQ(device_->Synchronize(stream), absl::OkStatus());
}

TEST_P(DeviceConformance, KernelsWriteNothingBesideWhatTheyAreGiven) {
  constexpr int kFence = 4096, kBytes = 300 * 4;
  Add add(device_.get(), GetParam());
  ASSERT_NE(add.function().handle, nullptr);
  OwnStream stream(device_.get());
  Memory memory(device_.get(), 3 * kFence + 2 * kBytes);
  char* const in = memory.data() + kFence;
  char* const out = in + kBytes + kFence;
  ASSERT_EQ(device_->MemsetAsync(memory.data(), 0xC5, 3 * kFence + 2 * kBytes, stream),
            absl::OkStatus());
  ASSERT_EQ(device_->MemsetAsync(in, 0, kBytes, stream), absl::OkStatus());
  ASSERT_EQ(device_->MemsetAsync(out, 0xFF, kBytes, stream), absl::OkStatus());
  ASSERT_EQ(add(in, in, out, kBytes / 4, stream), absl::OkStatus());
  const auto got = Download<uint8_t>(device_.get(), memory.data(), 3 * kFence + 2 * kBytes, stream);
  for (int i = 0; i < static_cast<int>(got.size()); ++i) {
    const bool written = i >= kFence && i < kFence + kBytes;
    const bool result = i >= 2 * kFence + kBytes && i < 2 * kFence + 2 * kBytes;
    const int untouched = GetParam().runs_kernels ? 0 : 0xFF;
    ASSERT_EQ(got[i], written ? 0 : result ? untouched : 0xC5) << i;
  }
}

// Everything on one stream, each step undone or needed by the next: whoever runs early or late is
// seen.
TEST_P(DeviceConformance, WorkOfAStreamNeedsNoWaitingBetween) {
  constexpr int kCount = 777, kBytes = kCount * 4, kDelay = 16 << 20;
  Add add(device_.get(), GetParam());
  ASSERT_NE(add.function().handle, nullptr);
  OwnStream stream(device_.get());
  Memory delay(device_.get(), kDelay), a(device_.get(), kBytes), out(device_.get(), kBytes);
  std::vector<float> first(kCount), second(kCount);
  for (int round = 0; round < 3; ++round) {
    std::vector<float> ramp = Ramp(kCount, static_cast<float>(round));
    ASSERT_EQ(device_->CopyToDevice(a.data(), ramp.data(), kBytes, stream), absl::OkStatus());
    ASSERT_EQ(device_->MemsetAsync(delay.data(), 1, kDelay, stream), absl::OkStatus());
    ASSERT_EQ(device_->MemsetAsync(out.data(), 0xFF, kBytes, stream), absl::OkStatus());
    ASSERT_EQ(add(a.data(), a.data(), out.data(), kCount, stream), absl::OkStatus());
    ASSERT_EQ(device_->MemsetAsync(a.data(), 0, kBytes, stream), absl::OkStatus());
    ASSERT_EQ(device_->CopyToHost(first.data(), out.data(), kBytes, stream), absl::OkStatus());
    ASSERT_EQ(add(a.data(), a.data(), out.data(), kCount, stream), absl::OkStatus());
    ASSERT_EQ(device_->CopyToHost(second.data(), out.data(), kBytes, stream), absl::OkStatus());
    ASSERT_EQ(device_->Synchronize(stream), absl::OkStatus());
    if (!GetParam().runs_kernels) continue;
    for (int i = 0; i < kCount; ++i) ASSERT_EQ(first[i], 2 * ramp[i]) << i;
    for (int i = 0; i < kCount; ++i) ASSERT_EQ(second[i], 0) << i;
  }
}

TEST_P(DeviceConformance, StreamsOfOneThreadDoNotMix) {
  constexpr int kCount = 300, kStreams = 5, kRounds = 20;
  Add add(device_.get(), GetParam());
  ASSERT_NE(add.function().handle, nullptr);
  std::vector<std::unique_ptr<OwnStream>> streams;
  std::vector<std::unique_ptr<Memory>> steps, sums;
  for (int s = 0; s < kStreams; ++s) {
    streams.push_back(std::make_unique<OwnStream>(device_.get()));
    steps.push_back(std::make_unique<Memory>(device_.get(), kCount * 4));
    sums.push_back(std::make_unique<Memory>(device_.get(), kCount * 4));
    const std::vector<float> ramp = Ramp(kCount, static_cast<float>(1000 * s));
    ASSERT_EQ(device_->CopyToDevice(steps[s]->data(), ramp.data(), kCount * 4, *streams[s]),
              absl::OkStatus());
    ASSERT_EQ(device_->MemsetAsync(sums[s]->data(), 0, kCount * 4, *streams[s]), absl::OkStatus());
  }
  for (int round = 0; round < kRounds; ++round) {
    for (int s = 0; s < kStreams; ++s) {
      char* const sum = sums[s]->data();
      ASSERT_EQ(add(sum, steps[s]->data(), sum, kCount, *streams[s]), absl::OkStatus());
    }
  }
  for (int s = kStreams - 1; s >= 0; --s) {
    const auto got = Download<float>(device_.get(), sums[s]->data(), kCount, *streams[s]);
    if (!GetParam().runs_kernels) continue;
    const std::vector<float> ramp = Ramp(kCount, static_cast<float>(1000 * s));
    for (int i = 0; i < kCount; ++i) ASSERT_EQ(got[i], kRounds * ramp[i]) << s << ", " << i;
  }
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

TEST_P(DeviceConformance, ThreadsLoadAndFreeSideBySide) {
  constexpr int kCount = 200;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 8; ++round) {
        Add add(device_.get(), GetParam());
        ASSERT_NE(add.function().handle, nullptr);
        OwnStream stream(device_.get());
        Memory a(device_.get(), kCount * 4), out(device_.get(), kCount * 4);
        const std::vector<float> ramp = Ramp(kCount, static_cast<float>(100 * t + round));
        EXPECT_EQ(device_->CopyToDevice(a.data(), ramp.data(), kCount * 4, stream),
                  absl::OkStatus());
        EXPECT_EQ(add(a.data(), a.data(), out.data(), kCount, stream), absl::OkStatus());
        const auto got = Download<float>(device_.get(), out.data(), kCount, stream);
        if (!GetParam().runs_kernels) continue;
        for (int i = 0; i < kCount; ++i) ASSERT_EQ(got[i], 2 * ramp[i]) << i;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A kernel faults on one of two streams. Empty: all is as core/device.h has it.
std::string WhatIsWrongAfterAFault(const Subject& subject) {
  auto device = subject.open();
  if (!device.ok()) return device.status().ToString();
  auto binary = subject.kernels(**device);
  if (!binary.ok()) return binary.status().ToString();
  auto module = (*device)->Load(*binary);
  if (!module.ok()) return module.status().ToString();
  auto trap = (*module)->Get("trap", 0);
  if (!trap.ok()) return trap.status().ToString();
  OwnStream faulty(device->get()), other(device->get());
  absl::Status status = (*device)->Launch(*trap, KernelLaunch{}, {}, nullptr, faulty);
  if (!status.ok()) return "the launch itself failed: " + status.ToString();
  status = (*device)->Synchronize(faulty);
  if (status.code() != StatusCode::kInternal) return "Synchronize gave " + status.ToString();
  status = (*device)->Synchronize(faulty);
  if (subject.faults_stick) return status.ok() ? "the fault did not stick" : "";
  if (!status.ok()) return "the fault was reported twice: " + status.ToString();
  if (status = (*device)->Synchronize(other); !status.ok()) return "another stream heard of it";
  if (status = (*device)->Synchronize({}); !status.ok()) return "the default stream heard of it";
  Add add(device->get(), subject);
  Memory memory(device->get(), 256 * 4);
  status = add(memory.data(), memory.data(), memory.data(), 256, faulty);
  if (status.ok()) status = (*device)->Synchronize(faulty);
  return status.ok() ? "" : "the stream is of no use any more: " + status.ToString();
}

TEST_P(DeviceConformance, AKernelsFaultIsReportedOnce) {
  if (!GetParam().runs_kernels) GTEST_SKIP() << "kernels of this device do nothing";
  // In a process of its own: the fault may be the end of this one.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const std::string wrong = WhatIsWrongAfterAFault(GetParam());
        std::fprintf(stderr, "%s\n", wrong.c_str());
        std::exit(wrong.empty() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace kvr
