// SPDX-License-Identifier: Apache-2.0
//
// Who keeps what: a graph keeps what it and its executables run as long as they live, and nothing
// else; nothing grows with the number of swaps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/registry/capture_fixture.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;

class BindingLifetimeTest : public ::testing::Test {
 protected:
  explicit BindingLifetimeTest(
      const std::vector<Steps>& steps = {{.name = "base", .baseline = true},
                                         {.name = "one", .clears = 1},
                                         {.name = "two", .kernels = 2},
                                         {.name = "large", .workspace = 5000}})
      : world(StepsWorld(steps)) {
    EXPECT_TRUE(dispatcher->Load("axpy", {{{"n", 1000}}, {{"n", 60}}})->ready());
    EXPECT_TRUE(dispatcher->PrepareStream(stream).ok());
  }
  ~BindingLifetimeTest() override { world.device->DestroyStream(stream); }

  Fingerprint Publish(const std::vector<std::pair<int64_t, std::string>>& selections) {
    const GenerationPtr next = world.Select(selections, ++number);
    const absl::StatusOr<LoadReport> report = dispatcher->Publish(next);
    EXPECT_TRUE(report.ok()) << report.status();
    return next->digest();
  }
  // Everything that serves now leaves the history.
  void PushOut() {
    for (int i = 0; i <= Dispatcher::kKeptGenerations; ++i) {
      Publish({{int64_t{1} << (13 + i), "base"}, {1000, "base"}});
    }
    dispatcher->Collect();
  }
  int64_t Modules() const { return world.device->counters().modules; }
  int64_t Bytes() const { return world.device->counters().bytes_allocated; }

  // Launches n = 1000.
  Captured Capture(const CaptureOptions& options = {.spare_nodes = 1, .keeps_graph = true}) {
    EXPECT_TRUE(world.device->BeginCapture(stream, CaptureMode::kThreadLocal).ok());
    const auto scope = dispatcher->OpenCapture(stream, options);
    EXPECT_TRUE(dispatcher->Launch("axpy", tensors.views, stream).ok());
    Captured captured;
    captured.binding = std::make_unique<GraphBinding>(*(*scope)->Finish());
    captured.graph = *world.device->EndCapture(stream, options.keeps_graph);
    return captured;
  }

  World world;
  std::unique_ptr<Dispatcher> dispatcher = world.Dispatch();
  const Stream stream = *world.device->CreateStream();
  const AxpyTensors tensors{1000}, others{60};
  int64_t number = 0;
};

TEST_F(BindingLifetimeTest, WhatWasCapturedIsHeldUntilTheGraphIsGone) {
  Publish({{1000, "one"}});
  for (const bool with_binding : {true, false}) {
    Publish({{1000, "one"}, {2, "base"}});
    Captured captured = Capture();
    if (!with_binding) captured.binding.reset();
    PushOut();
    EXPECT_EQ(Modules(), 2);  // and the baseline's
    EXPECT_TRUE(captured.graph->Launch(stream).ok());
    captured.graph.reset();
    dispatcher->Collect();
    EXPECT_EQ(Modules(), 1);
  }
}

TEST_F(BindingLifetimeTest, WhatIsAppliedIsHeldUntilAnotherIsOrTheGraphIsGone) {
  Publish({{1000, "base"}});
  Captured captured = Capture();
  Publish({{1000, "one"}});
  ASSERT_EQ(captured.binding->Apply(captured.exec())->outcome, Applied::kApplied);
  PushOut();
  EXPECT_EQ(Modules(), 2);
  EXPECT_TRUE(captured.graph->Launch(stream).ok());
  ASSERT_EQ(captured.binding->Apply(captured.exec())->outcome, Applied::kApplied);
  EXPECT_EQ(Modules(), 2);  // not on the way of Apply
  dispatcher->Collect();
  EXPECT_EQ(Modules(), 1);
  Publish({{1000, "two"}});
  ASSERT_EQ(captured.binding->Apply(captured.exec())->outcome, Applied::kApplied);
  captured.binding.reset();
  PushOut();
  EXPECT_EQ(Modules(), 2);
  EXPECT_TRUE(captured.graph->Launch(stream).ok());
  captured.graph.reset();
  dispatcher->Collect();
  EXPECT_EQ(Modules(), 1);
}

TEST_F(BindingLifetimeTest, ForgettingAnExecutableLetsGoOfWhatItRan) {
  Publish({{1000, "base"}});
  Captured captured = Capture();
  const Fingerprint digest = captured.binding->digest(captured.exec());
  Publish({{1000, "one"}});
  ASSERT_EQ(captured.binding->Apply(captured.exec())->outcome, Applied::kApplied);
  captured.binding->Forget(captured.exec());
  EXPECT_EQ(captured.binding->digest(captured.exec()), digest);
  PushOut();
  EXPECT_EQ(Modules(), 1);
}

