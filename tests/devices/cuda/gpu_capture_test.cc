// SPDX-License-Identifier: Apache-2.0
//
// Captures on a real driver beside what would break them, and what their graphs keep alive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "core/status.h"
#include "tests/devices/cuda/gpu_graph.h"

namespace kvr {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

// Everything that this device does about graphs, while somebody else captures.
TEST_F(GpuGraph, NothingDisturbsACaptureOfAnotherThread) {
  const auto other = device_->CreateStream();
  ASSERT_TRUE(other.ok()) << other.status();
  for (const CaptureMode mode : kModes) {
    ASSERT_EQ(device_->BeginCapture(*other, mode), absl::OkStatus());
    std::thread([&] {
      auto module = Load(kSumOfPtx);
      ASSERT_NE(module, nullptr);
      const Function own = Get(*module, "sum_of");
      const auto recording = Begin();
      ASSERT_NE(recording, nullptr);
      const auto kept = std::make_shared<int>(1);
      EXPECT_EQ(recording->Retain(kept), absl::OkStatus());
      const Node node = Add(*recording, Kernel(mark_, 2, out_, {7}));
      auto copy = Copy(*recording);
      auto graph = End(/*keep_graph=*/true);
      ASSERT_TRUE(graph != nullptr && copy != nullptr);
      const Kernel loaded(own, 1, out_, {1, 2, 3});
      EXPECT_EQ(device_->SetNode(graph->exec(), node, loaded), absl::OkStatus());
      EXPECT_EQ(graph->Launch(stream_), absl::OkStatus());
      EXPECT_EQ(Out(1)[0], 6u);
      EXPECT_EQ(copy->Set(node, Kernel(cluster_size_, 4, out_).Cluster(4)), absl::OkStatus());
      EXPECT_EQ(copy->Update(graph->exec()), absl::OkStatus());
      EXPECT_EQ(graph->Launch(stream_), absl::OkStatus());
      EXPECT_EQ(Out(1)[0], 4u);
      copy.reset();
      graph.reset();
      module.reset();
      device_->Collect();
    }).join();
    const auto recording = device_->RecordingOf(*other);
    ASSERT_TRUE(recording.ok() && *recording != nullptr) << recording.status();
    EXPECT_TRUE((*recording)->Add(Kernel(mark_, 1, out_, {3}), *other).ok());
    const auto graph = device_->EndCapture(*other);
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ((*graph)->Launch(*other), absl::OkStatus());
    EXPECT_EQ(device_->Synchronize(*other), absl::OkStatus());
    EXPECT_EQ(Out(1)[0], 3u);
  }
  device_->DestroyStream(*other);
}

TEST_F(GpuGraph, WhatIsRetainedGoesWithTheLastExecutableAndNotBefore) {
  for (const bool copy_lives : {false, true}) {
    auto object = std::make_shared<int>(1);
    const std::weak_ptr<const void> watched = object;
    const auto recording = Begin();
    ASSERT_NE(recording, nullptr);
    EXPECT_EQ(recording->Retain(std::move(object)), absl::OkStatus());
    Add(*recording, NodeWork{});
    auto copy = Copy(*recording);
    ASSERT_NE(copy, nullptr);
    if (!copy_lives) copy.reset();
    // As an application does that makes two executables of one graph.
    cuda::GraphHandle raw = nullptr;
    cuda::GraphExecHandle execs[2] = {};
    const auto handle = static_cast<cuda::StreamHandle>(stream_.handle);
    ASSERT_EQ(driver_->StreamEndCapture(handle, &raw), cuda::kSuccess);
    ASSERT_EQ(device_->WithContext([&] {
      for (auto& exec : execs) {
        EXPECT_EQ(driver_->GraphInstantiate(&exec, raw, 0), cuda::kSuccess);
      }
      EXPECT_EQ(driver_->GraphDestroy(raw), cuda::kSuccess);
      EXPECT_EQ(driver_->GraphExecDestroy(execs[0]), cuda::kSuccess);
      EXPECT_EQ(driver_->GraphLaunch(execs[1], handle), cuda::kSuccess);
      return absl::OkStatus();
    }),
              absl::OkStatus());
    EXPECT_EQ(device_->Synchronize(stream_), absl::OkStatus());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    device_->Collect();
    EXPECT_FALSE(watched.expired()) << "one executable lives";
    if (copy != nullptr) {
      EXPECT_EQ(copy->Update(GraphExec{execs[1]}), absl::OkStatus());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    device_->Collect();
    EXPECT_FALSE(watched.expired()) << "an update takes nothing away";
    ASSERT_EQ(device_->WithContext([&] {
      EXPECT_EQ(driver_->GraphExecDestroy(execs[1]), cuda::kSuccess);
      return absl::OkStatus();
    }),
              absl::OkStatus());
    EXPECT_TRUE(Dropped(watched)) << copy_lives;
  }
}

TEST_F(GpuGraph, ModulesThatAGraphRetainsOutliveTheirOwnerAndAreUnloadedByCollect) {
  auto module = std::shared_ptr<Module>(Load(kSumOfPtx));
  ASSERT_NE(module, nullptr);
  const std::weak_ptr<const void> watched = module;
  const Function own = Get(*module, "sum_of");
  const auto recording = Begin();
  ASSERT_NE(recording, nullptr);
  EXPECT_EQ(recording->Retain(std::move(module)), absl::OkStatus());
  Add(*recording, Kernel(own, 1, out_, {1, 2, 3}));
  auto graph = End();
  ASSERT_NE(graph, nullptr);
  device_->Collect();
  EXPECT_EQ(Replay(*graph, 1)[0], 6u);
  EXPECT_FALSE(watched.expired());
  graph.reset();
  EXPECT_TRUE(Dropped(watched));
}

TEST_F(GpuGraph, UnloadingWaitsForRunningKernels) {
  const auto beside = device_->CreateStream();
  ASSERT_TRUE(beside.ok()) << beside.status();
  uint32_t value = 77, microseconds = 100000, seen = 0;
  void* params[] = {&out_, &value, &microseconds};
  ASSERT_EQ(device_->Launch(spin_, {}, {}, params, stream_), absl::OkStatus());
  marks_.reset();
  ASSERT_EQ(device_->CopyToHost(&seen, out_, 4, *beside), absl::OkStatus());
  ASSERT_EQ(device_->Synchronize(*beside), absl::OkStatus());
  EXPECT_EQ(seen, value) << "the kernel had ended when its module was gone";
  EXPECT_EQ(device_->Synchronize(stream_), absl::OkStatus());
  device_->DestroyStream(*beside);
}

TEST_F(GpuGraph, AnInvalidatedCaptureIsAClearErrorInEachCall) {
  auto object = std::make_shared<int>(1);
  const std::weak_ptr<const void> watched = object;
  const auto recording = Begin(CaptureMode::kGlobal);
  ASSERT_NE(recording, nullptr);
  EXPECT_EQ(recording->Retain(std::move(object)), absl::OkStatus());
  Add(*recording, Kernel(mark_, 1, out_, {1}));
  // An allocation by code that knows nothing of the capture.
  cuda::Context before = nullptr, context = nullptr;
  ASSERT_EQ(driver_->CtxGetCurrent(&before), cuda::kSuccess);
  ASSERT_EQ(driver_->PrimaryCtxRetain(&context, 0), cuda::kSuccess);
  ASSERT_EQ(driver_->CtxSetCurrent(context), cuda::kSuccess);
  cuda::DevicePtr memory = 0;
  EXPECT_NE(driver_->MemAlloc(&memory, 4096), cuda::kSuccess);
  driver_->CtxSetCurrent(before);
  driver_->PrimaryCtxRelease(0);

  const absl::Status statuses[] = {
      device_->RecordingOf(stream_).status(), recording->Add(NodeWork{}, stream_).status(),
      recording->Copy().status(), recording->Retain(std::make_shared<int>(2))};
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(What(status)), HasSubstr("invalidated"));
    EXPECT_FALSE(Fix(status).empty());
  }
  const absl::Status status = device_->EndCapture(stream_, false).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  EXPECT_TRUE(Dropped(watched)) << "the graph was never made";
  const auto next = Begin(CaptureMode::kGlobal);
  ASSERT_NE(next, nullptr);
  Add(*next, Kernel(mark_, 1, out_, {1}));
  const auto graph = End();
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(Replay(*graph, 1)[0], 1u);
}

TEST_F(GpuGraph, ACaptureThatTheApplicationGivesUpLeavesNothing) {
  auto object = std::make_shared<int>(1);
  const std::weak_ptr<const void> watched = object;
  const auto recording = Begin();
  ASSERT_NE(recording, nullptr);
  EXPECT_EQ(recording->Retain(std::move(object)), absl::OkStatus());
  const Node node = Add(*recording, Kernel(mark_, 1, out_, {1}));
  cuda::GraphHandle raw = nullptr;
  const auto handle = static_cast<cuda::StreamHandle>(stream_.handle);
  ASSERT_EQ(driver_->StreamEndCapture(handle, &raw), cuda::kSuccess);
  EXPECT_EQ(recording->Copy().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(recording->Add(NodeWork{}, stream_).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(device_->EndCapture(stream_, false).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(driver_->GraphDestroy(raw), cuda::kSuccess);
  EXPECT_TRUE(Dropped(watched));
  EXPECT_EQ(device_->SetNode({}, node, NodeWork{}).code(), StatusCode::kInvalidArgument)
      << "its slots are forgotten";
}

}  // namespace
}  // namespace kvr
