// SPDX-License-Identifier: Apache-2.0
//
// What is captured, by whom, and what a capture survives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "registry/epoch.h"
#include "tests/registry/capture_fixture.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;

class CaptureScopeTest : public ::testing::Test {
 protected:
  CaptureScopeTest() { Open({}); }
  ~CaptureScopeTest() override {
    for (const Stream each : streams) world.device->DestroyStream(each);
  }

  void Open(DispatcherOptions options) {
    dispatcher = world.Dispatch(std::move(options));
    ASSERT_TRUE(dispatcher->Publish(world.Select({{1000, "one"}, {60, "one"}}, 1)).ok());
    ASSERT_TRUE(dispatcher->Load("axpy", {{{"n", 1000}}, {{"n", 60}}})->ready());
    stream = NewStream();
  }
  Stream NewStream(std::string_view pool = {}) {
    streams.push_back(*world.device->CreateStream());
    EXPECT_TRUE(dispatcher->PrepareStream(streams.back(), pool).ok());
    return streams.back();
  }
  absl::Status Launch(const AxpyTensors& on, Stream at) {
    return dispatcher->Launch("axpy", on.views, at);
  }
  absl::Status Launch() { return Launch(tensors, stream); }
  absl::Status Begin(CaptureMode mode = CaptureMode::kThreadLocal) {
    return world.device->BeginCapture(stream, mode);
  }
  std::unique_ptr<CaptureScope> Scope(const CaptureOptions& options = {}) {
    absl::StatusOr<std::unique_ptr<CaptureScope>> scope = dispatcher->OpenCapture(stream, options);
    EXPECT_TRUE(scope.ok()) << scope.status();
    return scope.ok() ? *std::move(scope) : nullptr;
  }
  std::unique_ptr<Graph> End() {
    absl::StatusOr<std::unique_ptr<Graph>> graph = world.device->EndCapture(stream);
    EXPECT_TRUE(graph.ok()) << graph.status();
    return graph.ok() ? *std::move(graph) : nullptr;
  }
  std::string Nodes(const Graph& graph) { return NodesText(*world.device, graph.exec()); }

  World world = StepsWorld({{.name = "base", .baseline = true},
                            {.name = "one", .clears = 1},
                            {.name = "two", .kernels = 2, .clears = 1}});
  std::unique_ptr<Dispatcher> dispatcher;
  std::vector<Stream> streams;
  Stream stream;
  const AxpyTensors tensors{1000}, others{60}, cold{5000};
};

TEST_F(CaptureScopeTest, RecordsEveryLaunchWithItsClearsAndSpareNodes) {
  const uint64_t launches = LaunchCount();
  ASSERT_TRUE(Begin().ok());
  const auto scope = Scope({.spare_nodes = 2});
  EXPECT_TRUE(Launch().ok());
  absl::StatusOr<BoundLaunch> bound = dispatcher->Bind("axpy", others.views);
  ASSERT_TRUE(bound.ok());
  EXPECT_TRUE(bound->Launch(stream).ok());
  const absl::StatusOr<GraphBinding> binding = scope->Finish();
  ASSERT_TRUE(binding.ok()) << binding.status();
  const auto graph = End();
  EXPECT_EQ(Nodes(*graph), "clear one0 - - clear one0 - -");
  EXPECT_EQ(binding->launches(), 2);
  EXPECT_EQ(binding->digest(graph->exec()), dispatcher->generation()->digest());
  EXPECT_EQ(dispatcher->counters().captured, 2u);
  EXPECT_EQ(dispatcher->counters().unscoped, 0u);
  EXPECT_EQ(LaunchCount(), launches + 2);
  EXPECT_TRUE(graph->Launch(stream).ok());
  EXPECT_TRUE(bound->Launch(stream).ok());
}