TEST_F(BindingLifetimeTest, AnOutgrownWorkspaceLivesAsLongAsAGraphThatUsesIt) {
  Publish({{1000, "one"}});
  const int64_t small = Bytes();
  Captured captured = Capture();
  Publish({{1000, "large"}});
  const int64_t both = Bytes();
  EXPECT_GT(both, 2 * 8192);
  dispatcher->Collect();
  EXPECT_EQ(Bytes(), 2 * 8192 + small / 2);  // the captured one; no eager launch has the other
  EXPECT_TRUE(captured.graph->Launch(stream).ok());  // writes it: AddressSanitizer looks
  captured.graph.reset();
  dispatcher->Collect();
  EXPECT_EQ(Bytes(), 2 * 8192);
}

TEST_F(BindingLifetimeTest, NothingGrowsOverTenThousandSwapsAndApplies) {
  for (const bool keeps_graph : {true, false}) {
    Publish({{1000, "two"}});
    Captured captured = Capture({.spare_nodes = 2, .keeps_graph = keeps_graph});
    const char* const names[] = {"base", "one", "two", "large"};
    int64_t modules = 0, bytes = 0;
    for (int i = 0; i < 10'000; ++i) {
      // Never the same generation: 6 * 4 * 4 others stand between two that are.
      Publish({{1000, names[i % 4]}, {int64_t{1} << (11 + i / 4 % 24), names[i / 96 % 4]}});
      const absl::StatusOr<Applied> applied = captured.binding->Apply(captured.exec());
      ASSERT_TRUE(applied.ok()) << applied.status();
      ASSERT_EQ(applied->outcome, Applied::kApplied) << applied->reason;
      if (i % 97 == 0) {
        ASSERT_TRUE(captured.graph->Launch(stream).ok());
      }
      if (i == 1000) modules = Modules(), bytes = Bytes();
      if (i > 1000 && i % 500 == 0) {
        ASSERT_LE(Modules(), modules);
        ASSERT_EQ(Bytes(), bytes);
      }
    }
    EXPECT_LE(Modules(), 4);
  }
}

TEST_F(BindingLifetimeTest, NothingGrowsOverTenThousandAppliesByDigestWithoutAPublication) {
  const Fingerprint a = Publish({{1000, "one"}}), b = Publish({{1000, "base"}});
  Captured captured = Capture({.spare_nodes = 1});
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_EQ(captured.binding->Apply(captured.exec(), i % 2 == 0 ? a : b)->outcome,
              Applied::kApplied);
  }
  EXPECT_EQ(Modules(), 2);
}

TEST_F(BindingLifetimeTest, CapturesComeAndGoWithoutATrace) {
  Publish({{1000, "one"}});
  Capture();
  dispatcher->Collect();
  const int64_t modules = Modules(), bytes = Bytes();
  for (int i = 0; i < 300; ++i) Capture();
  dispatcher->Collect();
  EXPECT_EQ(Modules(), modules);
  EXPECT_EQ(Bytes(), bytes);
}

// The application may make several executables of one graph, which the null device does not: others
// than its own are taken for such.
class ManyExecsDevice : public SteppedDevice {
 public:
  using SteppedDevice::SteppedDevice;
  absl::Status SetNode(GraphExec exec, Node node, const NodeWork& work) override {
    if (others.count(exec.handle) == 0) return SteppedDevice::SetNode(exec, node, work);
    ++others[exec.handle];
    return absl::OkStatus();
  }
  std::map<void*, int> others;  // nodes set
};

