// SPDX-License-Identifier: Apache-2.0
//
// Slots: what a recorded node does, and how executables are given other work.
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/status.h"
#include "tests/conformance/devices/device_conformance.h"
#include "tests/conformance/devices/device_tools.h"
#include "tests/conformance/devices/sums.h"

namespace kvr {
namespace {

using absl::StatusCode;

constexpr int kN = Sums::kN;
constexpr int64_t kBytes = Sums::kBytes;

NodeWork Nothing() { return {}; }

NodeWork Clearing(void* data, int64_t bytes) {
  NodeWork work;
  work.kind = NodeWork::Kind::kClear;
  work.data = data;
  work.bytes = bytes;
  return work;
}

// A kernel's work with the arguments that it points at. One use: they are gone after it.
class Adding {
 public:
  explicit Adding(const Sums& sums, int n = kN)
      : Adding(sums, sums.sum.data(), n, sums.add.function()) {}
  Adding(const Sums& sums, void* out, int n, Function function)
      : launch_(Add::Shape(kN)), a_(out), b_(sums.step.data()), out_(out), n_(n) {
    work_.kind = NodeWork::Kind::kKernel;
    work_.function = function;
    work_.launch = &launch_;
    work_.params = params_;
  }
  ~Adding() {  // a device that reads them later will notice
    launch_ = {};
    a_ = b_ = out_ = nullptr;
    n_ = 1 << 30;
  }
  Adding(const Adding&) = delete;
  Adding& operator=(const Adding&) = delete;

  operator const NodeWork&() const { return work_; }  // NOLINT(google-explicit-constructor)
  NodeWork& work() { return work_; }
  KernelLaunch& launch() { return launch_; }

 private:
  NodeWork work_;
  KernelLaunch launch_;
  const void *a_, *b_;
  void* out_;
  int n_;
  void* params_[4] = {&a_, &b_, &out_, &n_};
};

// A stream in a capture, its recording, and what becomes of them.
class Recorder {
 public:
  explicit Recorder(Sums& sums) : sums_(sums) {
    EXPECT_EQ(sums.device->BeginCapture(sums.stream, CaptureMode::kThreadLocal), absl::OkStatus());
    auto recording = sums.device->RecordingOf(sums.stream);
    EXPECT_TRUE(recording.ok()) << recording.status();
    if (recording.ok()) recording_ = *std::move(recording);
    EXPECT_NE(recording_, nullptr);
  }
  Node Slot(const NodeWork& work) {
    const auto node = recording_->Add(work, sums_.stream);
    EXPECT_TRUE(node.ok()) << node.status();
    return node.ok() ? *node : Node{};
  }
  std::unique_ptr<GraphCopy> Copy() {
    auto copy = recording_->Copy();
    EXPECT_TRUE(copy.ok()) << copy.status();
    return copy.ok() ? *std::move(copy) : nullptr;
  }
  std::unique_ptr<Graph> End(bool keep_graph = false) {
    recording_.reset();
    auto graph = sums_.device->EndCapture(sums_.stream, keep_graph);
    EXPECT_TRUE(graph.ok()) << graph.status();
    return graph.ok() ? *std::move(graph) : nullptr;
  }
  Recording& recording() { return *recording_; }

 private:
  Sums& sums_;
  std::unique_ptr<Recording> recording_;
};

TEST_P(DeviceConformance, GraphsSlotsDoWhatTheyWereRecordedWith) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  const Memory other(device_.get(), kBytes);
  Recorder recorder(sums);
  recorder.Slot(Adding(sums));
  recorder.Slot(Nothing());
  recorder.Slot(Clearing(other.data(), 1001));
  recorder.Slot(Clearing(other.data(), 0));
  recorder.Slot(Adding(sums));
  const auto graph = recorder.End();
  ASSERT_NE(graph, nullptr);
  sums.ExpectSteps(0);
  sums.ExpectAdds(*graph, 6, 3);
  sums.ExpectClears(*graph, other, kBytes, 1001);
}

TEST_P(DeviceConformance, GraphsSlotsKeepTheirPlaceInTheOrderOfTheStream) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  Recorder recorder(sums);
  ASSERT_EQ(sums.AddStep(), absl::OkStatus());
  recorder.Slot(Clearing(sums.sum.data(), kBytes));
  ASSERT_EQ(sums.AddStep(), absl::OkStatus());
  recorder.Slot(Adding(sums));
  ASSERT_EQ(sums.AddStep(), absl::OkStatus());
  const auto graph = recorder.End();
  ASSERT_NE(graph, nullptr);
  sums.ExpectAdds(*graph, 3, 20);
}