TEST_F(CaptureScopeTest, AColdKeyIsServedByTheBaselineAndCounted) {
  ASSERT_TRUE(Begin().ok());
  const auto scope = Scope();
  EXPECT_TRUE(Launch(cold, stream).ok());
  EXPECT_TRUE(scope->Finish().ok());
  EXPECT_EQ(Nodes(*End()), "base0");
  EXPECT_EQ(dispatcher->counters().not_loaded, 1u);
  EXPECT_EQ(dispatcher->counters().baseline, 1u);
}

TEST_F(CaptureScopeTest, AColdKeyIsAnErrorByPolicyThatLeavesTheCaptureValid) {
  Open({.miss_policy = MissPolicy::kError});
  ASSERT_TRUE(Begin().ok());
  const auto scope = Scope();
  EXPECT_TRUE(Launch().ok());
  const absl::Status status = Launch(cold, stream);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(What(status)), HasSubstr("key {n=8192} (n=5000) is not loaded"));
  EXPECT_TRUE(Launch(others, stream).ok());
  const absl::StatusOr<GraphBinding> binding = scope->Finish();
  ASSERT_TRUE(binding.ok());
  EXPECT_EQ(binding->launches(), 2);
  EXPECT_EQ(Nodes(*End()), "clear one0 clear one0");
}

TEST_F(CaptureScopeTest, NothingIsLoadedInACaptureEvenByPolicyJit) {
  Open({.miss_policy = MissPolicy::kJit});
  const int compiles = world.compiles;
  ASSERT_TRUE(Begin().ok());
  const auto scope = Scope();
  EXPECT_TRUE(Launch(cold, stream).ok());
  // An application's own mistake; the device refuses, and the capture goes on.
  EXPECT_FALSE(dispatcher->Publish(world.Select({{1000, "two"}}, 2)).ok());
  EXPECT_FALSE(dispatcher->PrepareStream(Stream{&world}).ok());
  EXPECT_TRUE(Launch().ok());
  EXPECT_TRUE(scope->Finish().ok());
  EXPECT_EQ(Nodes(*End()), "base0 clear one0");
  EXPECT_EQ(dispatcher->counters().loaded_in_launch, 0u);
  EXPECT_LE(world.compiles, compiles + 1);  // the refused publication had compiled
  EXPECT_TRUE(Launch(cold, stream).ok());
  EXPECT_EQ(dispatcher->counters().loaded_in_launch, 1u);
}

TEST_F(CaptureScopeTest, WrongTensorsAndHandlesAreErrorsThatLeaveTheCaptureValid) {
  ASSERT_TRUE(Begin().ok());
  const auto scope = Scope();
  EXPECT_TRUE(absl::IsInvalidArgument(dispatcher->Launch("axpy", {}, stream)));
  EXPECT_TRUE(absl::IsInvalidArgument(dispatcher->Launch(OpHandle{7}, tensors.views, stream)));
  alignas(256) static std::byte memory[256];
  EXPECT_TRUE(
      absl::IsInvalidArgument(dispatcher->Launch("axpy", tensors.views, stream, {memory, 16})));
  EXPECT_TRUE(dispatcher->Launch("axpy", tensors.views, stream, {memory, 256}).ok());
  EXPECT_TRUE(scope->Finish().ok());
  EXPECT_EQ(Nodes(*End()), "clear one0");
}

TEST_F(CaptureScopeTest, AStreamOrPoolThatIsNotPreparedIsAnErrorBeforeAnythingIsRecorded) {
  ASSERT_TRUE(Begin().ok());
  const auto scope = Scope({.pool = "decode"});
  const absl::Status status = Launch();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(Fix(status)), HasSubstr("PrepareStream(stream, 'decode')"));
  std::thread([&] { EXPECT_TRUE(dispatcher->PrepareStream(stream, "decode").ok()); }).join();
  EXPECT_TRUE(Launch().ok());
  EXPECT_TRUE(scope->Finish().ok());
  EXPECT_EQ(Nodes(*End()), "clear one0");
}