TEST(BindingExecutables, OfOneGraphRunDifferentGenerationsAndEachHoldsItsOwn) {
  World world = StepsWorld({{.name = "base", .baseline = true}, {.name = "one"}, {.name = "two"}});
  ManyExecsDevice device(*world.device);
  Dispatcher dispatcher(world.catalog, device, *world.jit, {});
  int64_t number = 0;
  const auto publish = [&](const std::string& name) {
    const GenerationPtr next = world.Select({{1000, name}}, ++number);
    EXPECT_TRUE(dispatcher.Publish(next).ok());
    return next->digest();
  };
  const Fingerprint base = publish("base");
  ASSERT_TRUE(dispatcher.Load("axpy", {{{"n", 1000}}})->ready());
  const Stream stream = *device.CreateStream();
  ASSERT_TRUE(dispatcher.PrepareStream(stream).ok());
  ASSERT_TRUE(device.BeginCapture(stream, CaptureMode::kThreadLocal).ok());
  const auto scope = dispatcher.OpenCapture(stream, {.keeps_graph = true});
  const AxpyTensors tensors(1000);
  ASSERT_TRUE(dispatcher.Launch("axpy", tensors.views, stream).ok());
  absl::StatusOr<GraphBinding> binding = (*scope)->Finish();
  const auto graph = *device.EndCapture(stream, true);
  const GraphExec first = graph->exec(), second{&world}, third{&device};
  device.others = {{second.handle, 0}, {third.handle, 0}};

  const Fingerprint one = publish("one");
  EXPECT_EQ(binding->Apply(first)->digest, one);
  const Fingerprint two = publish("two");
  EXPECT_EQ(binding->Apply(second)->digest, two);
  EXPECT_EQ(binding->digest(first), one);
  EXPECT_EQ(binding->digest(second), two);
  EXPECT_EQ(binding->digest(third), base);
  EXPECT_EQ(device.others[second.handle], 1);
  EXPECT_EQ(binding->Apply(second, base)->nodes, 1);
  EXPECT_EQ(binding->Apply(second, two)->nodes, 1);
  for (int i = 0; i <= Dispatcher::kKeptGenerations; ++i) {
    ASSERT_TRUE(
        dispatcher
            .Publish(world.Select({{int64_t{1} << (13 + i), "base"}, {1000, "base"}}, ++number))
            .ok());
  }
  dispatcher.Collect();
  EXPECT_EQ(world.device->counters().modules, 3);
  EXPECT_EQ(NodesText(*world.device, first), "one0");
  EXPECT_TRUE(graph->Launch(stream).ok());
  binding->Forget(second);
  dispatcher.Collect();
  EXPECT_EQ(world.device->counters().modules, 2);
  EXPECT_EQ(binding->digest(second), base);
  EXPECT_EQ(binding->digest(first), one);
  EXPECT_TRUE(graph->Launch(stream).ok());
  world.device->DestroyStream(stream);
}

// Launch functions do nothing on the null device, but are counted.
class NoFunction : public LaunchFunction {
  absl::Status Launch(const FunctionLaunch&) const override { return absl::OkStatus(); }
};
class NoCode : public VariantCode {
  absl::Status Load() const override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<LaunchFunction>> Open(const DeviceInfo&,
                                                       absl::Span<const int64_t>) const override {
    return std::make_unique<NoFunction>();
  }
  absl::Status Values(absl::Span<const int64_t>, absl::Span<const int64_t>, const DeviceInfo&,
                      absl::Span<int64_t>) const override {
    return absl::OkStatus();
  }
};

TEST(BindingFunctions, AreFixedAndNeedARecaptureWhereTheirKeysAnswerChanges) {
  std::shared_ptr<Variant> calls = AxpyVariant("calls");
  calls->sources.clear();
  calls->plan.kernels.clear();
  calls->has_launch_function = true;
  calls->code = std::make_shared<NoCode>();
  World world({StepsVariant({.name = "base", .baseline = true}), calls,
               StepsVariant({.name = "one", .clears = 1})});
  const auto dispatcher = world.Dispatch();
  const auto publish = [&](const char* at_1000, const char* at_60) {
    ASSERT_TRUE(dispatcher->Publish(world.Select({{1000, at_1000}, {60, at_60}}, 1)).ok());
  };
  publish("calls", "base");
  ASSERT_TRUE(dispatcher->Load("axpy", {{{"n", 1000}}, {{"n", 60}}})->ready());
  const Stream stream = *world.device->CreateStream();
  ASSERT_TRUE(dispatcher->PrepareStream(stream).ok());
  ASSERT_TRUE(world.device->BeginCapture(stream, CaptureMode::kThreadLocal).ok());
  const auto scope = dispatcher->OpenCapture(stream, {.spare_nodes = 1});
  const AxpyTensors tensors(1000), others(60);
  ASSERT_TRUE(dispatcher->Launch("axpy", tensors.views, stream).ok());
  ASSERT_TRUE(dispatcher->Launch("axpy", others.views, stream).ok());
  absl::StatusOr<GraphBinding> binding = (*scope)->Finish();
  const auto graph = *world.device->EndCapture(stream);
  EXPECT_EQ(NodesText(*world.device, graph->exec()), "clear call base0 -");

  publish("calls", "one");
  EXPECT_EQ(binding->Apply(graph->exec())->outcome, Applied::kApplied);
  EXPECT_EQ(NodesText(*world.device, graph->exec()), "clear call clear one0");
  publish("one", "base");
  absl::StatusOr<Applied> applied = binding->Apply(graph->exec());
  EXPECT_EQ(applied->outcome, Applied::kNeedsRecapture);
  EXPECT_THAT(applied->reason, HasSubstr("axpy {n=1024}: calls -> one"));
  EXPECT_THAT(applied->reason, HasSubstr("launch function"));
  publish("calls", "calls");
  applied = binding->Apply(graph->exec());
  EXPECT_EQ(applied->outcome, Applied::kNeedsRecapture);
  EXPECT_THAT(applied->reason, HasSubstr("axpy {n=64}: one -> calls"));
  EXPECT_EQ(NodesText(*world.device, graph->exec()), "clear call clear one0");
  world.device->DestroyStream(stream);
}