TEST_P(DeviceConformance, GraphsSetNodeGivesASlotOtherWork) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  Add second(device_.get(), GetParam());  // a module of its own
  ASSERT_NE(second.module(), nullptr);
  const auto store = second.module()->Get("store", 0);
  ASSERT_TRUE(store.ok()) << store.status();
  Recorder recorder(sums);
  const Node node = recorder.Slot(Adding(sums));
  ASSERT_EQ(sums.AddStep(), absl::OkStatus());
  const auto graph = recorder.End(/*keep_graph=*/true);
  ASSERT_NE(graph, nullptr);
  sums.ExpectAdds(*graph, 2);

  ASSERT_EQ(device_->SetNode(graph->exec(), node, Nothing()), absl::OkStatus());
  sums.ExpectAdds(*graph, 1);
  ASSERT_EQ(device_->SetNode(graph->exec(), node, Clearing(sums.sum.data(), kBytes)),
            absl::OkStatus());
  sums.ExpectAdds(*graph, 1, 5);
  // Another module's function, with other parameters, their number too, and another shape.
  Memory flag(device_.get(), 8);
  ASSERT_EQ(device_->MemsetAsync(flag.data(), 0, 8, sums.stream), absl::OkStatus());
  {
    void* where = flag.data();
    void* params[] = {&where};
    const KernelLaunch one;
    NodeWork work;
    work.kind = NodeWork::Kind::kKernel;
    work.function = *store;
    work.launch = &one;
    work.params = params;
    ASSERT_EQ(device_->SetNode(graph->exec(), node, work), absl::OkStatus());
    where = nullptr;
  }
  sums.ExpectAdds(*graph, 1);
  const auto stored = Download<uint32_t>(device_.get(), flag.data(), 2, sums.stream);
  EXPECT_EQ(stored[0], sums.runs_kernels ? 1u : 0u);
  EXPECT_EQ(stored[1], 0u);
  ASSERT_EQ(
      device_->SetNode(graph->exec(), node, Adding(sums, sums.sum.data(), kN, second.function())),
      absl::OkStatus());
  sums.ExpectAdds(*graph, 2);
}

TEST_P(DeviceConformance, GraphsSetNodeOfAGraphThatWasNotKeptIsAnError) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  if (!GetParam().finds_dangling) GTEST_SKIP() << "the node is gone, and nobody notices";
  Recorder recorder(sums);
  const Node node = recorder.Slot(Adding(sums));
  const auto graph = recorder.End();
  ASSERT_NE(graph, nullptr);
  const absl::Status status = device_->SetNode(graph->exec(), node, Nothing());
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  sums.ExpectAdds(*graph, 1);
}

TEST_P(DeviceConformance, GraphsACopyEditsExecutablesWhoseGraphIsGone) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  Add second(device_.get(), GetParam());
  ASSERT_NE(second.function().handle, nullptr);
  const Memory other(device_.get(), kBytes);
  Recorder recorder(sums);
  const Node first = recorder.Slot(Adding(sums));
  ASSERT_EQ(device_->MemsetAsync(other.data(), 0, 100, sums.stream), absl::OkStatus());
  ASSERT_EQ(sums.AddStep(), absl::OkStatus());
  const Node last = recorder.Slot(Nothing());
  const auto copy = recorder.Copy();
  ASSERT_NE(copy, nullptr);
  const auto graph = recorder.End();
  ASSERT_NE(graph, nullptr);
  ASSERT_EQ(copy->Update(graph->exec()), absl::OkStatus());  // nothing changed
  sums.ExpectAdds(*graph, 2);

  ASSERT_EQ(copy->Set(last, Adding(sums, sums.sum.data(), kN, second.function())),
            absl::OkStatus());
  sums.ExpectAdds(*graph, 2);  // not before Update
  ASSERT_EQ(copy->Update(graph->exec()), absl::OkStatus());
  sums.ExpectAdds(*graph, 3);
  sums.ExpectClears(*graph, other, kBytes, 100);  // what is no slot goes on

  ASSERT_EQ(copy->Set(first, Nothing()), absl::OkStatus());
  ASSERT_EQ(copy->Set(last, Clearing(sums.sum.data(), kBytes)), absl::OkStatus());
  ASSERT_EQ(copy->Update(graph->exec()), absl::OkStatus());
  sums.ExpectAdds(*graph, 0);
  ASSERT_EQ(copy->Set(first, Adding(sums)), absl::OkStatus());
  ASSERT_EQ(copy->Set(last, Nothing()), absl::OkStatus());
  ASSERT_EQ(copy->Update(graph->exec()), absl::OkStatus());
  sums.ExpectAdds(*graph, 2);
}