TEST_F(CaptureScopeTest, PoolsAndStreamsHaveBuffersOfTheirOwnAndGraphsOfOnePoolShare) {
  ASSERT_TRUE(dispatcher->PrepareStream(stream, "other").ok());
  const auto cleared = [&](const std::string& pool) {
    EXPECT_TRUE(Begin().ok());
    const auto scope = Scope({.pool = pool});
    EXPECT_TRUE(Launch().ok());
    EXPECT_TRUE(scope->Finish().ok());
    return (*world.device->NodesOf(End()->exec()))[0].data;
  };
  EXPECT_EQ(cleared(""), cleared(""));
  EXPECT_NE(cleared(""), cleared("other"));
}

TEST_F(CaptureScopeTest, AllLaunchesSeeTheGenerationOfTheOpeningWhateverTheCapturesMode) {
  for (const CaptureMode mode :
       {CaptureMode::kGlobal, CaptureMode::kThreadLocal, CaptureMode::kRelaxed}) {
    ASSERT_TRUE(dispatcher->Publish(world.Select({{1000, "one"}}, 1)).ok());
    ASSERT_TRUE(Begin(mode).ok());
    const auto scope = Scope();
    const Fingerprint opened = dispatcher->generation()->digest();
    EXPECT_TRUE(Launch().ok());
    std::thread([&] {
      const auto report = dispatcher->Publish(world.Select({{1000, "two"}}, 2));
      EXPECT_TRUE(report.ok()) << report.status();
      EXPECT_TRUE(dispatcher->Load("axpy", {{{"n", 7000}}}).ok());
    }).join();
    EXPECT_NE(dispatcher->generation()->digest(), opened);
    EXPECT_TRUE(Launch().ok());
    absl::StatusOr<GraphBinding> binding = scope->Finish();
    ASSERT_TRUE(binding.ok());
    const auto graph = End();
    EXPECT_EQ(Nodes(*graph), "clear one0 clear one0");
    EXPECT_EQ(binding->digest(graph->exec()), opened);
    EXPECT_TRUE(graph->Launch(stream).ok());
    EXPECT_TRUE(Launch().ok());  // eager: the new one
  }
}

TEST_F(CaptureScopeTest, WhatTheApplicationEnqueuesStaysWhereItIs) {
  static char memory[64];
  ASSERT_TRUE(Begin().ok());
  const auto scope = Scope();
  EXPECT_TRUE(world.device->MemsetAsync(memory, 1, 64, stream).ok());
  EXPECT_TRUE(Launch(others, stream).ok());
  EXPECT_TRUE(world.device->MemsetAsync(memory, 2, 64, stream).ok());
  EXPECT_TRUE(Launch().ok());
  EXPECT_TRUE(world.device->MemsetAsync(memory, 3, 64, stream).ok());
  absl::StatusOr<GraphBinding> binding = scope->Finish();
  ASSERT_TRUE(binding.ok());
  const auto graph = End();
  EXPECT_EQ(Nodes(*graph), "clear clear one0 clear clear one0 clear");
  ASSERT_TRUE(dispatcher->Publish(world.Select({{1000, "base"}, {60, "base"}}, 2)).ok());
  EXPECT_EQ(binding->Apply(graph->exec())->outcome, Applied::kApplied);
  EXPECT_EQ(Nodes(*graph), "clear base0 - clear base0 - clear");
  EXPECT_TRUE(graph->Launch(stream).ok());
  EXPECT_EQ(memory[63], 3);
}

TEST_F(CaptureScopeTest, StreamsThatForkAndJoinAreOneCapture) {
  const Stream left = NewStream(), right = NewStream();
  ASSERT_TRUE(Begin().ok());
  const auto scope = Scope();
  EXPECT_TRUE(Launch().ok());
  EXPECT_TRUE(world.device->Wait(left, stream).ok());
  EXPECT_TRUE(world.device->Wait(right, stream).ok());
  EXPECT_TRUE(Launch(others, left).ok());
  EXPECT_TRUE(Launch(tensors, right).ok());
  EXPECT_TRUE(world.device->Wait(stream, left).ok());
  EXPECT_TRUE(world.device->Wait(stream, right).ok());
  EXPECT_TRUE(Launch().ok());
  absl::StatusOr<GraphBinding> binding = scope->Finish();
  ASSERT_TRUE(binding.ok());
  EXPECT_EQ(binding->launches(), 4);
  const auto graph = End();
  const absl::StatusOr<std::vector<NullNode>> nodes = world.device->NodesOf(graph->exec());
  EXPECT_NE((*nodes)[0].data, (*nodes)[2].data);  // beside each other
  EXPECT_EQ((*nodes)[0].data, (*nodes)[6].data);
  ASSERT_TRUE(dispatcher->Publish(world.Select({{1000, "base"}, {60, "one"}}, 2)).ok());
  EXPECT_EQ(binding->Apply(graph->exec())->nodes, 6);
  EXPECT_EQ(Nodes(*graph), "base0 - clear one0 base0 - base0 -");
}

