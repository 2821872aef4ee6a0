// SPDX-License-Identifier: Apache-2.0
//
// Generations come and go while graphs are captured and replayed: captures end well, every replay
// computes what the generation of its executable says, and nothing that a graph runs is unloaded.
#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <thread>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "devices/cuda/driver.h"
#include "tests/api/captures.h"

namespace kvr {
namespace {

// Both ways to bring an executable to another generation.
class CapturesSwapTest : public CapturesTest, public ::testing::WithParamInterface<bool> {
 protected:
  static bool KeepsGraph() { return GetParam(); }
  static CaptureOptions Options() { return {.spare_nodes = 2, .keeps_graph = KeepsGraph()}; }
};
INSTANTIATE_TEST_SUITE_P(Ways, CapturesSwapTest, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "NodeByNode" : "WholeGraph"; });

// Fails unless what serves is replaced by `applied`.
void ExpectApplied(const Captured& captured, int tag, Engine& engine) {
  const absl::StatusOr<Applied> applied = captured.binding->Apply(captured.exec());
  ASSERT_TRUE(applied.ok()) << applied.status();
  EXPECT_EQ(applied->outcome, Applied::kApplied) << applied->reason;
  EXPECT_EQ(engine.TagOf(applied->digest), tag);
  EXPECT_EQ(engine.Replay(captured, tag), "");
}

TEST_P(CapturesSwapTest, AnotherThreadSwapsLoadsAndUnloadsDuringCapturesOfEveryMode) {
  Engine engine;
  for (const CaptureMode mode : kCaptureModes) {
    SCOPED_TRACE(ModeName(mode));
    engine.Publish("counted", 5);
    const Captured captured = engine.Capture(Options(), mode, [&] {
      std::thread([&] {
        engine.Publish("counted", 700);
        EXPECT_EQ(engine.TagOf(engine.runtime().generation()->digest()), 700);
        const auto back = engine.runtime().Rollback("");
        EXPECT_TRUE(back.ok()) << back.status();
        EXPECT_EQ(engine.TagOf(engine.runtime().generation()->digest()), 5);
        for (int tag = 0; tag < 12; ++tag) engine.Publish("compiled", tag);
        engine.PushOut();  // unloads eleven modules
        // After this the workspaces are too small for what is published next.
        EXPECT_TRUE(engine.runtime().Load("null", {Axes{{"n", kColdElements}}}).ok());
        engine.Publish("counted", 701);
      }).join();
      EXPECT_KVR_OK(engine.LaunchLayers());  // still of the generation that is pinned
    });
    EXPECT_EQ(captured.binding->launches(), 2 * Engine::kLayers);
    EXPECT_EQ(engine.Replay(captured, 5), "");
    ExpectApplied(captured, 701, engine);
    EXPECT_EQ(engine.Eager(701), "");
  }
}

TEST_P(CapturesSwapTest, CapturesOfEveryModeEndWellBesideAThreadThatNeverStopsSwapping) {
  Engine engine;
  std::atomic<bool> stop{false};
  std::atomic<int> swaps{0};
  std::thread other([&] {
    for (int i = 0; !stop; ++i) {
      switch (i % 5) {
        case 0:
        case 1:
          engine.Publish("compiled", i % kCompiledTags);
          break;
        case 2:
          engine.Publish("counted", i % kMostTags);
          break;
        case 3:
          EXPECT_TRUE(engine.runtime().Rollback("").ok());
          break;
        default:
          EXPECT_TRUE(engine.runtime().Load("null", {Axes{{"n", 1 + i % 190}}}).ok());
          engine.runtime().Collect();
      }
      ++swaps;
    }
  });
  const int rounds = OnGpu() ? 300 : 30;
  for (int round = 0; (round < rounds || swaps < rounds) && !HasFailure(); ++round) {
    const Captured captured = engine.Capture(Options(), kCaptureModes[round % 3]);
    const int tag = engine.TagOf(captured.binding->digest(captured.exec()));
    EXPECT_EQ(engine.Replay(captured, tag), "") << "round " << round;
    EXPECT_EQ(engine.ApplyAndReplay(captured), "") << "round " << round;
  }
  stop = true;
  other.join();
}

// --- what a graph keeps

TEST_P(CapturesSwapTest, WhatAGraphRunsOutlivesTwentySwapsAndGoesWithTheGraph) {
  Engine engine;
  engine.Publish("compiled", 7);
  const uint64_t retired = engine.runtime().counters().retired;
  // During the capture it leaves the history; nothing but the scope knows of it.
  Captured captured = engine.Capture(Options(), CaptureMode::kThreadLocal,
                                     [&] { std::thread([&] { engine.PushOut(); }).join(); });
  EXPECT_EQ(engine.runtime().counters().retired, retired);
  for (int i = 0; i < 20; ++i) {
    engine.Publish("tagged", 100 + i);
    engine.runtime().Collect();
    ASSERT_EQ(engine.Replay(captured, 7), "") << "after " << i + 1 << " swaps";
  }
  // Applied, what was captured is kept as well: the copy, and other executables, may need it.
  ExpectApplied(captured, 119, engine);
  engine.PushOut();
  EXPECT_EQ(engine.Replay(captured, 119), "");
  const uint64_t before = engine.runtime().counters().retired;
  EXPECT_EQ(before, retired + 19) << "of the tags all but the one that is applied";
  captured.binding.reset();
  engine.runtime().Collect();
  EXPECT_EQ(engine.Replay(captured, 119), "") << "the binding is not what keeps it";
  EXPECT_EQ(engine.runtime().counters().retired, before);
  captured.graph.reset();
  EXPECT_TRUE(engine.Retires(before + 2)) << engine.runtime().counters().retired - before;
}

TEST_P(CapturesSwapTest, NoLaunchInFlightLosesItsModule) {
  Engine engine;
  Layers& layers = engine.layers();
  for (int round = 0; round < (OnGpu() ? 200 : 20); ++round) {
    engine.Publish("compiled", round % kCompiledTags);
    Captured captured = engine.Capture(Options());
    engine.PushOut();
    ASSERT_KVR_OK(layers.Poison());
    ASSERT_KVR_OK(captured.graph->Launch(engine.stream()));
    // To another generation at once; the replay in flight is that of before.
    ASSERT_TRUE(captured.binding->Apply(captured.exec()).ok());
    engine.runtime().Collect();
    ASSERT_EQ(layers.Wrong(round % kCompiledTags), "") << "round " << round;
  }
}

TEST_F(CapturesTest, ExecutablesOfOneGraphRunTheirOwnGenerations) {
  if (!OnGpu()) GTEST_SKIP() << "a host capture ends in one executable";
  const cuda::Driver& driver = *Must(cuda::GetDriver());
  for (const bool keeps_graph : {true, false}) {
    Engine engine;
    engine.Publish("compiled", 1);
    const Fingerprint first = engine.runtime().generation()->digest();
    ASSERT_KVR_OK(engine.device().BeginCapture(engine.stream(), CaptureMode::kGlobal));
    auto scope = Must(engine.runtime().OpenCapture(engine.stream(),
                                                   {.spare_nodes = 2, .keeps_graph = keeps_graph}));
    ASSERT_KVR_OK(engine.LaunchLayers());
    GraphBinding binding = Must(scope->Finish());
    scope.reset();
    const auto stream = static_cast<cuda::StreamHandle>(engine.stream().handle);
    cuda::GraphHandle graph = nullptr;
    cuda::GraphExecHandle execs[2] = {};
    ASSERT_KVR_OK(engine.device().WithContext([&] {
      EXPECT_EQ(driver.StreamEndCapture(stream, &graph), cuda::kSuccess);
      for (auto& exec : execs) {
        EXPECT_EQ(driver.GraphInstantiate(&exec, graph, 0), cuda::kSuccess);
      }
      if (!keeps_graph) {
        EXPECT_EQ(driver.GraphDestroy(graph), cuda::kSuccess);
      }
      return absl::OkStatus();
    }));
    const auto replay = [&](int at, int tag) {
      EXPECT_KVR_OK(engine.layers().Poison());
      EXPECT_KVR_OK(engine.device().WithContext([&] {
        EXPECT_EQ(driver.GraphLaunch(execs[at], stream), cuda::kSuccess);
        return absl::OkStatus();
      }));
      return engine.layers().Wrong(tag);
    };
    const Fingerprint second = engine.Publish("counted", 200)->digest();
    std::mt19937 random(3);
    int tags[2] = {1, 1};
    for (int step = 0; step < 200; ++step) {
      const int at = static_cast<int>(random() % 2);
      const bool to_second = random() % 2 == 0;
      const Applied applied = Must(binding.Apply(GraphExec{execs[at]}, to_second ? second : first));
      ASSERT_NE(applied.outcome, Applied::kNeedsRecapture) << applied.reason;
      tags[at] = to_second ? 200 : 1;
      for (const int each : {0, 1}) ASSERT_EQ(replay(each, tags[each]), "") << "step " << step;
      for (const int each : {0, 1}) {
        ASSERT_EQ(engine.TagOf(binding.digest(GraphExec{execs[each]})), tags[each]);
      }
    }
    // One is destroyed; the other goes on.
    const uint64_t retired = engine.runtime().counters().retired;
    ASSERT_KVR_OK(engine.device().WithContext([&] {
      EXPECT_EQ(driver.GraphExecDestroy(execs[0]), cuda::kSuccess);
      return absl::OkStatus();
    }));
    binding.Forget(GraphExec{execs[0]});
    engine.PushOut();
    EXPECT_EQ(replay(1, tags[1]), "");
    EXPECT_LE(engine.runtime().counters().retired, retired + 1);  // never what is captured
    ASSERT_KVR_OK(engine.device().WithContext([&] {
      EXPECT_EQ(driver.GraphExecDestroy(execs[1]), cuda::kSuccess);
      if (keeps_graph) {
        EXPECT_EQ(driver.GraphDestroy(graph), cuda::kSuccess);
      }
      return absl::OkStatus();
    }));
    EXPECT_TRUE(engine.Retires(retired + 2)) << engine.runtime().counters().retired - retired;
  }
}

// --- at full rate

// Steps as a server makes them: they follow each other without waiting. What each has written is
// put aside on the device, and read every few steps.
class Steps {
 public:
  static constexpr int kAhead = 16;
  explicit Steps(Engine& engine)
      : engine_(engine), layers_(engine.layers()), beside_(engine.runtime()) {
    log_ = static_cast<float*>(Must(engine.device().Allocate(kAhead * layers_.bytes())));
    host_.resize(static_cast<size_t>(kAhead * layers_.count() * kElements));
  }
  ~Steps() { engine_.device().Free(log_); }
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

