// SPDX-License-Identifier: Apache-2.0
//
// Bringing executables to other generations: what can be set in place, what cannot, and that it is
// all or nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "registry/launch_work.h"
#include "tests/registry/capture_fixture.h"

namespace kvr {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr LaunchAttributes kPlain{};
constexpr LaunchAttributes kProgrammatic{.programmatic = true};
constexpr LaunchAttributes kCooperative{.cooperative = true};

// Both ways of setting nodes.
class BindingTest : public ::testing::TestWithParam<bool> {
 protected:
  BindingTest() {
    EXPECT_TRUE(dispatcher.Load("axpy", {{{"n", 1000}}, {{"n", 60}}})->ready());
    EXPECT_TRUE(dispatcher.PrepareStream(stream).ok());
  }
  ~BindingTest() override { world.device->DestroyStream(stream); }

  // Each name serves n = 1000; n = 60 is served by the second.
  Fingerprint Publish(const std::string& name, const std::string& other = "base") {
    const GenerationPtr next = world.Select({{1000, name}, {60, other}}, ++number);
    const absl::StatusOr<LoadReport> report = dispatcher.Publish(next);
    EXPECT_TRUE(report.ok()) << report.status();
    return next->digest();
  }
  // n = 1000, then n = 60.
  Captured Capture(CaptureOptions options = {}) {
    options.keeps_graph = GetParam();
    EXPECT_TRUE(device.BeginCapture(stream, CaptureMode::kThreadLocal).ok());
    const auto scope = dispatcher.OpenCapture(stream, options);
    EXPECT_TRUE(scope.ok()) << scope.status();
    EXPECT_TRUE(dispatcher.Launch("axpy", tensors.views, stream).ok());
    EXPECT_TRUE(dispatcher.Launch("axpy", others.views, stream).ok());
    absl::StatusOr<GraphBinding> binding = (*scope)->Finish();
    EXPECT_TRUE(binding.ok()) << binding.status();
    Captured captured;
    captured.binding = std::make_unique<GraphBinding>(*std::move(binding));
    captured.graph = *device.EndCapture(stream, GetParam());
    return captured;
  }
  Applied Apply(Captured& captured) {
    const absl::StatusOr<Applied> applied = captured.binding->Apply(captured.exec());
    EXPECT_TRUE(applied.ok()) << applied.status();
    return applied.value_or(Applied{});
  }
  std::string Nodes(const Captured& captured) {
    EXPECT_TRUE(captured.graph->Launch(stream).ok());
    return NodesText(*world.device, captured.exec());
  }
  std::string ReasonOf(const std::string& from, const std::string& to, int spare = 0) {
    Publish(from);
    Captured captured = Capture({.spare_nodes = spare});
    const std::string before = Nodes(captured);
    Publish(to);
    const Applied applied = Apply(captured);
    EXPECT_EQ(applied.outcome, Applied::kNeedsRecapture);
    EXPECT_EQ(Nodes(captured), before);
    EXPECT_EQ(applied.digest, captured.binding->digest(captured.exec()));
    return applied.reason;
  }