// Random publications, rollbacks, loads, applications and replays: an executable always runs what
// the generation that digest() names selects.
class BindingPropertyTest : public BindingLifetimeTest, public ::testing::WithParamInterface<int> {
 protected:
  BindingPropertyTest()
      : BindingLifetimeTest({{.name = "base", .baseline = true},
                             {.name = "one", .clears = 1},
                             {.name = "two", .kernels = 2, .workspace = 700},
                             {.name = "three", .kernels = 2, .clears = 1},
                             {.name = "cluster", .cluster = 2}}) {}
};
INSTANTIATE_TEST_SUITE_P(Seeds, BindingPropertyTest, ::testing::Range(0, 20));

TEST_P(BindingPropertyTest, AnExecutableRunsWhatItsDigestSays) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  const std::vector<std::pair<std::string, std::string>> variants = {
      {"base", "base0"},
      {"one", "clear one0"},
      {"two", "two0 two1"},
      {"three", "clear three0 three1"},
      {"cluster", "cluster0"}};
  constexpr size_t kSlots = 5;
  const auto padded = [](std::string text) {
    size_t words = text.empty() ? 0 : 1;
    for (const char c : text) words += c == ' ';
    for (; words < kSlots; ++words) text += " -";
    return text;
  };
  std::map<Fingerprint, std::string> expected;  // of both launches
  const std::string zero = "base0 - - - -";
  expected[dispatcher->generation()->digest()] = zero + " " + zero;
  std::vector<Captured> graphs;
  const auto check = [&](const Captured& captured) {
    ASSERT_TRUE(captured.graph->Launch(stream).ok());
    ASSERT_EQ(NodesText(*world.device, captured.exec()),
              expected.at(captured.binding->digest(captured.exec())));
  };
  for (int step = 0; step < 300; ++step) {
    switch (below(graphs.empty() ? 3 : 8)) {
      case 0:
      case 1: {
        const size_t a = below(variants.size()), b = below(variants.size());
        const Fingerprint digest = Publish({{1000, variants[a].first}, {60, variants[b].first}});
        expected[digest] = padded(variants[a].second) + " " + padded(variants[b].second);
        break;
      }
      case 2: {
        // As many slots whatever is captured: spare nodes make up for it.
        const std::string& now = expected.at(dispatcher->generation()->digest());
        if (graphs.size() == 4) graphs.erase(graphs.begin() + static_cast<ptrdiff_t>(below(4)));
        ASSERT_TRUE(dispatcher->Publish(world.Select({}, ++number)).ok());
        expected[dispatcher->generation()->digest()] = zero + " " + zero;
        const bool keeps_graph = below(2) == 0;
        ASSERT_TRUE(world.device->BeginCapture(stream, CaptureMode::kThreadLocal).ok());
        const auto scope = dispatcher->OpenCapture(
            stream, {.spare_nodes = kSlots - 1, .keeps_graph = keeps_graph});
        ASSERT_TRUE(dispatcher->Launch("axpy", tensors.views, stream).ok());
        ASSERT_TRUE(dispatcher->Launch("axpy", others.views, stream).ok());
        Captured captured;
        captured.binding = std::make_unique<GraphBinding>(*(*scope)->Finish());
        captured.graph = *world.device->EndCapture(stream, keeps_graph);
        graphs.push_back(std::move(captured));
        EXPECT_FALSE(now.empty());
        break;
      }
      case 3:
      case 4: {
        Captured& captured = graphs[below(graphs.size())];
        const absl::StatusOr<Applied> applied = captured.binding->Apply(captured.exec());
        ASSERT_TRUE(applied.ok()) << applied.status();
        ASSERT_NE(applied->outcome, Applied::kNeedsRecapture) << applied->reason;
        ASSERT_EQ(captured.binding->digest(captured.exec()), dispatcher->generation()->digest());
        break;
      }
      case 5: {
        Captured& captured = graphs[below(graphs.size())];
        const std::vector<GenerationPtr> history = dispatcher->history();
        const Fingerprint wanted = history[below(history.size())]->digest();
        const absl::StatusOr<Applied> applied = captured.binding->Apply(captured.exec(), wanted);
        ASSERT_TRUE(applied.ok()) << applied.status();
        ASSERT_NE(applied->outcome, Applied::kNeedsRecapture) << applied->reason;
        ASSERT_EQ(captured.binding->digest(captured.exec()), wanted);
        break;
      }
      case 6:
        dispatcher->Rollback("").IgnoreError();
        break;
      case 7:
        dispatcher->Collect();
        break;
    }
    for (const Captured& captured : graphs) ASSERT_NO_FATAL_FAILURE(check(captured));
  }
}

}  // namespace
}  // namespace kvr