TEST_P(DeviceConformance, GraphsACopyOutlivesTheGraph) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  Recorder recorder(sums);
  const Node node = recorder.Slot(Adding(sums));
  const auto copy = recorder.Copy();
  auto graph = recorder.End();
  ASSERT_TRUE(copy != nullptr && graph != nullptr);
  graph.reset();
  EXPECT_EQ(copy->Set(node, Nothing()), absl::OkStatus());
  sums.ExpectUsable();
}

TEST_P(DeviceConformance, GraphsUpdateRefusesNodesRecordedAfterTheCopyAndChangesNothing) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  Recorder recorder(sums);
  const Node node = recorder.Slot(Adding(sums));
  const auto copy = recorder.Copy();
  ASSERT_EQ(sums.AddStep(), absl::OkStatus());
  const auto graph = recorder.End();
  ASSERT_TRUE(copy != nullptr && graph != nullptr);
  ASSERT_EQ(copy->Set(node, Nothing()), absl::OkStatus());
  const absl::Status status = copy->Update(graph->exec());
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  EXPECT_FALSE(Fix(status).empty());
  sums.ExpectAdds(*graph, 2);
}

TEST_P(DeviceConformance, GraphsUpdateRefusesTheExecutableOfAnotherGraph) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  Recorder one(sums);
  one.Slot(Adding(sums));
  const auto copy = one.Copy();
  const auto own = one.End();
  Recorder two(sums);
  two.Slot(Nothing());
  two.Slot(Adding(sums));
  two.Slot(Adding(sums));
  const auto other = two.End();
  ASSERT_TRUE(copy != nullptr && own != nullptr && other != nullptr);
  const absl::Status status = copy->Update(other->exec());
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  sums.ExpectAdds(*other, 2);
  sums.ExpectAdds(*own, 1);
}

TEST_P(DeviceConformance, GraphsNodesOfAnotherGraphAreRefused) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  Recorder one(sums);
  const Node foreign = one.Slot(Adding(sums));
  const auto first = one.End(/*keep_graph=*/true);
  Recorder two(sums);
  two.Slot(Adding(sums));
  const auto copy = two.Copy();
  const auto second = two.End(/*keep_graph=*/true);
  ASSERT_TRUE(first != nullptr && second != nullptr && copy != nullptr);
  EXPECT_FALSE(device_->SetNode(second->exec(), foreign, Nothing()).ok());
  EXPECT_FALSE(copy->Set(foreign, Nothing()).ok());
  EXPECT_FALSE(device_->SetNode(second->exec(), Node{}, Nothing()).ok());
  EXPECT_FALSE(copy->Set(Node{}, Nothing()).ok());
  sums.ExpectAdds(*first, 1);
  sums.ExpectAdds(*second, 1);
}

TEST_P(DeviceConformance, GraphsLaunchAttributesOfASlotStay) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  Recorder recorder(sums);
  const Node node = recorder.Slot(Adding(sums));
  const auto copy = recorder.Copy();
  const auto graph = recorder.End(/*keep_graph=*/true);
  ASSERT_TRUE(copy != nullptr && graph != nullptr);
  for (const LaunchAttributes attributes :
       {LaunchAttributes{.cooperative = true}, LaunchAttributes{.programmatic = true}}) {
    Adding other(sums, /*n=*/1);
    other.work().attributes = attributes;
    absl::Status status = device_->SetNode(graph->exec(), node, other);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    EXPECT_FALSE(Fix(status).empty());
    status = copy->Set(node, other);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  }
  ASSERT_EQ(copy->Update(graph->exec()), absl::OkStatus());
  sums.ExpectAdds(*graph, 1);
}

TEST_P(DeviceConformance, GraphsClusterDimensionsChangeThroughACopyAlone) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  if (device_->info().max_cluster_size < 2) GTEST_SKIP() << "no clusters";
  Recorder recorder(sums);
  const Node node = recorder.Slot(Adding(sums));
  const auto copy = recorder.Copy();
  const auto graph = recorder.End(/*keep_graph=*/true);
  ASSERT_TRUE(copy != nullptr && graph != nullptr);
  Adding clustered(sums);
  clustered.launch().grid.x = 8;
  clustered.launch().cluster.x = 2;
  const absl::Status status = device_->SetNode(graph->exec(), node, clustered);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << status;
  sums.ExpectAdds(*graph, 1);
  ASSERT_EQ(copy->Set(node, clustered), absl::OkStatus());
  ASSERT_EQ(copy->Update(graph->exec()), absl::OkStatus());
  sums.ExpectAdds(*graph, 1);
  ASSERT_EQ(copy->Set(node, Nothing()), absl::OkStatus());
  ASSERT_EQ(copy->Update(graph->exec()), absl::OkStatus());
  sums.ExpectAdds(*graph, 0);
  ASSERT_EQ(copy->Set(node, Adding(sums)), absl::OkStatus());
  ASSERT_EQ(copy->Update(graph->exec()), absl::OkStatus());
  sums.ExpectAdds(*graph, 1);
}