  // Replays what the executable has. Empty, or what is wrong with this step or one before.
  std::string Step(const Captured& captured) {
    const int64_t floats = layers_.count() * kElements;
    float* const aside = log_ + static_cast<int64_t>(tags_.size()) * floats;
    tags_.push_back(engine_.TagOf(captured.binding->digest(captured.exec())));
    absl::Status status = layers_.Poison();
    status.Update(captured.graph->Launch(engine_.stream()));
    status.Update(beside_.Copy(layers_.y(0), aside, static_cast<int>(floats), engine_.stream()));
    if (!status.ok()) return StrCat("step ", steps_, ": ", What(status));
    ++steps_;
    return tags_.size() < kAhead ? "" : Check();
  }
  std::string Check() {
    const int64_t floats = layers_.count() * kElements;
    const Stream stream = engine_.stream();
    absl::Status status =
        engine_.device().CopyToHost(host_.data(), log_, kAhead * layers_.bytes(), stream);
    status.Update(engine_.device().Synchronize(stream));
    if (!status.ok()) return StrCat("step ", steps_, ": ", What(status));
    std::string wrong;
    for (size_t i = 0; i < tags_.size() && wrong.empty(); ++i) {
      wrong = layers_.WrongIn(host_.data() + static_cast<int64_t>(i) * floats, tags_[i]);
      if (!wrong.empty()) wrong = StrCat("step ", steps_ - tags_.size() + i, ", ", wrong);
    }
    tags_.clear();
    return wrong;
  }
  size_t steps() const { return steps_; }