TEST_F(CaptureScopeTest, TwoCapturesAtOnceKeepApart) {
  const Stream second = NewStream();
  ASSERT_TRUE(Begin(CaptureMode::kRelaxed).ok());
  ASSERT_TRUE(world.device->BeginCapture(second, CaptureMode::kRelaxed).ok());
  const auto scope = Scope();
  absl::StatusOr<std::unique_ptr<CaptureScope>> other = dispatcher->OpenCapture(second, {});
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(Launch().ok());
  EXPECT_TRUE(Launch(others, second).ok());
  EXPECT_TRUE(Launch(others, second).ok());
  absl::StatusOr<GraphBinding> a = scope->Finish(), b = (*other)->Finish();
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->launches(), 1);
  EXPECT_EQ(b->launches(), 2);
  const auto graph = End();
  const auto second_graph = world.device->EndCapture(second);
  ASSERT_TRUE(dispatcher->Publish(world.Select({{1000, "base"}, {60, "base"}}, 2)).ok());
  EXPECT_EQ(a->Apply(graph->exec())->outcome, Applied::kApplied);
  EXPECT_EQ(Nodes(*graph), "base0 -");
  EXPECT_EQ(Nodes(**second_graph), "clear one0 clear one0");
  EXPECT_EQ(b->Apply((*second_graph)->exec())->outcome, Applied::kApplied);
  EXPECT_EQ(Nodes(**second_graph), "base0 - base0 -");
}

TEST_F(CaptureScopeTest, AnAbortedCaptureLeavesNothingBehind) {
  const int64_t bytes = world.device->counters().bytes_allocated;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Begin().ok());
    const auto scope = Scope();
    EXPECT_TRUE(Launch().ok());
    world.device->Invalidate(stream);
    EXPECT_TRUE(absl::IsFailedPrecondition(Launch()));
    EXPECT_TRUE(absl::IsFailedPrecondition(scope->Finish().status()));
    EXPECT_FALSE(world.device->EndCapture(stream).ok());
    EXPECT_TRUE(absl::IsFailedPrecondition(scope->Finish().status()));
    EXPECT_TRUE(Launch().ok());
  }
  ASSERT_TRUE(dispatcher->Publish(world.Select({}, 2)).ok());
  for (int i = 0; i < 2 * Dispatcher::kKeptGenerations; ++i) {
    ASSERT_TRUE(dispatcher->Publish(world.Select({{int64_t{1} << i, "base"}}, 3 + i)).ok());
  }
  dispatcher->Collect();
  EXPECT_EQ(world.device->counters().modules, 1);  // the baseline's
  EXPECT_EQ(world.device->counters().bytes_allocated, bytes);
}

