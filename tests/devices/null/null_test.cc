// SPDX-License-Identifier: Apache-2.0
#include "devices/null/null.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
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

// A slot's work: one launch of `function`, which takes nothing.
NodeWork Launching(Function function, const KernelLaunch& launch) {
  NodeWork work;
  work.kind = NodeWork::Kind::kKernel;
  work.function = function;
  work.launch = &launch;
  return work;
}

class NullGraphs : public Null {
 protected:
  NullGraphs() : stream_(*device_->CreateStream()) {}
  ~NullGraphs() override { device_->DestroyStream(stream_); }

  std::shared_ptr<Module> Load(std::string bytes) {
    Binary binary;
    binary.target = device_->info().target;
    binary.bytes = std::move(bytes);
    return *device_->Load(binary);
  }

  const Stream stream_;
};

TEST_F(NullGraphs, TellWhatTheirNodesDo) {
  const auto module = Load("code of a");
  const Function function = *module->Get("a", 0);
  void* memory = *device_->Allocate(256);
  KernelLaunch launch;
  launch.grid.x = 17;
  ASSERT_TRUE(device_->BeginCapture(stream_, CaptureMode::kRelaxed).ok());
  ASSERT_TRUE(Launch(stream_).ok());
  const auto recording = *device_->RecordingOf(stream_);
  NodeWork work = Launching(function, launch);
  work.attributes.programmatic = true;
  const Node node = *recording->Add(work, stream_);
  ASSERT_TRUE(recording->Add({}, stream_).ok());
  ASSERT_TRUE(device_->MemsetAsync(memory, 1, 99, stream_).ok());
  const auto graph = *device_->EndCapture(stream_, /*keep_graph=*/true);
  auto nodes = *device_->NodesOf(graph->exec());
  ASSERT_EQ(nodes.size(), 4u);
  EXPECT_EQ(nodes[0].kind, NullNode::Kind::kKernel);
  EXPECT_EQ(nodes[0].symbol, "anything");
  EXPECT_EQ(nodes[1].symbol, "a");
  EXPECT_EQ(nodes[1].binary, "code of a");
  EXPECT_EQ(nodes[1].launch.grid.x, 17u);
  EXPECT_TRUE(nodes[1].attributes.programmatic);
  EXPECT_EQ(nodes[2].kind, NullNode::Kind::kNothing);
  EXPECT_EQ(nodes[3].kind, NullNode::Kind::kFill);
  EXPECT_EQ(nodes[3].data, memory);
  EXPECT_EQ(nodes[3].bytes, 99);
  ASSERT_TRUE(device_->SetNode(graph->exec(), node, {}).ok());
  nodes = *device_->NodesOf(graph->exec());
  EXPECT_EQ(nodes[1].kind, NullNode::Kind::kNothing);
  EXPECT_EQ(nodes[1].symbol, "");
  EXPECT_FALSE(device_->NodesOf({}).ok());
  device_->Free(memory);
}

TEST_F(NullGraphs, ReplaysAreCountedByFunction) {
  const auto module = Load("");
  const KernelLaunch launch;
  ASSERT_TRUE(device_->BeginCapture(stream_, CaptureMode::kRelaxed).ok());
  ASSERT_TRUE(device_->Launch(*module->Get("a", 0), launch, {}, nullptr, stream_).ok());
  const Node node =
      *(*device_->RecordingOf(stream_))->Add(Launching(*module->Get("b", 0), launch), stream_);
  const auto graph = *device_->EndCapture(stream_, /*keep_graph=*/true);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(graph->Launch(stream_).ok());
  ASSERT_TRUE(device_->SetNode(graph->exec(), node, Launching(*module->Get("c", 0), launch)).ok());
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(graph->Launch({}).ok());
  EXPECT_EQ(device_->Replays("a"), 5);
  EXPECT_EQ(device_->Replays("b"), 3);
  EXPECT_EQ(device_->Replays("c"), 2);
  EXPECT_EQ(device_->Replays("d"), 0);
  EXPECT_EQ(device_->counters().launches, 10);
  EXPECT_EQ(device_->counters().captured_launches, 1);
}

