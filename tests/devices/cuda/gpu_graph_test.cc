// SPDX-License-Identifier: Apache-2.0
//
// Graphs whose slots are given other work, on a real driver: what it takes and what it refuses.
#include "tests/devices/cuda/gpu_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/status.h"

namespace kvr {
namespace {

using absl::StatusCode;
using testing::Each;
using testing::HasSubstr;

TEST_F(GpuGraph, SlotsTakeEachWorkNodeByNodeInEachModeOfCapture) {
  for (const CaptureMode mode : kModes) {
    const auto recording = Begin(mode);
    ASSERT_NE(recording, nullptr);
    const Node node = Add(*recording, Kernel(mark_, 2, out_, {7}));
    const auto graph = End(/*keep_graph=*/true);
    ASSERT_NE(graph, nullptr);
    TryEachWork(*graph,
                [&](const NodeWork& work) { return device_->SetNode(graph->exec(), node, work); });
  }
}

TEST_F(GpuGraph, SlotsTakeEachWorkByACopyAfterTheGraphWasDestroyed) {
  for (const CaptureMode mode : kModes) {
    const auto recording = Begin(mode);
    ASSERT_NE(recording, nullptr);
    const Node node = Add(*recording, Kernel(mark_, 2, out_, {7}));
    const auto copy = Copy(*recording);
    const auto graph = End();
    ASSERT_TRUE(graph != nullptr && copy != nullptr);
    TryEachWork(*graph, [&](const NodeWork& work) {
      KVR_RETURN_IF_ERROR(copy->Set(node, work));
      return copy->Update(graph->exec());
    });
  }
}

TEST_F(GpuGraph, WorkThatIsNoKernelIsRecordedAsASlot) {
  const auto recording = Begin();
  ASSERT_NE(recording, nullptr);
  const Node spare = Add(*recording, NodeWork{});
  const Node clear = Add(*recording, Clear(out_, 8));
  const auto graph = End(/*keep_graph=*/true);
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(Replay(*graph, 3), (std::vector<uint32_t>{0, 0, 0xffffffff}));
  EXPECT_EQ(device_->SetNode(graph->exec(), spare, Kernel(mark_, 3, out_, {5})), absl::OkStatus());
  EXPECT_EQ(Replay(*graph, 3), (std::vector<uint32_t>{0, 0, 5}));
  EXPECT_EQ(device_->SetNode(graph->exec(), clear, NodeWork{}), absl::OkStatus());
  EXPECT_EQ(Replay(*graph, 3), (std::vector<uint32_t>{5, 5, 5}));
}

TEST_F(GpuGraph, ClearingReachesAllOfALargeRegionAndNothingBeyond) {
  constexpr int64_t kBytes = (37 << 20) + 13, kAll = kBytes + 64;
  const auto memory = device_->Allocate(kAll);
  ASSERT_TRUE(memory.ok()) << memory.status();
  std::vector<uint8_t> host(kAll);
  for (const LaunchAttributes attributes :
       {LaunchAttributes{}, LaunchAttributes{.cooperative = true, .programmatic = false}}) {
    ASSERT_EQ(device_->MemsetAsync(*memory, 0xab, kAll, stream_), absl::OkStatus());
    const auto recording = Begin();
    ASSERT_NE(recording, nullptr);
    NodeWork clear = Clear(*memory, kBytes);
    clear.attributes = attributes;
    Add(*recording, clear);
    const auto graph = End();
    ASSERT_NE(graph, nullptr);
    EXPECT_EQ(graph->Launch(stream_), absl::OkStatus());
    ASSERT_EQ(device_->CopyToHost(host.data(), *memory, kAll, stream_), absl::OkStatus());
    ASSERT_EQ(device_->Synchronize(stream_), absl::OkStatus());
    EXPECT_EQ(std::count(host.begin(), host.begin() + kBytes, 0), kBytes);
    EXPECT_EQ(std::count(host.begin() + kBytes, host.end(), 0xab), kAll - kBytes);
  }
  device_->Free(*memory);
}

TEST_F(GpuGraph, ClustersChangeByCopyAndNotNodeByNode) {
  const auto recording = Begin();
  ASSERT_NE(recording, nullptr);
  const Node node = Add(*recording, Kernel(cluster_size_, 8, out_).Cluster(2));
  const auto copy = Copy(*recording);
  const auto graph = End(/*keep_graph=*/true);
  ASSERT_TRUE(graph != nullptr && copy != nullptr);
  EXPECT_THAT(Replay(*graph, 8), Each(2u));
  EXPECT_EQ(device_->SetNode(graph->exec(), node, Kernel(cluster_size_, 8, out_).Cluster(4)).code(),
            StatusCode::kUnimplemented);
  EXPECT_EQ(device_->SetNode(graph->exec(), node, NodeWork{}), absl::OkStatus());
  EXPECT_THAT(Replay(*graph, 8), Each(0xffffffffu));
  EXPECT_EQ(device_->SetNode(graph->exec(), node, Clear(out_, 12)), absl::OkStatus());
  EXPECT_EQ(Replay(*graph, 4), (std::vector<uint32_t>{0, 0, 0, 0xffffffff}));
  // A grid that is no multiple of the cluster is refused and changes nothing.
  EXPECT_EQ(device_->SetNode(graph->exec(), node, Kernel(cluster_size_, 3, out_).Cluster(2)).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Replay(*graph, 4), (std::vector<uint32_t>{0, 0, 0, 0xffffffff}));

  const auto most = static_cast<uint32_t>(device_->info().max_cluster_size);
  for (const uint32_t cluster : {4u, 1u, 2u, 5u, most, 1u}) {
    EXPECT_EQ(copy->Set(node, Kernel(cluster_size_, cluster, out_).Cluster(cluster)),
              absl::OkStatus());
    EXPECT_EQ(copy->Update(graph->exec()), absl::OkStatus());
    EXPECT_THAT(Replay(*graph, static_cast<int>(cluster)), Each(cluster));
    EXPECT_EQ(copy->Set(node, NodeWork{}), absl::OkStatus());
    EXPECT_EQ(copy->Update(graph->exec()), absl::OkStatus());
    EXPECT_THAT(Replay(*graph, 16), Each(0xffffffffu)) << cluster;
  }
  EXPECT_FALSE(copy->Set(node, Kernel(cluster_size_, 3, out_).Cluster(2)).ok());
  EXPECT_EQ(copy->Set(node, Kernel(cluster_size_, 4, out_).Cluster(2)), absl::OkStatus());
  EXPECT_EQ(copy->Update(graph->exec()), absl::OkStatus());
  EXPECT_THAT(Replay(*graph, 4), Each(2u));
}

TEST_F(GpuGraph, ANodeAfterTheCopyFailsTheUpdateAndTheExecutableRunsOn) {
  const auto recording = Begin();
  ASSERT_NE(recording, nullptr);
  auto object = std::make_shared<int>(1);
  const std::weak_ptr<const void> watched = object;
  EXPECT_EQ(recording->Retain(std::move(object)), absl::OkStatus());
  const Node node = Add(*recording, Kernel(mark_, 2, out_, {7}));
  const auto copy = Copy(*recording);
  ASSERT_NE(copy, nullptr);
  const Node late = Add(*recording, Kernel(mark_, 1, out_, {8}));
  auto graph = End();
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(copy->Set(late, NodeWork{}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(copy->Set(node, NodeWork{}), absl::OkStatus());
  const absl::Status status = copy->Update(graph->exec());
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(What(status)), HasSubstr("other nodes"));
  EXPECT_EQ(Replay(*graph, 3), (std::vector<uint32_t>{8, 7, 0xffffffff}));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  device_->Collect();
  EXPECT_FALSE(watched.expired()) << "the executable keeps this, too";
  graph.reset();
  EXPECT_TRUE(Dropped(watched));
  EXPECT_EQ(copy->Update({}).code(), StatusCode::kFailedPrecondition);
}

TEST_F(GpuGraph, ALaunchThatCannotBeIsRefusedAndTheCaptureGoesOn) {
  for (const CaptureMode mode : kModes) {
    const auto recording = Begin(mode);
    ASSERT_NE(recording, nullptr);
    const Node node = Add(*recording, Kernel(mark_, 1, out_, {7}));
    const Kernel no_blocks(mark_, 0, out_, {1}), many(mark_, 1 << 20, out_, {1});
    std::vector<KernelLaunch> launches(4);
    launches[0].block.x = 2048;
    launches[1].smem = 1 << 20;
    launches[2].smem = 100 << 10;  // more than the function was opted in to
    launches[3].grid.x = 3;
    launches[3].cluster.x = 2;
    std::vector<NodeWork> wrong(launches.size() + 1, many);
    for (size_t i = 0; i < launches.size(); ++i) wrong[i].launch = &launches[i];
    wrong.back().attributes.cooperative = true;
    wrong.push_back(no_blocks);
    for (const NodeWork& work : wrong) {
      const absl::Status status = recording->Add(work, stream_).status();
      EXPECT_FALSE(status.ok());
      EXPECT_FALSE(Fix(status).empty()) << status;
    }
    const auto graph = End(/*keep_graph=*/true);
    ASSERT_NE(graph, nullptr);
    for (const NodeWork& work : wrong) {
      EXPECT_FALSE(device_->SetNode(graph->exec(), node, work).ok());
    }
    EXPECT_EQ(Replay(*graph, 2), (std::vector<uint32_t>{7, 0xffffffff}));
  }
}

// A replay that runs keeps what it had.
TEST_F(GpuGraph, EditsDoNotReachAReplayInFlight) {
  const auto recording = Begin();
  ASSERT_NE(recording, nullptr);
  Add(*recording, Kernel(spin_, 1, static_cast<uint32_t*>(out_) + 8, {1, 20000}));
  const Node node = Add(*recording, Kernel(mark_, 1, out_, {1}));
  const auto copy = Copy(*recording);
  const auto graph = End(/*keep_graph=*/true);
  ASSERT_TRUE(graph != nullptr && copy != nullptr);
  EXPECT_EQ(graph->Launch(stream_), absl::OkStatus());
  EXPECT_EQ(device_->SetNode(graph->exec(), node, Kernel(mark_, 1, out_, {2})), absl::OkStatus());
  EXPECT_EQ(Out(1)[0], 1u);
  EXPECT_EQ(graph->Launch(stream_), absl::OkStatus());
  EXPECT_EQ(copy->Set(node, Kernel(mark_, 1, out_, {3})), absl::OkStatus());
  EXPECT_EQ(copy->Update(graph->exec()), absl::OkStatus());
  EXPECT_EQ(Out(1)[0], 2u);
  EXPECT_EQ(Replay(*graph, 1)[0], 3u);
}

TEST_F(GpuGraph, SlotsOnProgrammaticEdgesKeepTheOrderWhateverTheyDo) {
  const LaunchAttributes programmatic{.cooperative = false, .programmatic = true};
  const auto recording = Begin();
  ASSERT_NE(recording, nullptr);
  ASSERT_EQ(recording->Add(Kernel(spin_, 1, out_, {40, 3000}), stream_).status(), absl::OkStatus());
  const Node node = Add(*recording, Kernel(increment_, 1, out_).With(programmatic));
  Add(*recording, Kernel(increment_, 1, out_));
  const auto copy = Copy(*recording);
  const auto graph = End(/*keep_graph=*/true);
  ASSERT_TRUE(graph != nullptr && copy != nullptr);
  EXPECT_EQ(Replay(*graph, 1)[0], 42u);
  // The last kernel has a full edge from the slot alone: the slot has to wait for the first.
  EXPECT_EQ(device_->SetNode(graph->exec(), node, NodeWork{}), absl::OkStatus());
  EXPECT_EQ(Replay(*graph, 1)[0], 41u);
  EXPECT_EQ(device_->SetNode(graph->exec(), node, Clear(out_, 4)), absl::OkStatus());
  EXPECT_EQ(Replay(*graph, 1)[0], 1u);
  EXPECT_EQ(copy->Set(node, NodeWork{}), absl::OkStatus());
  EXPECT_EQ(copy->Update(graph->exec()), absl::OkStatus());
  EXPECT_EQ(Replay(*graph, 1)[0], 41u);
  EXPECT_EQ(copy->Set(node, Kernel(increment_, 1, out_).With(programmatic)), absl::OkStatus());
  EXPECT_EQ(copy->Update(graph->exec()), absl::OkStatus());
  EXPECT_EQ(Replay(*graph, 1)[0], 42u);

  for (const LaunchAttributes other :
       {LaunchAttributes{}, LaunchAttributes{.cooperative = true, .programmatic = false}}) {
    const Kernel kernel(increment_, 1, out_);
    NodeWork work = kernel;
    work.attributes = other;
    EXPECT_EQ(device_->SetNode(graph->exec(), node, work).code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(copy->Set(node, work).code(), StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(Replay(*graph, 1)[0], 42u);
}

TEST_F(GpuGraph, StreamsThatJoinRecordIntoTheSameGraph) {
  const auto other = device_->CreateStream();
  ASSERT_TRUE(other.ok()) << other.status();
  for (const CaptureMode mode : kModes) {
    const auto recording = Begin(mode);
    ASSERT_NE(recording, nullptr);
    const auto none = device_->RecordingOf(*other);
    EXPECT_TRUE(none.ok() && *none == nullptr);
    // What the driver would answer by breaking the capture.
    EXPECT_EQ(device_->Wait(stream_, *other).code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(device_->Wait({}, stream_).code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(recording->Add(NodeWork{}, *other).status().code(), StatusCode::kFailedPrecondition);

    const Node first = Add(*recording, Kernel(mark_, 1, out_, {1}));
    EXPECT_EQ(device_->Wait(*other, stream_), absl::OkStatus());
    const auto joined = device_->RecordingOf(*other);
    ASSERT_TRUE(joined.ok() && *joined != nullptr) << joined.status();
    EXPECT_EQ((*joined)->id(), recording->id());
    void* const second_word = static_cast<uint32_t*>(out_) + 1;
    const auto second = (*joined)->Add(Kernel(mark_, 1, second_word, {2}), *other);
    ASSERT_TRUE(second.ok()) << second.status();
    Add(*recording, Kernel(mark_, 1, static_cast<uint32_t*>(out_) + 2, {3}));
    EXPECT_EQ(device_->Wait(stream_, *other), absl::OkStatus());
    Add(*recording, NodeWork{});  // depends on both
    const auto copy = Copy(*recording);
    const auto graph = End(/*keep_graph=*/true);
    ASSERT_TRUE(graph != nullptr && copy != nullptr);
    EXPECT_EQ(Replay(*graph, 3), (std::vector<uint32_t>{1, 2, 3}));
    EXPECT_EQ(device_->SetNode(graph->exec(), *second, Kernel(mark_, 1, second_word, {5})),
              absl::OkStatus());
    EXPECT_EQ(Replay(*graph, 3), (std::vector<uint32_t>{1, 5, 3}));
    EXPECT_EQ(copy->Set(first, Kernel(mark_, 1, out_, {6})), absl::OkStatus());
    EXPECT_EQ(copy->Update(graph->exec()), absl::OkStatus());
    EXPECT_EQ(Replay(*graph, 3), (std::vector<uint32_t>{6, 2, 3}));
  }
  // A stream that has not come back.
  const auto recording = Begin();
  ASSERT_NE(recording, nullptr);
  EXPECT_EQ(device_->Wait(*other, stream_), absl::OkStatus());
  EXPECT_TRUE(recording->Add(NodeWork{}, *other).ok());
  const absl::Status status = device_->EndCapture(stream_, false).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(Fix(status)), HasSubstr("joined"));
  EXPECT_EQ(device_->Synchronize(stream_), absl::OkStatus());
  device_->DestroyStream(*other);
}

TEST_F(GpuGraph, TenThousandEditsEachRunWhatTheySay) {
  const auto recording = Begin();
  ASSERT_NE(recording, nullptr);
  std::vector<Node> nodes;
  for (uint32_t i = 0; i < 20; ++i) {
    nodes.push_back(Add(*recording, Kernel(mark_, 1, static_cast<uint32_t*>(out_) + i, {i})));
  }
  const auto copy = Copy(*recording);
  const auto graph = End(/*keep_graph=*/true);
  ASSERT_TRUE(graph != nullptr && copy != nullptr);
  std::map<std::string, double> us;
  const auto timed = [&](const char* name, const auto& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    us[name] +=
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  };
  constexpr int kRounds = 250;
  for (uint32_t round = 0; round < kRounds; ++round) {
    const Kernel a(sum_of_, 1, out_, {round, 1, 2}), b(mark_, 1, out_, {round});
    timed("SetNode, 20 nodes", [&] {
      for (const Node node : nodes) {
        ASSERT_EQ(device_->SetNode(graph->exec(), node, a), absl::OkStatus());
      }
    });
    ASSERT_EQ(graph->Launch(stream_), absl::OkStatus());
    ASSERT_EQ(Out(1)[0], round + 3);
    timed("GraphCopy::Set, 20 nodes", [&] {
      for (const Node node : nodes) ASSERT_EQ(copy->Set(node, b), absl::OkStatus());
    });
    timed("GraphCopy::Update", [&] { ASSERT_EQ(copy->Update(graph->exec()), absl::OkStatus()); });
    ASSERT_EQ(graph->Launch(stream_), absl::OkStatus());
    ASSERT_EQ(Out(1)[0], round);
  }
  for (const auto& [name, total] : us) {
    std::cout << name << ": " << total / kRounds << " us" << std::endl;
  }
}

}  // namespace
}  // namespace kvr