TEST_F(CaptureScopeTest, ModulesAreUnloadedDuringACaptureButNotTheOnesItUses) {
  ASSERT_TRUE(dispatcher->Publish(world.Select({{1000, "two"}}, 1)).ok());
  ASSERT_TRUE(Begin().ok());
  std::optional<GraphBinding> dropped;
  {
    const auto scope = Scope();
    EXPECT_TRUE(Launch().ok());
    dropped.emplace(*scope->Finish());
  }
  End().reset();
  ASSERT_TRUE(dispatcher->Publish(world.Select({{1000, "one"}}, 2)).ok());
  ASSERT_TRUE(Begin(CaptureMode::kGlobal).ok());
  const auto scope = Scope();
  EXPECT_TRUE(Launch().ok());
  std::thread([&] {
    for (int i = 0; i <= Dispatcher::kKeptGenerations; ++i) {
      EXPECT_TRUE(dispatcher->Publish(world.Select({{int64_t{1} << i, "base"}}, 3 + i)).ok());
    }
    dispatcher->Collect();
  }).join();
  EXPECT_EQ(world.device->counters().modules, 2);  // the baseline's, and what this capture has
  EXPECT_TRUE(Launch().ok());
  EXPECT_TRUE(scope->Finish().ok());
  const auto graph = End();
  EXPECT_EQ(Nodes(*graph), "clear one0 clear one0");
  EXPECT_TRUE(graph->Launch(stream).ok());
}

TEST_F(CaptureScopeTest, ALaunchOutsideAScopeIsFixedAndNeverUnloaded) {
  ASSERT_TRUE(Begin().ok());
  EXPECT_TRUE(Launch().ok());
  const auto graph = End();
  EXPECT_EQ(Nodes(*graph), "clear one0");
  EXPECT_EQ(dispatcher->counters().captured, 0u);
  EXPECT_EQ(dispatcher->counters().unscoped, 1u);
  for (int i = 0; i < 2 * Dispatcher::kKeptGenerations; ++i) {
    ASSERT_TRUE(dispatcher->Publish(world.Select({{int64_t{1} << i, "base"}}, 3 + i)).ok());
  }
  dispatcher->Collect();
  EXPECT_EQ(world.device->counters().modules, 2);
  EXPECT_TRUE(graph->Launch(stream).ok());
}

TEST_F(CaptureScopeTest, AScopeThatIsDestroyedWithoutFinishLeavesItsLaunches) {
  ASSERT_TRUE(Begin().ok());
  {
    const auto scope = Scope();
    EXPECT_TRUE(Launch().ok());
  }
  EXPECT_TRUE(Launch().ok());  // outside it
  const auto again = Scope();  // another may follow
  EXPECT_TRUE(Launch().ok());
  absl::StatusOr<GraphBinding> binding = again->Finish();
  ASSERT_TRUE(binding.ok());
  EXPECT_EQ(binding->launches(), 1);
  auto graph = End();
  EXPECT_EQ(dispatcher->counters().captured, 2u);
  EXPECT_EQ(dispatcher->counters().unscoped, 1u);
  ASSERT_TRUE(dispatcher->Publish(world.Select({{1000, "base"}}, 2)).ok());
  EXPECT_EQ(binding->Apply(graph->exec())->outcome, Applied::kApplied);
  EXPECT_EQ(Nodes(*graph), "clear one0 clear one0 base0 -");
  EXPECT_TRUE(graph->Launch(stream).ok());
}