 private:
  Engine& engine_;
  Layers& layers_;
  OwnKernel beside_;
  float* log_ = nullptr;
  std::vector<float> host_;
  std::vector<int> tags_;
  size_t steps_ = 0;
};

TEST_P(CapturesSwapTest, SwapsDuringReplaysAtFullRateTearNothingAndMissNoStep) {
  Engine engine;
  engine.Publish("counted", 1);
  const Captured captured = engine.Capture(Options());
  Steps steps(engine);
  const int swaps = 1000;
  std::atomic<uint64_t> applied{0};
  std::atomic<bool> done{false};
  std::thread publisher([&] {
    std::mt19937 random(11);
    const char* const variants[] = {"tagged", "counted", "compiled", "counted", "baseline"};
    for (int i = 0; i < swaps; ++i) {
      const char* const variant = variants[random() % 5];
      const int most = std::string(variant) == "compiled" ? kCompiledTags : kMostTags;
      const int tag = std::string(variant) == "baseline" ? 0 : static_cast<int>(random()) % most;
      const uint64_t before = applied;
      engine.Publish(variant, std::abs(tag));
      // Every other one is waited for; those between may be replaced before they are applied.
      while (i % 2 == 0 && applied == before && !testing::Test::HasFailure()) {
        std::this_thread::yield();
      }
    }
    done = true;
  });
  std::string wrong;
  for (bool last = false; wrong.empty();) {
    last = done;
    const absl::StatusOr<Applied> now = captured.binding->Apply(captured.exec());
    if (!now.ok() || now->outcome == Applied::kNeedsRecapture) {
      wrong = now.ok() ? now->reason : std::string(now.status().message());
      break;
    }
    applied += now->outcome == Applied::kApplied;
    wrong = steps.Step(captured);
    if (last) break;
  }
  EXPECT_EQ(wrong, "");
  EXPECT_EQ(steps.Check(), "");
  publisher.join();
  EXPECT_EQ(captured.binding->digest(captured.exec()), engine.runtime().generation()->digest());
  EXPECT_GE(applied, static_cast<uint64_t>(swaps / 2));
  EXPECT_GE(steps.steps(), applied);
  EXPECT_EQ(engine.runtime().counters().recaptures, 0u);
  EXPECT_EQ(engine.runtime().counters().failed, 0u);
  std::printf("%d swaps, %d applied, %d steps\n", swaps, static_cast<int>(applied),
              static_cast<int>(steps.steps()));
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST_P(CapturesSwapTest, ThousandsOfSwapsLeaveHostAndDeviceMemoryFlat) {
  Engine engine;
  engine.Publish("tagged", 0);
  const Captured captured = engine.Capture(Options());
  Steps steps(engine);
  const int swaps = OnGpu() ? 10000 : 5000;
  int64_t resident = 0, free_bytes = 0;
  const uint64_t retired = engine.runtime().counters().retired;
  for (int i = 0; i < swaps; ++i) {
    if (i == swaps / 5) {
      resident = ResidentBytes();
      free_bytes = FreeDeviceBytes(engine.device());
    }
    // Configs that no generation of the history has; now and then another module.
    if (i % 10 == 9) {
      engine.Publish("compiled", i / 10 % kCompiledTags);
    } else {
      engine.Publish(i % 3 == 0 ? "tagged" : "counted", i % kMostTags);
    }
    const Applied applied = Must(captured.binding->Apply(captured.exec()));
    ASSERT_EQ(applied.outcome, Applied::kApplied) << applied.reason;
    ASSERT_EQ(steps.Step(captured), "");
  }
  EXPECT_EQ(steps.Check(), "");
  const int64_t grown = ResidentBytes() - resident;
  const int64_t taken = free_bytes - FreeDeviceBytes(engine.device());
  std::printf("%d swaps: resident memory %+.1f MiB, device memory %+.1f MiB\n", swaps,
              static_cast<double>(grown) / (1 << 20), static_cast<double>(taken) / (1 << 20));
  EXPECT_LE(grown, int64_t{600} * swaps);  // one that is never let go of takes 1800
  EXPECT_LE(taken, 4 << 20);
  const Counters counters = engine.runtime().counters();
  EXPECT_EQ(counters.applied, static_cast<uint64_t>(swaps));
  EXPECT_EQ(counters.failed + counters.recaptures, 0u);
  // All but the history's, and what the executable and the graph still have.
  engine.runtime().Collect();
  EXPECT_GE(engine.runtime().counters().retired - retired,
            static_cast<uint64_t>(swaps - Dispatcher::kKeptGenerations - 4));
}

}  // namespace
}  // namespace kvr