TEST_F(NullGraphs, WhoseModuleIsGoneSaySo) {
  auto module = Load("");
  const auto graph = *device_->Capture(stream_, [&] {
    return device_->Launch(*module->Get("lost", 0), KernelLaunch{}, {}, nullptr, stream_);
  });
  EXPECT_TRUE(graph->Launch(stream_).ok());
  module.reset();
  const absl::Status status = graph->Launch(stream_);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("'lost', whose module is gone"), std::string_view::npos)
      << status;
}

TEST_F(NullGraphs, ARelaxedCaptureForbidsItsThreadNothing) {
  ASSERT_TRUE(device_->BeginCapture(stream_, CaptureMode::kRelaxed).ok());
  const auto memory = device_->Allocate(1);
  EXPECT_TRUE(memory.ok()) << memory.status();
  EXPECT_NE(Load(""), nullptr);
  ASSERT_TRUE(Launch(stream_).ok());
  EXPECT_TRUE(device_->EndCapture(stream_).ok());
  device_->Free(*memory);
}

TEST_F(NullGraphs, AStreamThatIsDestroyedLeavesItsCapture) {
  for (const bool waited : {false, true}) {
    const Stream joined = *device_->CreateStream();
    ASSERT_TRUE(device_->BeginCapture(stream_, CaptureMode::kRelaxed).ok());
    ASSERT_TRUE(device_->Wait(joined, stream_).ok());
    ASSERT_TRUE(Launch(joined).ok());
    if (waited) {
      EXPECT_TRUE(device_->Wait(stream_, joined).ok());
    }
    device_->DestroyStream(joined);
    EXPECT_EQ(device_->EndCapture(stream_).ok(), waited);
  }
  const Stream first = *device_->CreateStream();
  ASSERT_TRUE(device_->BeginCapture(first, CaptureMode::kRelaxed).ok());
  ASSERT_TRUE(device_->Wait(stream_, first).ok());
  EXPECT_TRUE(*device_->IsCapturing(stream_));
  device_->DestroyStream(first);
  EXPECT_FALSE(*device_->IsCapturing(stream_));
  EXPECT_TRUE(device_->Capture(stream_, [&] { return Launch(stream_); }).ok());
}

TEST_F(NullGraphs, ACaptureThatNobodyEndsGoesWithTheDevice) {
  auto module = Load("");
  const std::weak_ptr<Module> watched = module;
  const Stream stream = *device_->CreateStream();
  ASSERT_TRUE(device_->BeginCapture(stream, CaptureMode::kRelaxed).ok());
  ASSERT_TRUE((*device_->RecordingOf(stream))->Retain(std::move(module)).ok());
  device_->DestroyStream(stream);
  EXPECT_FALSE(watched.expired());
  device_->Collect();
  EXPECT_TRUE(watched.expired());
}

// Each thread swaps modules under its own graph, whose replays keep what the next Collect drops.
TEST_F(NullGraphs, AreCapturedEditedAndDroppedByManyThreads) {
  constexpr int kThreads = 4, kRounds = 200;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this] {
      const Stream first = *device_->CreateStream(), second = *device_->CreateStream();
      const KernelLaunch launch;
      for (int round = 0; round < kRounds; ++round) {
        const auto before = Load("before"), after = Load("after");
        ASSERT_TRUE(device_->BeginCapture(first, CaptureMode::kRelaxed).ok());
        ASSERT_TRUE(device_->Wait(second, first).ok());
        auto recording = *device_->RecordingOf(second);
        ASSERT_TRUE(recording->Retain(before).ok());
        ASSERT_TRUE(recording->Retain(after).ok());
        const Node node = *recording->Add(Launching(*before->Get("k", 0), launch), second);
        ASSERT_TRUE(device_->Wait(first, second).ok());
        const auto copy = *recording->Copy();
        const auto graph = *device_->EndCapture(first, /*keep_graph=*/true);
        EXPECT_TRUE(graph->Launch(second).ok());
        const NodeWork next = Launching(*after->Get("k", 0), launch);
        EXPECT_TRUE(device_->SetNode(graph->exec(), node, next).ok());
        EXPECT_TRUE(graph->Launch(first).ok());
        EXPECT_TRUE(copy->Update(graph->exec()).ok());
        EXPECT_TRUE(graph->Launch(first).ok());
        device_->Collect();
      }
      device_->DestroyStream(first);
      device_->DestroyStream(second);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(device_->Replays("k"), 3 * kThreads * kRounds);
  device_->Collect();
  EXPECT_EQ(device_->counters().modules, 1);
}

}  // namespace
}  // namespace kvr