TEST_F(CaptureScopeTest, AScopeIsOpenedAndFinishedOnceAndInACapture) {
  EXPECT_TRUE(absl::IsFailedPrecondition(dispatcher->OpenCapture(stream, {}).status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(dispatcher->OpenCapture(stream, {.spare_nodes = -1}).status()));
  ASSERT_TRUE(Begin().ok());
  const auto scope = Scope();
  EXPECT_TRUE(absl::IsFailedPrecondition(dispatcher->OpenCapture(stream, {}).status()));
  EXPECT_TRUE(Launch().ok());
  const absl::StatusOr<GraphBinding> binding = scope->Finish();
  EXPECT_TRUE(binding.ok());
  EXPECT_THAT(std::string(What(scope->Finish().status())), HasSubstr("before"));
  EXPECT_TRUE(absl::IsFailedPrecondition(dispatcher->OpenCapture(stream, {}).status()));
  const auto graph = End();

  ASSERT_TRUE(Begin().ok());
  const auto late = Scope();
  EXPECT_TRUE(Launch().ok());
  const auto other = End();
  EXPECT_THAT(std::string(What(late->Finish().status())), HasSubstr("ended"));
  ASSERT_TRUE(Begin().ok());  // another capture of the same stream
  EXPECT_THAT(std::string(What(late->Finish().status())), HasSubstr("ended"));
  EXPECT_TRUE(Launch().ok());
  EXPECT_EQ(dispatcher->counters().unscoped, 1u);
  EXPECT_NE(End(), nullptr);
}

TEST_F(CaptureScopeTest, ALaunchAfterFinishIsRecordedAndNotLost) {
  for (const bool keeps_graph : {false, true}) {
    ASSERT_TRUE(dispatcher->Publish(world.Select({{1000, "one"}}, 1)).ok());
    ASSERT_TRUE(Begin().ok());
    std::optional<GraphBinding> binding;
    {
      const auto scope = Scope({.keeps_graph = keeps_graph});
      EXPECT_TRUE(Launch().ok());
      binding.emplace(*scope->Finish());
    }
    EXPECT_TRUE(Launch().ok());
    const auto graph = *world.device->EndCapture(stream, keeps_graph);
    EXPECT_EQ(Nodes(*graph), "clear one0 clear one0");
    EXPECT_EQ(binding->Apply(graph->exec())->outcome, Applied::kUnchanged);
    ASSERT_TRUE(dispatcher->Publish(world.Select({{1000, "base"}}, 2)).ok());
    const absl::StatusOr<Applied> applied = binding->Apply(graph->exec());
    ASSERT_TRUE(applied.ok());
    EXPECT_EQ(applied->outcome, Applied::kNeedsRecapture);
    EXPECT_THAT(applied->reason, HasSubstr("axpy was launched after Finish()"));
    EXPECT_EQ(Nodes(*graph), "clear one0 clear one0");
    EXPECT_TRUE(graph->Launch(stream).ok());
  }
}

TEST_F(CaptureScopeTest, NodesOfTheApplicationAfterFinishNeedARecapture) {
  static char memory[64];
  ASSERT_TRUE(Begin().ok());
  const auto scope = Scope();
  EXPECT_TRUE(Launch().ok());
  absl::StatusOr<GraphBinding> binding = scope->Finish();
  EXPECT_TRUE(world.device->MemsetAsync(memory, 1, 64, stream).ok());
  const auto graph = End();
  ASSERT_TRUE(dispatcher->Publish(world.Select({{1000, "base"}}, 2)).ok());
  const absl::StatusOr<Applied> applied = binding->Apply(graph->exec());
  ASSERT_TRUE(applied.ok()) << applied.status();
  EXPECT_EQ(applied->outcome, Applied::kNeedsRecapture);
  EXPECT_THAT(applied->reason, HasSubstr("other nodes"));
  EXPECT_EQ(Nodes(*graph), "clear one0 clear");
  EXPECT_EQ(dispatcher->counters().recaptures, 1u);
  EXPECT_EQ(dispatcher->counters().applied, 0u);
}

TEST_F(CaptureScopeTest, AFrozenRegistryCapturesWhatIsLoaded) {
  dispatcher->Freeze();
  ASSERT_TRUE(Begin().ok());
  const auto scope = Scope();
  EXPECT_TRUE(Launch().ok());
  EXPECT_TRUE(Launch(cold, stream).ok());
  EXPECT_TRUE(scope->Finish().ok());
  EXPECT_EQ(Nodes(*End()), "clear one0 base0");
}

TEST_F(CaptureScopeTest, AnEmptyBatchRecordsItsSpareNodesAlone) {
  ASSERT_TRUE(dispatcher->Load("axpy", {{{"n", 0}}}).ok());
  const AxpyTensors none(0);
  ASSERT_TRUE(Begin().ok());
  const auto scope = Scope({.spare_nodes = 1});
  EXPECT_TRUE(Launch(none, stream).ok());
  EXPECT_TRUE(Launch().ok());
  EXPECT_TRUE(scope->Finish().ok());
  EXPECT_EQ(Nodes(*End()), "- clear one0 -");
}

}  // namespace
}  // namespace kvr
