// SPDX-License-Identifier: Apache-2.0
//
// What only the cuda device does; what every device does is in ../../conformance.
#include "tests/devices/cuda/gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/throttle.h"
#include "devices/cuda/cuda.h"
#include "devices/cuda/driver.h"
#include "tests/devices/cuda/ptx.h"

namespace kvr {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

TEST_F(Gpu, DescribesItself) {
  const DeviceInfo& info = device_->info();
  EXPECT_EQ(info.kind, "cuda");
  EXPECT_THAT(info.target, testing::StartsWith("sm_"));
  EXPECT_THAT(info.uuid, testing::StartsWith("GPU-"));
  EXPECT_EQ(info.uuid.size(), 40u);
  EXPECT_THAT(info.driver, HasSubstr("CUDA "));
  EXPECT_GE(info.smem_per_block, 48 << 10);
  EXPECT_GT(info.l2_bytes, 0);
  std::cout << info.name << " (" << info.model << ", " << info.target << "), " << info.sms
            << " multiprocessors, L2 " << info.l2_bytes << ", shared memory " << info.smem_per_sm
            << "/" << info.smem_per_block << "/" << info.smem_reserved_per_block << ", blocks "
            << info.max_blocks_per_sm << ", threads " << info.max_threads_per_sm << ", driver "
            << info.driver << std::endl;
}

TEST_F(Gpu, LeavesTheCurrentContextAlone) {
  cuda::Context current = nullptr;
  ASSERT_EQ(driver_->CtxGetCurrent(&current), cuda::kSuccess);
  EXPECT_EQ(current, nullptr) << "opening and allocating made a context current for good";
}

TEST_F(Gpu, AdoptsTheApplicationsContextAndStream) {
  cuda::DeviceHandle handle = 0;
  cuda::Context context = nullptr;
  ASSERT_EQ(driver_->DeviceGet(&handle, 0), cuda::kSuccess);
  ASSERT_EQ(driver_->PrimaryCtxRetain(&context, handle), cuda::kSuccess);
  {
    auto adopted = OpenCudaContext(context);
    ASSERT_TRUE(adopted.ok()) << adopted.status();
    EXPECT_EQ((*adopted)->info().uuid, device_->info().uuid);
    EXPECT_EQ((*adopted)->MemsetAsync(out_, 0x11, 16, stream_), absl::OkStatus());
    EXPECT_EQ(Out(4)[3], 0x11111111u);
  }
  EXPECT_EQ(Out(4)[3], 0x11111111u) << "the application's context outlives the device";
  driver_->PrimaryCtxRelease(handle);
  EXPECT_EQ(OpenCudaContext(nullptr).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(Gpu, DynamicSharedMemoryIsOptedInAndNeverLowered) {
  const int64_t most = device_->info().smem_per_block;
  const auto module = Load(kPtx);
  ASSERT_NE(module, nullptr);
  auto function = module->Get("smem_sum", 0);
  ASSERT_TRUE(function.ok()) << function.status();
  const absl::Status refused = LaunchSum(*function, most);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr(std::to_string(most)));

  function = module->Get("smem_sum", most);
  ASSERT_TRUE(function.ok()) << function.status();
  ASSERT_TRUE(module->Get("smem_sum", 1024).ok());
  ASSERT_EQ(LaunchSum(*function, most), absl::OkStatus());
  EXPECT_EQ(Out(1)[0], SumOf(most));
  EXPECT_EQ(*device_->BlocksPerSm(*function, 32, most), 1);
}

TEST_F(Gpu, CooperativeAndProgrammaticLaunchesRun) {
  const auto module = Load(kPtx);
  ASSERT_NE(module, nullptr);
  auto function = module->Get("smem_sum", 64);
  ASSERT_TRUE(function.ok()) << function.status();
  ASSERT_EQ(LaunchSum(*function, 64, {.cooperative = true}), absl::OkStatus());
  EXPECT_EQ(Out(1)[0], SumOf(64));
  if (device_->info().max_cluster_size == 1) GTEST_SKIP() << "before Hopper";
  ASSERT_EQ(LaunchSum(*function, 32, {.programmatic = true}), absl::OkStatus());
  EXPECT_EQ(Out(1)[0], SumOf(32));
}

TEST_F(Gpu, ClustersUpToTheLargestRun) {
  const int most = device_->info().max_cluster_size;
  if (most == 1) GTEST_SKIP() << device_->info().name << " has no clusters";
  const auto module = Load(kClusterPtx);
  ASSERT_NE(module, nullptr);
  auto function = module->Get("cluster_size", 0);
  ASSERT_TRUE(function.ok()) << function.status();
  void* params[] = {&out_};
  for (uint32_t size = 2; size <= static_cast<uint32_t>(most); size *= 2) {
    KernelLaunch launch;
    launch.grid.x = 2 * size;
    launch.cluster.x = size;
    ASSERT_EQ(device_->Launch(*function, launch, {}, params, stream_), absl::OkStatus()) << size;
    EXPECT_EQ(Out(static_cast<int>(2 * size)), std::vector<uint32_t>(2 * size, size));
  }
  KernelLaunch odd;
  odd.grid.x = 3;
  odd.cluster.x = 2;
  EXPECT_FALSE(device_->Launch(*function, odd, {}, params, stream_).ok());
}

TEST_F(Gpu, CapturesAreSeenAndTakeLaunches) {
  const auto module = Load(kPtx);
  ASSERT_NE(module, nullptr);
  auto function = module->Get("smem_sum", 64);
  ASSERT_TRUE(function.ok()) << function.status();
  const auto raw = static_cast<cuda::StreamHandle>(stream_.handle);
  for (const int mode :
       {cuda::kCaptureModeGlobal, cuda::kCaptureModeThreadLocal, cuda::kCaptureModeRelaxed}) {
    ASSERT_EQ(driver_->StreamBeginCapture(raw, mode), cuda::kSuccess);
    const auto capturing = device_->IsCapturing(stream_);
    EXPECT_TRUE(capturing.ok() && *capturing);
    const auto other = device_->IsCapturing({});
    EXPECT_TRUE(other.ok() && !*other) << "streams made by KVR do not drag the default one in";
    EXPECT_EQ(device_->MemsetAsync(out_, 0, 64, stream_), absl::OkStatus());
    EXPECT_EQ(LaunchSum(*function, 64), absl::OkStatus());
    cuda::GraphHandle graph = nullptr;
    ASSERT_EQ(driver_->StreamEndCapture(raw, &graph), cuda::kSuccess);
    EXPECT_NE(graph, nullptr);
    driver_->GraphDestroy(graph);
    const auto after = device_->IsCapturing(stream_);
    EXPECT_TRUE(after.ok() && !*after);
  }
}

TEST_F(Gpu, LoadingAndAllocatingElsewhereLeavesAGlobalCaptureValid) {
  const auto module = Load(kPtx);
  ASSERT_NE(module, nullptr);
  auto function = module->Get("smem_sum", 64);
  ASSERT_TRUE(function.ok()) << function.status();
  const auto raw = static_cast<cuda::StreamHandle>(stream_.handle);
  cuda::GraphHandle graph = nullptr;

  ASSERT_EQ(driver_->StreamBeginCapture(raw, cuda::kCaptureModeGlobal), cuda::kSuccess);
  std::thread([&] {
    const auto memory = device_->Allocate(4096);
    EXPECT_TRUE(memory.ok()) << memory.status();
    const auto other = Load(kPtx);
    ASSERT_NE(other, nullptr);
    EXPECT_TRUE(other->Get("smem_sum", 128).ok());
    if (memory.ok()) device_->Free(*memory);
  }).join();
  EXPECT_EQ(LaunchSum(*function, 64), absl::OkStatus());
  ASSERT_EQ(driver_->StreamEndCapture(raw, &graph), cuda::kSuccess);
  driver_->GraphDestroy(graph);

  // By a thread that does not say so, the same ends the capture: this test can fail.
  ASSERT_EQ(driver_->StreamBeginCapture(raw, cuda::kCaptureModeGlobal), cuda::kSuccess);
  std::thread([&] {
    cuda::Context context = nullptr;
    ASSERT_EQ(driver_->PrimaryCtxRetain(&context, 0), cuda::kSuccess);
    ASSERT_EQ(driver_->CtxSetCurrent(context), cuda::kSuccess);
    cuda::DevicePtr plain = 0;
    EXPECT_NE(driver_->MemAlloc(&plain, 4096), cuda::kSuccess);
    driver_->PrimaryCtxRelease(0);
  }).join();
  EXPECT_NE(driver_->StreamEndCapture(raw, &graph), cuda::kSuccess);
}

TEST_F(Gpu, WhatIsNotLegalWhileCapturingIsRefusedBeforeItBreaksACaptureOfTheApplication) {
  const auto raw = static_cast<cuda::StreamHandle>(stream_.handle);
  ASSERT_EQ(driver_->StreamBeginCapture(raw, cuda::kCaptureModeRelaxed), cuda::kSuccess);
  const absl::Status status = device_->Synchronize(stream_);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  cuda::GraphHandle graph = nullptr;
  EXPECT_EQ(driver_->StreamEndCapture(raw, &graph), cuda::kSuccess);
  driver_->GraphDestroy(graph);
}

// Does `call` behind the device's back on the stream that captures.
class Foreign : public LaunchFunction {
 public:
  explicit Foreign(std::function<cuda::Result(cuda::StreamHandle)> call) : call_(std::move(call)) {}
  absl::Status Launch(const FunctionLaunch& launch) const override {
    call_(static_cast<cuda::StreamHandle>(launch.stream));
    return absl::OkStatus();
  }

 private:
  const std::function<cuda::Result(cuda::StreamHandle)> call_;
};

TEST_F(Gpu, ACaptureThatForeignCodeBreaksIsOneErrorAndLeavesTheStreamUsable) {
  cuda::DevicePtr leaked = 0;
  const Foreign synchronizes(driver_->StreamSynchronize);
  const Foreign allocates([&](cuda::StreamHandle) { return driver_->MemAlloc(&leaked, 4096); });
  const Foreign ends([&](cuda::StreamHandle stream) {
    cuda::GraphHandle graph = nullptr;
    const cuda::Result result = driver_->StreamEndCapture(stream, &graph);
    driver_->GraphDestroy(graph);
    return result;
  });
  for (const LaunchFunction* function : {&synchronizes, &allocates, &ends}) {
    const auto graph = device_->Capture(stream_, [&] {
      EXPECT_EQ(device_->MemsetAsync(out_, 1, 64, stream_), absl::OkStatus());
      return device_->Call(*function, {}, stream_);
    });
    EXPECT_EQ(graph.status().code(), StatusCode::kFailedPrecondition) << graph.status();
    EXPECT_THAT(std::string(What(graph.status())),
                testing::AllOf(HasSubstr("cannot be recorded"), HasSubstr("cuStreamEndCapture")));
    EXPECT_THAT(std::string(Fix(graph.status())), HasSubstr("the capture"));
    const auto capturing = device_->IsCapturing(stream_);
    EXPECT_TRUE(capturing.ok() && !*capturing);
    EXPECT_EQ(device_->Synchronize(stream_), absl::OkStatus());
  }
  EXPECT_EQ(leaked, 0u);
}

TEST_F(Gpu, CapturesOfTwoThreadsAndAllocationsBesideThemDoNotDisturbOneAnother) {
  const auto capture = [&](Stream stream) {
    for (int i = 0; i < 20; ++i) {
      const auto graph = device_->Capture(stream, [&] {
        const auto memory = device_->Allocate(4096);
        EXPECT_TRUE(memory.ok()) << memory.status();
        if (memory.ok()) device_->Free(*memory);
        return device_->MemsetAsync(out_, 1, 64, stream);
      });
      ASSERT_TRUE(graph.ok()) << graph.status();
      EXPECT_EQ((*graph)->Launch(stream), absl::OkStatus());
      EXPECT_EQ(device_->Synchronize(stream), absl::OkStatus());
    }
  };
  const auto other = device_->CreateStream();
  ASSERT_TRUE(other.ok()) << other.status();
  std::thread beside([&] { capture(*other); });
  capture(stream_);
  beside.join();
  device_->DestroyStream(*other);
}

TEST_F(Gpu, ThrottleBitsAreThoseThatSpoilMeasurements) {
  for (int i = 0; i < 100; ++i) EXPECT_EQ(device_->ThrottleBits() & ~kThrottleMask, 0u);
  RecordProperty("throttle", ThrottleText(device_->ThrottleBits()));
}

TEST_F(Gpu, TruncatedCubinIsRefusedBeforeTheDriverReadsIt) {
  std::string image(64, '\0');
  const std::string magic = "\177ELF\2\1\1";
  std::copy(magic.begin(), magic.end(), image.begin());
  Binary binary;
  binary.target = device_->info().target;
  binary.bytes = image;
  EXPECT_EQ(device_->Load(binary).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(Gpu, BrokenPtxIsReportedInTheDriversWords) {
  Binary binary;
  binary.target = device_->info().target;
  binary.bytes = ".version 7.0\n.target sm_80\n.address_size 64\nnonsense here;\n";
  const auto module = device_->Load(binary);
  EXPECT_EQ(module.status().code(), StatusCode::kInvalidArgument) << module.status();
  EXPECT_THAT(std::string(module.status().message()), HasSubstr("line 4"));
}

}  // namespace
}  // namespace kvr
