// SPDX-License-Identifier: Apache-2.0
//
// Which calls recording, copying and setting slots make, and what a driver's refusal becomes;
// gpu_graph_test.cc does the rest, on a real one.
#include "devices/cuda/recording.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "devices/cuda/graph.h"

namespace kvr::cuda {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

class RecordingOnFakeDriver : public testing::Test {
 protected:
  void SetUp() override {
    auto driver = LoadDriver(KVR_FAKE_DRIVER);
    ASSERT_TRUE(driver.ok()) << driver.status();
    driver_ = *std::move(driver);
    void* library = dlopen(KVR_FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL);
    calls_ = reinterpret_cast<const char* (*)()>(dlsym(library, "fake_cuda_calls"));
    fire_ = reinterpret_cast<void (*)()>(dlsym(library, "fake_cuda_fire"));
    ASSERT_NE(calls_, nullptr);
    ASSERT_NE(fire_, nullptr);
    info_.sms = 10;
    info_.max_cluster_size = 8;
    info_.smem_per_block = 1 << 16;
    captures_ = std::make_unique<Captures>(driver_, nullptr, info_);
    ASSERT_EQ(BeginCapture(driver_, nullptr, stream_, CaptureMode::kRelaxed), absl::OkStatus());
    kernel_.kind = NodeWork::Kind::kKernel;
    kernel_.function.handle = &place_;
    kernel_.launch = &launch_;
    launch_.grid.x = 6;
  }
  void TearDown() override {
    for (const char* name : {"FAKE_CUDA_FAILS", "FAKE_CUDA_UPDATE", "FAKE_CUDA_CAPTURE"}) {
      unsetenv(name);
    }
    EXPECT_TRUE(EndCapture(driver_, nullptr, stream_, false).ok());
    captures_->Close();
    fire_();
    calls_();
  }

  std::unique_ptr<Recording> Open() {
    auto recording = captures_->RecordingOf(stream_);
    EXPECT_TRUE(recording.ok()) << recording.status();
    calls_();
    return recording.ok() ? *std::move(recording) : nullptr;
  }
  Node Add(Recording& recording, const NodeWork& work) {
    const auto node = recording.Add(work, Stream{stream_});
    EXPECT_TRUE(node.ok()) << node.status();
    calls_();
    return node.ok() ? *node : Node{};
  }