  World world = StepsWorld(
      {{.name = "base", .baseline = true},
       {.name = "one"},
       {.name = "clearing", .kernels = 1, .clears = 2},
       {.name = "two", .kernels = 2},
       {.name = "cluster", .cluster = 2},
       {.name = "large", .workspace = 100'000},
       {.name = "chain", .kernels = 2, .attributes = {kPlain, kProgrammatic}},
       {.name = "clear_chain", .kernels = 2, .clears = 1, .attributes = {kPlain, kProgrammatic}},
       {.name = "cooperative", .attributes = {kCooperative}},
       {.name = "odd", .constraint = "mod(n, 2) == 1"}});
  SteppedDevice device{*world.device};
  Dispatcher dispatcher{world.catalog, device, *world.jit, {}};
  const Stream stream = *world.device->CreateStream();
  const AxpyTensors tensors{1000}, others{60};
  int64_t number = 0;
};
INSTANTIATE_TEST_SUITE_P(Ways, BindingTest, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "NodeByNode" : "WholeGraph"; });

TEST_P(BindingTest, UnchangedIsSaidWithoutSettingAnything) {
  const Fingerprint digest = Publish("one");
  Captured captured = Capture();
  device.on_set_node = [] { return absl::InternalError("set"); };
  EXPECT_EQ(Apply(captured).outcome, Applied::kUnchanged);
  ASSERT_TRUE(dispatcher.Load("axpy", {{{"n", 9}}})->ready());  // another version
  const Applied applied = Apply(captured);
  EXPECT_EQ(applied.outcome, Applied::kUnchanged);
  EXPECT_EQ(applied.digest, digest);
  EXPECT_EQ(dispatcher.counters().applied, 0u);
}

TEST_P(BindingTest, OnlyLaunchesThatChangeAreSet) {
  Publish("one", "two");
  Captured captured = Capture();
  EXPECT_EQ(Nodes(captured), "one0 two0 two1");
  const Fingerprint next = Publish("base", "two");
  EXPECT_NE(captured.binding->digest(captured.exec()), next);
  const Applied applied = Apply(captured);
  EXPECT_EQ(applied.outcome, Applied::kApplied);
  EXPECT_EQ(applied.nodes, 1);
  EXPECT_EQ(applied.whole_graph, !GetParam());
  EXPECT_EQ(applied.digest, next);
  EXPECT_GT(applied.microseconds, 0);
  EXPECT_EQ(captured.binding->digest(captured.exec()), next);
  EXPECT_EQ(Nodes(captured), "base0 two0 two1");
  EXPECT_EQ(dispatcher.counters().applied, 1u);
}

TEST_P(BindingTest, FewerKernelsAndClearsLeaveNodesThatDoNothing) {
  Publish("clearing", "two");
  Captured captured = Capture();
  EXPECT_EQ(Nodes(captured), "clear clear clearing0 two0 two1");
  Publish("one", "base");
  EXPECT_EQ(Apply(captured).nodes, 5);
  EXPECT_EQ(Nodes(captured), "one0 - - base0 -");
  Publish("clearing", "two");
  EXPECT_EQ(Apply(captured).nodes, 5);
  EXPECT_EQ(Nodes(captured), "clear clear clearing0 two0 two1");
}

TEST_P(BindingTest, MoreKernelsTakeSpareNodesOrNeedARecapture) {
  EXPECT_THAT(ReasonOf("one", "two"),
              AllOf(HasSubstr("axpy {n=1024}: one -> two {BLOCK=64,CTAS=1024}: it launches and "
                              "clears 2 times where 1 node"),
                    HasSubstr("spare_nodes = 1")));
  EXPECT_THAT(ReasonOf("one", "clearing", 1), HasSubstr("spare_nodes = 2"));
  EXPECT_EQ(dispatcher.counters().recaptures, 2u);
  Publish("one");
  Captured captured = Capture({.spare_nodes = 2});
  EXPECT_EQ(Nodes(captured), "one0 - - base0 - -");
  Publish("clearing", "two");
  EXPECT_EQ(Apply(captured).outcome, Applied::kApplied);
  EXPECT_EQ(Nodes(captured), "clear clear clearing0 two0 two1 -");
}

TEST_P(BindingTest, AProgrammaticOrCooperativeLaunchMeetsItsLikeOrNeedsARecapture) {
  EXPECT_THAT(ReasonOf("two", "chain"), HasSubstr("it needs a programmatic launch where none"));
  EXPECT_THAT(ReasonOf("chain", "two"), HasSubstr("it lacks a programmatic launch"));
  EXPECT_THAT(ReasonOf("chain", "one"), HasSubstr("it lacks a programmatic launch"));
  EXPECT_THAT(ReasonOf("one", "cooperative"), HasSubstr("it needs a cooperative launch"));
  EXPECT_THAT(ReasonOf("cooperative", "chain"), HasSubstr("cooperative launch was captured"));
  // A spare node follows the launch, so it is no help before its programmatic kernel.
  EXPECT_THAT(ReasonOf("chain", "clear_chain", 3), HasSubstr("2 times where 1 node"));
  Publish("clear_chain");
  Captured captured = Capture();
  EXPECT_EQ(Nodes(captured), "clear clear_chain0 clear_chain1 base0");
  Publish("chain");
  EXPECT_EQ(Apply(captured).outcome, Applied::kApplied);
  EXPECT_EQ(Nodes(captured), "- chain0 chain1 base0");
}

TEST_P(BindingTest, OtherClusterDimensionsGoThroughTheWholeGraph) {
  Publish("one");
  Captured captured = Capture();
  Publish("cluster");
  EXPECT_TRUE(Apply(captured).whole_graph);
  EXPECT_EQ(Nodes(captured), "cluster0 base0");
  EXPECT_EQ((*world.device->NodesOf(captured.exec()))[0].launch.cluster.x, 2u);
  Publish("base");
  EXPECT_TRUE(Apply(captured).whole_graph);
  EXPECT_EQ((*world.device->NodesOf(captured.exec()))[0].launch.cluster.x, 1u);
  Publish("two", "one");
  EXPECT_EQ(Apply(captured).outcome, Applied::kNeedsRecapture);
  Publish("one", "one");
  EXPECT_EQ(Apply(captured).whole_graph, !GetParam());
  EXPECT_EQ(Nodes(captured), "one0 one0");
}

TEST_P(BindingTest, ALargerWorkspaceIsTheOneThatThePublicationMade) {
  Publish("clearing");
  Captured captured = Capture();
  const Captured untouched = Capture();
  void* const before = (*world.device->NodesOf(captured.exec()))[0].data;
  Publish("large");
  EXPECT_EQ(Apply(captured).outcome, Applied::kApplied);
  EXPECT_EQ(Nodes(captured), "large0 - - base0");
  Publish("clearing");
  EXPECT_EQ(Apply(captured).outcome, Applied::kApplied);
  EXPECT_NE((*world.device->NodesOf(captured.exec()))[0].data, before);
  // What another graph uses is still there.
  dispatcher.Collect();
  EXPECT_EQ((*world.device->NodesOf(untouched.exec()))[0].data, before);
  EXPECT_EQ(Nodes(untouched), "clear clear clearing0 base0");
}

TEST_P(BindingTest, TheCallersWorkspaceIsKeptAndMustDo) {
  Publish("clearing", "base");
  alignas(256) static std::byte memory[1024];
  ASSERT_TRUE(device.BeginCapture(stream, CaptureMode::kThreadLocal).ok());
  const auto scope = dispatcher.OpenCapture(stream, {.keeps_graph = GetParam()});
  ASSERT_TRUE(dispatcher.Launch("axpy", tensors.views, stream, {memory, 1024}).ok());
  absl::StatusOr<GraphBinding> binding = (*scope)->Finish();
  const auto graph = *device.EndCapture(stream, GetParam());
  EXPECT_EQ((*world.device->NodesOf(graph->exec()))[0].data, memory);
  Publish("one");
  EXPECT_EQ(binding->Apply(graph->exec())->outcome, Applied::kApplied);
  Publish("clearing", "base");
  EXPECT_EQ(binding->Apply(graph->exec())->outcome, Applied::kApplied);
  EXPECT_EQ((*world.device->NodesOf(graph->exec()))[0].data, memory);
  Publish("large");
  EXPECT_THAT(binding->Apply(graph->exec())->reason, HasSubstr("the caller's has 1024"));
}

TEST_P(BindingTest, ScalarsAreThoseOfTheLaunch) {
  Publish("one");
  Captured captured;
  {
    AxpyTensors own(1000);
    own.alpha = 3;
    ASSERT_TRUE(device.BeginCapture(stream, CaptureMode::kThreadLocal).ok());
    const auto scope = dispatcher.OpenCapture(stream, {.keeps_graph = GetParam()});
    ASSERT_TRUE(dispatcher.Launch("axpy", own.views, stream).ok());
    captured.binding = std::make_unique<GraphBinding>(*(*scope)->Finish());
    captured.graph = *device.EndCapture(stream, GetParam());
    own.alpha = 4;
  }
  Publish("base");  // the caller's scalar is gone: AddressSanitizer tells who reads it
  EXPECT_EQ(Apply(captured).outcome, Applied::kApplied);
  EXPECT_EQ(Nodes(captured), "base0");
}

TEST_P(BindingTest, GenerationsAreAppliedByDigest) {
  const Fingerprint one = Publish("one"), two = Publish("clearing");
  Captured captured = Capture();
  const Fingerprint three = Publish("base", "one");
  const auto apply = [&](const Fingerprint& digest) {
    return captured.binding->Apply(captured.exec(), digest);
  };
  EXPECT_EQ(apply(two)->outcome, Applied::kUnchanged);
  EXPECT_EQ(apply(one)->outcome, Applied::kApplied);
  EXPECT_EQ(Nodes(captured), "one0 - - base0");
  EXPECT_EQ(apply(one)->outcome, Applied::kUnchanged);
  EXPECT_EQ(apply(three)->digest, three);
  EXPECT_EQ(Nodes(captured), "base0 - - one0");
  EXPECT_EQ(Apply(captured).outcome, Applied::kUnchanged);
  const Fingerprint zero = dispatcher.history().back()->digest();
  EXPECT_EQ(apply(zero)->digest, zero);
  EXPECT_EQ(Nodes(captured), "base0 - - base0");
  const absl::Status unknown = apply(FingerprintOf("nothing")).status();
  EXPECT_TRUE(absl::IsNotFound(unknown)) << unknown;
  EXPECT_EQ(captured.binding->digest(captured.exec()), zero);
  EXPECT_EQ(apply(two)->outcome, Applied::kApplied);
  EXPECT_EQ(Nodes(captured), "clear clear clearing0 base0");
}

TEST_P(BindingTest, RollingBackIsAnotherGenerationToApply) {
  const Fingerprint one = Publish("one");
  Captured captured = Capture();
  Publish("base");
  Apply(captured);
  ASSERT_TRUE(dispatcher.Rollback("").ok());
  EXPECT_EQ(Apply(captured).digest, one);
  EXPECT_EQ(Nodes(captured), "one0 base0");
}

TEST_P(BindingTest, AConfigThatDoesNotFitTheseAxesIsServedByTheBaseline) {
  Publish("one");
  Captured captured = Capture();
  Publish("odd");
  EXPECT_EQ(Apply(captured).outcome, Applied::kApplied);
  EXPECT_EQ(Nodes(captured), "base0 base0");
  EXPECT_EQ(dispatcher.counters().not_fitting, 1u);
}

TEST_P(BindingTest, NoExecutableIsAnError) {
  Publish("one");
  Captured captured = Capture();
  Publish("base");
  EXPECT_TRUE(absl::IsInvalidArgument(captured.binding->Apply({}).status()));
  Captured other = Capture();
  EXPECT_FALSE(captured.binding->Apply({&world}).ok());
  captured.graph.reset();
  dispatcher.Collect();
  const absl::Status gone = captured.binding->Apply(other.exec()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(gone)) << gone;
}

// A plan of one kernel and two clears is set, then one of two kernels; every failure in between is
// tried.
TEST(BindingFailure, InTheMiddleOfAPatchRestoresWhatWas) {
  World world = StepsWorld({{.name = "base", .baseline = true},
                            {.name = "clearing", .kernels = 1, .clears = 2},
                            {.name = "two", .kernels = 2}});
  SteppedDevice device(*world.device);
  Dispatcher dispatcher(world.catalog, device, *world.jit, {});
  ASSERT_TRUE(dispatcher.Publish(world.Select({{1000, "clearing"}}, 1)).ok());
  ASSERT_TRUE(dispatcher.Load("axpy", {{{"n", 1000}}})->ready());
  const Stream stream = *device.CreateStream();
  ASSERT_TRUE(dispatcher.PrepareStream(stream).ok());
  ASSERT_TRUE(device.BeginCapture(stream, CaptureMode::kThreadLocal).ok());
  const auto scope = dispatcher.OpenCapture(stream, {.keeps_graph = true});
  const AxpyTensors tensors(1000);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(dispatcher.Launch("axpy", tensors.views, stream).ok());
  }
  absl::StatusOr<GraphBinding> binding = (*scope)->Finish();
  const auto graph = *device.EndCapture(stream, true);
  const GraphExec exec = graph->exec();
  const std::string before = NodesText(*world.device, exec);
  const Fingerprint digest = binding->digest(exec);
  ASSERT_TRUE(dispatcher.Publish(world.Select({{1000, "two"}}, 2)).ok());

