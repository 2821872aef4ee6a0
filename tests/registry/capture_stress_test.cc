// SPDX-License-Identifier: Apache-2.0
//
// Engines that launch, capture, apply and replay, each on its own stream, beside threads that
// publish, roll back, load and collect. Counts, not times: run it under ThreadSanitizer too.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/registry/capture_fixture.h"

namespace kvr {
namespace {

constexpr int kEngines = 3;
constexpr int kRounds = 60;
constexpr int kReplays = 10;

TEST(CaptureStress, EnginesCaptureApplyAndReplayWhileGenerationsComeAndGo) {
  World world = StepsWorld({{.name = "base", .baseline = true},
                            {.name = "one", .clears = 1},
                            {.name = "two", .kernels = 2, .workspace = 700},
                            {.name = "large", .clears = 1, .workspace = 9000}});
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Load("axpy", {{{"n", 1000}}, {{"n", 60}}})->ready());
  std::atomic<int> failed{0}, running{kEngines};
  std::atomic<uint64_t> applied{0};

  const auto engine = [&](Stream stream, CaptureMode mode, bool keeps_graph) {
    const AxpyTensors tensors(1000), others(60), missed(9000);
    absl::StatusOr<BoundLaunch> bound = dispatcher->Bind("axpy", others.views);
    failed += !bound.ok();
    for (int round = 0; round < kRounds; ++round) {
      failed += !world.device->BeginCapture(stream, mode).ok();
      std::vector<Captured> graphs(1);
      {
        auto scope =
            dispatcher->OpenCapture(stream, {.spare_nodes = 3, .keeps_graph = keeps_graph});
        failed += !scope.ok();
        failed += !dispatcher->Launch("axpy", tensors.views, stream).ok();
        failed += !bound->Launch(stream).ok();
        failed += !dispatcher->Launch("axpy", missed.views, stream).ok();
        absl::StatusOr<GraphBinding> binding = (*scope)->Finish();
        failed += !binding.ok();
        graphs[0].binding = std::make_unique<GraphBinding>(*std::move(binding));
      }
      absl::StatusOr<std::unique_ptr<Graph>> graph = world.device->EndCapture(stream, keeps_graph);
      failed += !graph.ok();
      graphs[0].graph = *std::move(graph);
      for (int replay = 0; replay < kReplays; ++replay) {
        absl::StatusOr<Applied> now = graphs[0].binding->Apply(graphs[0].exec());
        // A round waits for a generation of its own: with few cores all rounds may else be over
        // before the publisher's first turn.
        while (replay == 0 && now.ok() && now->outcome == Applied::kUnchanged) {
          std::this_thread::yield();
          now = graphs[0].binding->Apply(graphs[0].exec());
        }
        failed += !now.ok() || now->outcome == Applied::kNeedsRecapture;
        applied += now.ok() && now->outcome == Applied::kApplied;
        failed += !graphs[0].graph->Launch(stream).ok();  // whose modules are there
        const std::vector<GenerationPtr> history = dispatcher->history();
        const absl::Status back =
            graphs[0].binding->Apply(graphs[0].exec(), history.back()->digest()).status();
        failed += !back.ok();
        failed += !graphs[0].graph->Launch(stream).ok();
        failed += !dispatcher->Launch("axpy", tensors.views, stream).ok();
        failed += !bound->Launch(stream).ok();
      }
    }
    --running;
  };

  std::vector<Stream> streams;
  for (int i = 0; i < kEngines; ++i) {
    streams.push_back(*world.device->CreateStream());
    ASSERT_TRUE(dispatcher->PrepareStream(streams.back()).ok());
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < kEngines; ++i) {
    constexpr CaptureMode kModes[] = {CaptureMode::kGlobal, CaptureMode::kThreadLocal,
                                      CaptureMode::kRelaxed};
    threads.emplace_back(engine, streams[static_cast<size_t>(i)], kModes[i % 3], i % 2 == 0);
  }
  threads.emplace_back([&] {
    for (int64_t n = 1; running > 0; n = n % 500 + 37) {
      failed += !dispatcher->Load("axpy", {{{"n", n}}}).ok();
      dispatcher->Collect();
    }
  });
  const char* const names[] = {"one", "two", "large", "base"};
  for (size_t i = 0; running > 0; ++i) {
    if (i % 7 == 6) {
      failed += !dispatcher->Rollback("").ok();
    } else {
      failed += !dispatcher
                     ->Publish(world.Select(
                         {{1000, names[i % 4]}, {60, names[i / 4 % 4]}, {2000, names[i / 16 % 4]}},
                         static_cast<int64_t>(i)))
                     .ok();
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_GE(applied, uint64_t{kEngines} * kRounds);
  EXPECT_EQ(dispatcher->counters().recaptures, 0u);
  dispatcher->Collect();
  EXPECT_LE(world.device->counters().modules, 4);
  for (const Stream stream : streams) world.device->DestroyStream(stream);
}

// One graph, several executables, each on a thread of its own.
TEST(CaptureStress, ExecutablesOfOneScopeAreAppliedAtOnce) {
  World world = StepsWorld({{.name = "base", .baseline = true}, {.name = "one", .clears = 1}});
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Load("axpy", {{{"n", 1000}}})->ready());
  const Fingerprint zero = dispatcher->generation()->digest();
  const GenerationPtr next = world.Select({{1000, "one"}}, 1);
  const Stream stream = *world.device->CreateStream();
  ASSERT_TRUE(dispatcher->PrepareStream(stream).ok());
  const AxpyTensors tensors(1000);
  ASSERT_TRUE(world.device->BeginCapture(stream, CaptureMode::kThreadLocal).ok());
  const auto scope = dispatcher->OpenCapture(stream, {.spare_nodes = 1});
  ASSERT_TRUE(dispatcher->Launch("axpy", tensors.views, stream).ok());
  absl::StatusOr<GraphBinding> binding = (*scope)->Finish();
  const auto graph = *world.device->EndCapture(stream);
  ASSERT_TRUE(dispatcher->Publish(next).ok());
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        if (t == 0) {  // the one executable there is; the others ask
          failed += !binding->Apply(graph->exec(), i % 2 == 0 ? next->digest() : zero).ok();
        } else {
          const Fingerprint digest = binding->digest(graph->exec());
          failed += digest != zero && digest != next->digest();
          failed += binding->launches() != 1;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  world.device->DestroyStream(stream);
}

}  // namespace
}  // namespace kvr