  Driver driver_;
  const char* (*calls_)() = nullptr;
  void (*fire_)() = nullptr;
  DeviceInfo info_;
  std::unique_ptr<Captures> captures_;
  alignas(256) int place_ = 0;
  const StreamHandle stream_ = reinterpret_cast<StreamHandle>(&place_);
  const GraphExecHandle exec_ = reinterpret_cast<GraphExecHandle>(&place_);
  KernelLaunch launch_;
  NodeWork kernel_;
};

TEST_F(RecordingOnFakeDriver, EachWorkIsOneLaunch) {
  const auto recording = Open();
  ASSERT_NE(recording, nullptr);
  NodeWork clear;
  clear.kind = NodeWork::Kind::kClear;
  clear.data = &place_;
  const struct {
    int64_t bytes;
    const char* calls;
  } cases[] = {{0, "LaunchKernel(1)"},
               {1, "LaunchKernel(1)"},
               {256 * 16 - 1, "LaunchKernel(1)"},
               {256 * 16 + 1, "LaunchKernel(2)"},
               {int64_t{1} << 40, "LaunchKernel(40)"}};
  Add(*recording, kernel_);
  for (const auto& c : cases) {
    clear.bytes = c.bytes;
    EXPECT_TRUE(recording->Add(clear, Stream{stream_}).ok());
    EXPECT_STREQ(calls_(), c.calls) << c.bytes;
  }
  NodeWork spare;
  spare.attributes.programmatic = true;
  EXPECT_TRUE(recording->Add(spare, Stream{stream_}).ok());
  EXPECT_STREQ(calls_(), "LaunchKernelEx(1)") << "a spare slot has the edge of what may come";
}

TEST_F(RecordingOnFakeDriver, BothFormsOfTheDriversQuestionGiveTheSame) {
  const auto first = Open();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(driver_.StreamGetCaptureInfo, nullptr);
  setenv("FAKE_CUDA_VERSION", "12030", 1);
  auto newer = LoadDriver(KVR_FAKE_DRIVER);
  unsetenv("FAKE_CUDA_VERSION");
  ASSERT_TRUE(newer.ok()) << newer.status();
  ASSERT_NE(newer->StreamGetCaptureInfo, nullptr);
  Captures captures(*newer, nullptr, info_);
  const auto second = captures.RecordingOf(stream_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->id(), first->id());
  const auto a = (*second)->Add(kernel_, Stream{stream_});
  const auto b = first->Add(kernel_, Stream{stream_});
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE(a->handle, b->handle);
  captures.Close();
}

TEST_F(RecordingOnFakeDriver, IncompleteWorkIsRefusedBeforeAnythingIsRecorded) {
  const auto recording = Open();
  ASSERT_NE(recording, nullptr);
  NodeWork no_function = kernel_, no_launch = kernel_;
  no_function.function = {};
  no_launch.launch = nullptr;
  NodeWork negative, null, odd;
  negative.kind = null.kind = odd.kind = NodeWork::Kind::kClear;
  negative.bytes = -1;
  null.bytes = 16;
  odd.bytes = 16;
  odd.data = reinterpret_cast<char*>(&place_) + 16;
  for (const NodeWork* work : {&no_function, &no_launch, &negative, &null, &odd}) {
    const absl::Status status = recording->Add(*work, Stream{stream_}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_FALSE(Fix(status).empty());
  }
  EXPECT_STREQ(calls_(), "");
}

TEST_F(RecordingOnFakeDriver, ALaunchThatTheDriverRefusesIsNoSlot) {
  const auto recording = Open();
  ASSERT_NE(recording, nullptr);
  setenv("FAKE_CUDA_FAILS", "cuLaunchKernel 1", 1);
  EXPECT_EQ(recording->Add(kernel_, Stream{stream_}).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(RecordingOnFakeDriver, NodesAreSetInRelaxedModeByOneCallEach) {
  const auto recording = Open();
  ASSERT_NE(recording, nullptr);
  launch_.cluster.x = 2;
  const Node node = Add(*recording, kernel_);
  launch_.grid.x = 8;
  EXPECT_EQ(captures_->SetNode(exec_, static_cast<GraphNode>(node.handle), kernel_),
            absl::OkStatus());
  EXPECT_STREQ(calls_(), "GraphExecKernelNodeSetParams(8)");
  EXPECT_EQ(captures_->SetNode(exec_, static_cast<GraphNode>(node.handle), {}), absl::OkStatus());
  EXPECT_STREQ(calls_(), "GraphExecKernelNodeSetParams(2)") << "one cluster that does nothing";

  launch_.cluster.x = 4;
  EXPECT_EQ(captures_->SetNode(exec_, static_cast<GraphNode>(node.handle), kernel_).code(),
            StatusCode::kUnimplemented);
  launch_.cluster.x = 2;
  kernel_.attributes.cooperative = true;
  const absl::Status other =
      captures_->SetNode(exec_, static_cast<GraphNode>(node.handle), kernel_);
  EXPECT_EQ(other.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(What(other)), HasSubstr("cooperative"));
  EXPECT_EQ(captures_->SetNode(exec_, reinterpret_cast<GraphNode>(&place_), {}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_STREQ(calls_(), "");
  kernel_.attributes = {};
  setenv("FAKE_CUDA_FAILS", "cuGraphExecKernelNodeSetParams 912", 1);
  EXPECT_EQ(captures_->SetNode(exec_, static_cast<GraphNode>(node.handle), kernel_).code(),
            StatusCode::kInvalidArgument);
}

TEST_F(RecordingOnFakeDriver, ACopyGivesUpWhatIsRetainedAndChangesClustersWithoutAnOddGrid) {
  const auto recording = Open();
  ASSERT_NE(recording, nullptr);
  EXPECT_EQ(recording->Retain(std::make_shared<int>(1)), absl::OkStatus());
  const Node node = Add(*recording, kernel_);
  {
    const auto copy = recording->Copy();
    ASSERT_TRUE(copy.ok()) << copy.status();
    EXPECT_STREQ(calls_(),
                 "GraphClone GraphReleaseUserObject GraphReleaseUserObject GraphNodeFindInClone")
        << "one object is the device's own";
    EXPECT_EQ((*copy)->Set(node, kernel_), absl::OkStatus());
    EXPECT_STREQ(calls_(), "GraphKernelNodeSetParams(6)");
    launch_.cluster.x = 2;
    EXPECT_EQ((*copy)->Set(node, kernel_), absl::OkStatus());
    EXPECT_STREQ(calls_(), "GraphKernelNodeSetParams(6) GraphKernelNodeSetAttribute(2)");
    launch_.cluster.x = 3;
    EXPECT_EQ((*copy)->Set(node, kernel_), absl::OkStatus());
    EXPECT_STREQ(calls_(),
                 "GraphKernelNodeSetAttribute(1) GraphKernelNodeSetParams(6) "
                 "GraphKernelNodeSetAttribute(3)");
    setenv("FAKE_CUDA_FAILS", "cuGraphKernelNodeSetParams 1", 1);
    launch_.cluster.x = 2;
    EXPECT_FALSE((*copy)->Set(node, kernel_).ok());
    EXPECT_STREQ(calls_(),
                 "GraphKernelNodeSetAttribute(1) GraphKernelNodeSetParams(6) "
                 "GraphKernelNodeSetAttribute(3)")
        << "it is as it was";
    unsetenv("FAKE_CUDA_FAILS");
    kernel_.attributes.programmatic = true;
    EXPECT_EQ((*copy)->Set(node, kernel_).code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ((*copy)->Set(Node{&place_}, {}).code(), StatusCode::kInvalidArgument);
    EXPECT_STREQ(calls_(), "");
    EXPECT_EQ((*copy)->Update(GraphExec{exec_}), absl::OkStatus());
    EXPECT_STREQ(calls_(),
                 "GraphRetainUserObject GraphRetainUserObject GraphExecUpdate "
                 "GraphReleaseUserObject GraphReleaseUserObject")
        << "the executable takes what the clone has for what it had";
  }
  EXPECT_STREQ(calls_(), "GraphDestroy");
}

TEST_F(RecordingOnFakeDriver, AnUpdateThatCannotKeepWhatIsRetainedIsNotMade) {
  const auto recording = Open();
  ASSERT_NE(recording, nullptr);
  EXPECT_EQ(recording->Retain(std::make_shared<int>(1)), absl::OkStatus());
  const auto copy = recording->Copy();
  ASSERT_TRUE(copy.ok()) << copy.status();
  calls_();
  setenv("FAKE_CUDA_FAILS", "cuGraphRetainUserObject 2", 1);
  EXPECT_EQ((*copy)->Update(GraphExec{exec_}).code(), StatusCode::kResourceExhausted);
  EXPECT_STREQ(calls_(), "GraphRetainUserObject");
  unsetenv("FAKE_CUDA_FAILS");
  for (const bool collected : {false, true}) {
    fire_();
    if (collected) captures_->Collect();
    const absl::Status status = (*copy)->Update(GraphExec{exec_});
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(What(status)), HasSubstr("are gone"));
    EXPECT_STREQ(calls_(), "") << "the driver would use what it has freed";
  }
}

TEST_F(RecordingOnFakeDriver, ALaunchBeyondTheLimitsIsRefusedBeforeItBreaksTheCapture) {
  const auto recording = Open();
  ASSERT_NE(recording, nullptr);
  std::vector<KernelLaunch> beyond(9, launch_);
  beyond[0].grid.x = 0;
  beyond[1].grid.y = 65536;
  beyond[2].block.x = 1025;
  beyond[3].block = {1024, 2, 1};
  beyond[4].block.z = 65;
  beyond[5].smem = -1;
  beyond[6].smem = info_.smem_per_block + 1;
  beyond[7].cluster.x = 4;  // of 6 blocks
  beyond[8].grid.x = 12;
  beyond[8].cluster.x = 12;
  const Node node = Add(*recording, kernel_);
  for (const KernelLaunch& launch : beyond) {
    kernel_.launch = &launch;
    const absl::Status status = recording->Add(kernel_, Stream{stream_}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_FALSE(Fix(status).empty());
    EXPECT_EQ(captures_->SetNode(exec_, static_cast<GraphNode>(node.handle), kernel_).code(),
              StatusCode::kInvalidArgument);
  }
  kernel_.launch = &launch_;
  launch_.smem = 60000;  // of which the function knows nothing
  EXPECT_EQ(recording->Add(kernel_, Stream{stream_}).status().code(), StatusCode::kInvalidArgument);
  launch_.smem = 0;
  setenv("FAKE_CUDA_BLOCKS", "0", 1);
  EXPECT_EQ(recording->Add(kernel_, Stream{stream_}).status().code(),
            StatusCode::kResourceExhausted);
  unsetenv("FAKE_CUDA_BLOCKS");
  launch_.grid.x = 11;  // one block on each of 10 multiprocessors
  kernel_.attributes.cooperative = true;
  const absl::Status status = recording->Add(kernel_, Stream{stream_}).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(Fix(status)), HasSubstr("at most 10 blocks"));
  EXPECT_STREQ(calls_(), "");
}

TEST_F(RecordingOnFakeDriver, ARefusedUpdateSaysWhy) {
  const auto recording = Open();
  ASSERT_NE(recording, nullptr);
  const auto copy = recording->Copy();
  ASSERT_TRUE(copy.ok()) << copy.status();
  const struct {
    const char* reason;
    const char* text;
  } cases[] = {{"1", "does not give"}, {"2", "other nodes"}, {"3", "other nodes"},
               {"5", "in place"},      {"7", "function"},    {"8", "attributes"}};
  for (const auto& c : cases) {
    setenv("FAKE_CUDA_UPDATE", c.reason, 1);
    const absl::Status status = (*copy)->Update(GraphExec{exec_});
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << c.reason;
    EXPECT_THAT(std::string(What(status)), HasSubstr(c.text)) << c.reason;
    EXPECT_FALSE(Fix(status).empty());
  }
}

TEST_F(RecordingOnFakeDriver, ACopyThatFailsLeavesNothingBehind) {
  const auto recording = Open();
  ASSERT_NE(recording, nullptr);
  Add(*recording, kernel_);
  const struct {
    const char* fails;
    const char* calls;
  } cases[] = {
      {"cuGraphClone 2", "GraphClone"},
      {"cuGraphReleaseUserObject 1", "GraphClone GraphReleaseUserObject GraphDestroy"},
      {"cuGraphNodeFindInClone 1",
       "GraphClone GraphReleaseUserObject GraphNodeFindInClone GraphDestroy"},
  };
  for (const auto& c : cases) {
    setenv("FAKE_CUDA_FAILS", c.fails, 1);
    EXPECT_FALSE(recording->Copy().ok());
    EXPECT_STREQ(calls_(), c.calls);
  }
}

TEST_F(RecordingOnFakeDriver, WhatIsRetainedIsDroppedByCollectAfterItFired) {
  const auto recording = Open();
  ASSERT_NE(recording, nullptr);
  const auto object = std::make_shared<int>(1);
  EXPECT_EQ(recording->Retain(object), absl::OkStatus());
  EXPECT_STREQ(calls_(), "UserObjectCreate GraphRetainUserObject");
  const Node node = Add(*recording, kernel_);
  captures_->Collect();
  EXPECT_EQ(object.use_count(), 2);
  EXPECT_EQ(captures_->SetNode(exec_, static_cast<GraphNode>(node.handle), {}), absl::OkStatus());
  fire_();
  EXPECT_EQ(object.use_count(), 2) << "dropped on a thread of the driver";
  captures_->Collect();
  EXPECT_EQ(object.use_count(), 1);
  EXPECT_EQ(captures_->SetNode(exec_, static_cast<GraphNode>(node.handle), {}).code(),
            StatusCode::kInvalidArgument)
      << "its slots are forgotten with it";
}

TEST_F(RecordingOnFakeDriver, WhatFiresAfterTheDeviceIsLeftAlone) {
  const auto recording = Open();
  ASSERT_NE(recording, nullptr);
  // Not destroyed, and no leak of this test's.
  static int destroyed = 0;
  EXPECT_EQ(
      recording->Retain(std::shared_ptr<const void>(&place_, [](const void*) { ++destroyed; })),
      absl::OkStatus());
  captures_->Close();
  fire_();
  captures_->Collect();
  EXPECT_EQ(destroyed, 0);
}

TEST_F(RecordingOnFakeDriver, TheKernelsOfSlotsStayLoadedForAGraphThatOutlivesTheDevice) {
  for (const bool graph_is_gone : {true, false}) {
    ASSERT_NE(Open(), nullptr);
    if (graph_is_gone) fire_();
    captures_->Close();
    captures_ = std::make_unique<Captures>(driver_, nullptr, info_);
    EXPECT_STREQ(calls_(), graph_is_gone ? "ModuleUnload" : "");
  }
}

TEST_F(RecordingOnFakeDriver, AnObjectThatTheGraphDoesNotTakeIsNotLost) {
  const auto recording = Open();
  ASSERT_NE(recording, nullptr);
  const auto object = std::make_shared<int>(1);
  setenv("FAKE_CUDA_FAILS", "cuUserObjectCreate 2", 1);
  EXPECT_EQ(recording->Retain(object).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(object.use_count(), 1);
  setenv("FAKE_CUDA_FAILS", "cuGraphRetainUserObject 1", 1);
  EXPECT_EQ(recording->Retain(object).code(), StatusCode::kInvalidArgument);
  captures_->Collect();
  EXPECT_EQ(object.use_count(), 1);
}

TEST_F(RecordingOnFakeDriver, AStreamThatDoesNotCaptureHasNoRecording) {
  const auto recording = Open();
  ASSERT_NE(recording, nullptr);
  EXPECT_TRUE(EndCapture(driver_, nullptr, stream_, false).ok());
  calls_();
  const auto none = captures_->RecordingOf(stream_);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(*none, nullptr);
  EXPECT_EQ(recording->Add(kernel_, Stream{stream_}).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(recording->Copy().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(recording->Retain(std::make_shared<int>(1)).code(), StatusCode::kFailedPrecondition);
  EXPECT_STREQ(calls_(), "") << "nothing was launched, cloned or retained";

  ASSERT_EQ(BeginCapture(driver_, nullptr, stream_, CaptureMode::kRelaxed), absl::OkStatus());
  const auto next = Open();
  ASSERT_NE(next, nullptr);
  EXPECT_NE(next->id(), recording->id());
  EXPECT_EQ(recording->Add(kernel_, Stream{stream_}).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(RecordingOnFakeDriver, AnInvalidatedCaptureIsSaidToBeOne) {
  EXPECT_TRUE(EndCapture(driver_, nullptr, stream_, false).ok());
  setenv("FAKE_CUDA_CAPTURE", "2", 1);
  ASSERT_EQ(BeginCapture(driver_, nullptr, stream_, CaptureMode::kRelaxed), absl::OkStatus());
  const absl::Status status = captures_->RecordingOf(stream_).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(What(status)), HasSubstr("invalidated"));
}

TEST(Slots, AHandleThatTheDriverUsesAgainIsTheLaterNode) {
  int place = 0;
  const auto node = reinterpret_cast<GraphNode>(&place);
  Slots slots;
  EXPECT_TRUE(slots.Open(1));
  EXPECT_FALSE(slots.Open(1));
  slots.Add(1, node, {.attributes = {}, .cluster = {}});
  slots.Open(2);
  slots.Add(2, node, {.attributes = {.cooperative = true}, .cluster = {}});
  Slot slot;
  slots.Forget(1);
  ASSERT_TRUE(slots.Find(node, &slot));
  EXPECT_TRUE(slot.attributes.cooperative);
  slots.Forget(2);
  EXPECT_FALSE(slots.Find(node, &slot));
  EXPECT_TRUE(slots.OfCapture(2).empty());
}

}  // namespace
}  // namespace kvr::cuda