  int call = 0, fails_from = 0, fails_until = 0;
  device.on_set_node = [&]() -> absl::Status {
    ++call;
    return call >= fails_from && call < fails_until ? absl::InternalError("node refused")
                                                    : absl::OkStatus();
  };
  for (fails_from = 1; fails_from <= 9; ++fails_from) {
    call = 0;
    fails_until = fails_from + 1;
    const absl::Status status = binding->Apply(exec).status();
    EXPECT_EQ(What(status), "node refused");
    EXPECT_EQ(NodesText(*world.device, exec), before) << fails_from;
    EXPECT_EQ(binding->digest(exec), digest);
    EXPECT_TRUE(graph->Launch(stream).ok());
  }
  EXPECT_EQ(dispatcher.counters().applied, 0u);

  // And where even that fails, it is said, and the next Apply sets everything.
  call = 0;
  fails_from = 5;
  fails_until = 1000;
  const absl::Status status = binding->Apply(exec).status();
  EXPECT_THAT(std::string(What(status)), HasSubstr("mixes two generations"));
  EXPECT_EQ(binding->digest(exec), Fingerprint{});
  dispatcher.Collect();
  EXPECT_TRUE(graph->Launch(stream).ok());  // whatever it runs is there
  fails_until = 0;
  const absl::StatusOr<Applied> applied = binding->Apply(exec);
  ASSERT_TRUE(applied.ok()) << applied.status();
  EXPECT_EQ(applied->outcome, Applied::kApplied);
  EXPECT_EQ(applied->nodes, 9);
  EXPECT_EQ(NodesText(*world.device, exec), "two0 two1 - two0 two1 - two0 two1 -");
  world.device->DestroyStream(stream);
}