TEST_P(DeviceConformance, GraphsWorkThatIsNotWholeIsRefusedAndTheRecordingGoesOn) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  Adding no_function(sums), no_launch(sums), impossible(sums);
  no_function.work().function = {};
  no_launch.work().launch = nullptr;
  impossible.launch().block.x = 4096;
  const NodeWork wrong[] = {no_function,
                            no_launch,
                            impossible,
                            Clearing(sums.sum.data(), -1),
                            Clearing(sums.sum.data() + 4, 4),
                            Clearing(nullptr, 4)};
  Recorder recorder(sums);
  for (const NodeWork& work : wrong) {
    const absl::Status status = recorder.recording().Add(work, sums.stream).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
  }
  const Node node = recorder.Slot(Adding(sums));
  const auto graph = recorder.End(/*keep_graph=*/true);
  ASSERT_NE(graph, nullptr);
  sums.ExpectAdds(*graph, 1);
  for (const NodeWork& work : wrong) {
    const absl::Status status = device_->SetNode(graph->exec(), node, work);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
  }
  sums.ExpectAdds(*graph, 1);
}

TEST_P(DeviceConformance, GraphsAReplayInFlightFinishesWithWhatItHad) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  constexpr int64_t kDelay = 64 << 20;
  const Memory delay(device_.get(), kDelay);
  Recorder recorder(sums);
  const Node node = recorder.Slot(Adding(sums));
  const auto copy = recorder.Copy();
  const auto graph = recorder.End(/*keep_graph=*/true);
  ASSERT_TRUE(copy != nullptr && graph != nullptr);
  ASSERT_EQ(sums.Clear(), absl::OkStatus());
  for (int round = 0; round < 4; ++round) {
    ASSERT_EQ(device_->MemsetAsync(delay.data(), 1, kDelay, sums.stream), absl::OkStatus());
    ASSERT_EQ(graph->Launch(sums.stream), absl::OkStatus());  // adds
    if (round % 2 == 0) {
      ASSERT_EQ(device_->SetNode(graph->exec(), node, Nothing()), absl::OkStatus());
    } else {
      ASSERT_EQ(copy->Set(node, Nothing()), absl::OkStatus());
      ASSERT_EQ(copy->Update(graph->exec()), absl::OkStatus());
    }
    ASSERT_EQ(graph->Launch(sums.stream), absl::OkStatus());  // does not
    ASSERT_EQ(device_->SetNode(graph->exec(), node, Adding(sums)), absl::OkStatus());
  }
  sums.ExpectSteps(4);
}

TEST_P(DeviceConformance, GraphsEditsBesideCapturesOfOtherThreadsDisturbNobody) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  Recorder recorder(sums);
  const Node node = recorder.Slot(Adding(sums));
  const auto copy = recorder.Copy();
  const auto graph = recorder.End(/*keep_graph=*/true);
  ASSERT_TRUE(copy != nullptr && graph != nullptr);
  const OwnStream other(device_.get());
  for (const CaptureMode mode :
       {CaptureMode::kGlobal, CaptureMode::kThreadLocal, CaptureMode::kRelaxed}) {
    ASSERT_EQ(device_->BeginCapture(other, mode), absl::OkStatus());
    ASSERT_EQ(sums.add(sums.sum.data(), sums.step.data(), sums.sum.data(), kN, other),
              absl::OkStatus());
    std::thread([&] {
      EXPECT_EQ(device_->SetNode(graph->exec(), node, Nothing()), absl::OkStatus());
      sums.ExpectAdds(*graph, 0);
      EXPECT_EQ(copy->Update(graph->exec()), absl::OkStatus());
      sums.ExpectAdds(*graph, 1);
      const Add loaded(device_.get(), GetParam());
      EXPECT_NE(loaded.module(), nullptr);
      const Memory memory(device_.get(), 4096);
      device_->Collect();
    }).join();
    const auto captured = device_->EndCapture(other);
    ASSERT_TRUE(captured.ok()) << captured.status();
    sums.ExpectAdds(**captured, 1);
  }
}

}  // namespace

}  // namespace kvr