// Random slots and work: what is assigned keeps its order and its attributes, and only plain slots
// do nothing; where nothing is, there is none.
TEST(AssignSlots, FindsAnAssignmentWhereThereIsOne) {
  std::mt19937 random(3);
  const LaunchAttributes kinds[] = {kPlain, kPlain, kProgrammatic, kCooperative};
  int found = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<Slot> slots(random() % 6);
    std::vector<NodeWork> items(random() % 5);
    for (Slot& slot : slots) slot.attributes = kinds[random() % 4];
    for (NodeWork& item : items) item.attributes = kinds[random() % 4];
    // All subsets of slots that are as large as `items`.
    bool exists = false;
    for (unsigned subset = 0; subset < 1u << slots.size(); ++subset) {
      size_t next = 0;
      bool fits = true;
      for (size_t i = 0; i < slots.size(); ++i) {
        const bool used = (subset >> i & 1) != 0;
        if (used && next < items.size()) {
          fits = fits && items[next].attributes == slots[i].attributes;
        }
        if (!used) fits = fits && slots[i].attributes == kPlain;
        next += used;
      }
      exists = exists || (fits && next == items.size());
    }
    const absl::StatusOr<SlotWork> assigned = AssignSlots(slots, items, 0);
    ASSERT_EQ(assigned.ok(), exists) << assigned.status();
    if (!assigned.ok()) continue;
    ++found;
    int next = 0;
    for (size_t i = 0; i < slots.size(); ++i) {
      const int item = (*assigned)[i];
      if (item < 0) {
        ASSERT_EQ(slots[i].attributes, kPlain);
        continue;
      }
      ASSERT_EQ(item, next++);
      ASSERT_EQ(items[static_cast<size_t>(item)].attributes, slots[i].attributes);
    }
    ASSERT_EQ(next, static_cast<int>(items.size()));
  }
  EXPECT_GT(found, 1000);
}

}  // namespace
}  // namespace kvr
