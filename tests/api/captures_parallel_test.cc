// SPDX-License-Identifier: Apache-2.0
//
// Captures beside captures: of one runtime on several threads, and of several runtimes in one
// process, on one device, on two contexts of it, and on two devices.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "devices/cuda/cuda.h"
#include "tests/api/captures.h"

namespace kvr {
namespace {

// A thread's own stream, layers and captures, on a runtime that others use too.
class Worker {
 public:
  Worker(Engine& engine, Stream stream)
      : engine_(engine), stream_(stream), layers_(engine.device(), stream, Engine::kLayers) {}

  absl::Status LaunchLayers() {
    for (int layer = 0; layer < layers_.count(); ++layer) {
      KVR_RETURN_IF_ERROR(engine_.runtime().Launch("null", layers_.views(layer), stream_));
    }
    return absl::OkStatus();
  }
  Captured Capture(
      CaptureMode mode, const CaptureOptions& options, absl::FunctionRef<void()> between = [] {}) {
    EXPECT_KVR_OK(engine_.device().BeginCapture(stream_, mode));
    const auto scope = Must(engine_.runtime().OpenCapture(stream_, options));
    EXPECT_KVR_OK(LaunchLayers());
    between();
    EXPECT_KVR_OK(LaunchLayers());
    Captured captured;
    captured.binding = std::make_unique<GraphBinding>(Must(scope->Finish()));
    captured.graph = Must(engine_.device().EndCapture(stream_, options.keeps_graph));
    EXPECT_EQ(captured.binding->launches(), 2 * Engine::kLayers);
    return captured;
  }
  // As Layers::Wrong.
  std::string Replay(const Captured& captured) {
    EXPECT_KVR_OK(layers_.Poison());
    EXPECT_KVR_OK(captured.graph->Launch(stream_));
    return layers_.Wrong(engine_.TagOf(captured.binding->digest(captured.exec())));
  }
  std::string ApplyAndReplay(const Captured& captured) {
    const Applied applied = Must(captured.binding->Apply(captured.exec()));
    return applied.outcome == Applied::kNeedsRecapture ? applied.reason : Replay(captured);
  }
  std::string Eager(int tag) {
    EXPECT_KVR_OK(layers_.Poison());
    EXPECT_KVR_OK(LaunchLayers());
    return layers_.Wrong(tag);
  }

 private:
  Engine& engine_;
  const Stream stream_;
  Layers layers_;
};

// Two threads wait for each other, so that both are in the middle of a capture.
class Meeting {
 public:
  void Arrive() {
    const int before = arrived_++;
    const int whole = (before / 2 + 1) * 2;
    while (arrived_ < whole && !testing::Test::HasFailure()) std::this_thread::yield();
  }

 private:
  std::atomic<int> arrived_{0};
};

TEST_F(CapturesTest, TwoThreadsCaptureOnTwoStreamsAtOnce) {
  Engine engine;
  engine.Publish("counted", 1);
  Worker workers[] = {{engine, engine.NewStream()}, {engine, engine.NewStream()}};
  const int rounds = OnGpu() ? 150 : 18;
  Meeting meeting;
  std::atomic<int> running{2};
  const auto run = [&](int at) {
    for (int round = 0; round < rounds; ++round) {
      // Every pair of modes.
      const CaptureMode mode = kCaptureModes[(at == 0 ? round : round / 3) % 3];
      SCOPED_TRACE(StrCat("thread ", at, ", round ", round));
      const Captured captured = workers[at].Capture(
          mode, {.spare_nodes = 2, .keeps_graph = round % 2 == at}, [&] { meeting.Arrive(); });
      EXPECT_EQ(workers[at].Replay(captured), "");
      EXPECT_EQ(workers[at].ApplyAndReplay(captured), "");
    }
    --running;
  };
  std::thread first(run, 0), second(run, 1);
  for (int i = 0; running > 0; ++i) {
    engine.Publish(i % 2 == 0 ? "compiled" : "counted", i % kCompiledTags);
    engine.runtime().Collect();
  }
  first.join();
  second.join();
  EXPECT_EQ(engine.runtime().counters().captured,
            static_cast<uint64_t>(4 * rounds * Engine::kLayers));
  EXPECT_EQ(engine.runtime().counters().unscoped, 0u);
}

TEST_F(CapturesTest, OtherStreamsLaunchApplyReplayAndLoseTheirGraphsDuringACapture) {
  for (const CaptureMode mode : kCaptureModes) {
    for (const bool keeps_graph : {true, false}) {
      SCOPED_TRACE(ModeName(mode));
      const CaptureOptions options{.spare_nodes = 2, .keeps_graph = keeps_graph};
      Engine engine;
      engine.Publish("compiled", 1);
      Worker other(engine, engine.NewStream());
      Captured graph = other.Capture(CaptureMode::kThreadLocal, options);
      engine.Publish("counted", 2);
      const uint64_t retired = engine.runtime().counters().retired;
      const Captured captured = engine.Capture(options, mode, [&] {
        EXPECT_EQ(other.Replay(graph), "");
        EXPECT_EQ(other.ApplyAndReplay(graph), "");
        engine.Publish("compiled", 3);
        EXPECT_EQ(other.ApplyAndReplay(graph), "");
        EXPECT_EQ(other.Eager(3), "");
        graph = {};
        engine.PushOut();
        EXPECT_TRUE(engine.Retires(retired + 2)) << "compiled 1 and 3, unloaded";
        EXPECT_EQ(other.Eager(0), "");
      });
      EXPECT_EQ(engine.Replay(captured, 2), "");
      EXPECT_EQ(engine.ApplyAndReplay(captured), "");
    }
  }
}

// Each publishes, captures, swaps and replays; neither sees what the other does.
void ExpectIndependent(std::unique_ptr<Engine> a, std::unique_ptr<Engine> b) {
  ASSERT_EQ(a->runtime().generation()->digest(), b->runtime().generation()->digest());
  for (const auto& [variant, tag] : {std::pair{"counted", 30}, {"compiled", 3}, {"tagged", 31}}) {
    const Fingerprint digest = a->Publish(variant, tag)->digest();
    ASSERT_EQ(digest, b->Publish(variant, tag)->digest()) << "equal selections";
    EXPECT_EQ(a->Eager(tag), "");
    EXPECT_EQ(b->Eager(tag), "");
  }

  // Captured at once; one is swapped, the other is not.
  const CaptureOptions options{.spare_nodes = 2, .keeps_graph = true};
  Captured of_b;
  const Captured of_a = a->Capture(options, CaptureMode::kThreadLocal, [&] {
    std::thread([&] { of_b = b->Capture(options, CaptureMode::kGlobal); }).join();
  });
  const Fingerprint before = b->runtime().generation()->digest();
  const Fingerprint next = a->Publish("compiled", 8)->digest();
  EXPECT_EQ(a->ApplyAndReplay(of_a), "");
  EXPECT_EQ(of_a.binding->digest(of_a.exec()), next);
  EXPECT_EQ(Must(of_b.binding->Apply(of_b.exec())).outcome, Applied::kUnchanged);
  EXPECT_EQ(b->Replay(of_b, 31), "");
  EXPECT_EQ(b->runtime().generation()->digest(), before);
  // A follower is told the digest, and has it once it has published the same.
  EXPECT_FALSE(of_b.binding->Apply(of_b.exec(), next).ok());
  EXPECT_EQ(b->Publish("compiled", 8)->digest(), next);
  EXPECT_EQ(Must(of_b.binding->Apply(of_b.exec(), next)).outcome, Applied::kApplied);
  EXPECT_EQ(b->Replay(of_b, 8), "");

  // Both at once.
  const int rounds = OnGpu() ? 200 : 20;
  std::vector<std::thread> threads;
  for (Engine* const engine : {a.get(), b.get()}) {
    threads.emplace_back([engine, &captured = engine == a.get() ? of_a : of_b, rounds] {
      for (int i = 0; i < rounds; ++i) {
        engine->Publish(i % 2 == 0 ? "counted" : "compiled", i % kCompiledTags);
        EXPECT_EQ(engine->ApplyAndReplay(captured), "") << "round " << i;
        EXPECT_EQ(engine->Eager(i % kCompiledTags), "") << "round " << i;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(a->runtime().generation()->digest(), b->runtime().generation()->digest());
  EXPECT_EQ(a->runtime().counters().applied, b->runtime().counters().applied);

  // One goes, the other goes on; what it captured goes first.
  of_b.graph.reset();
  of_b.binding.reset();
  b.reset();
  EXPECT_EQ(a->ApplyAndReplay(of_a), "");
  a->PushOut();
  EXPECT_EQ(a->Eager(0), "");
  EXPECT_EQ(a->ApplyAndReplay(of_a), "");
}

TEST_F(CapturesTest, TwoRuntimesOnOneDeviceAgreeOnDigestsAndSwapIndependently) {
  ExpectIndependent(std::make_unique<Engine>(), std::make_unique<Engine>());
}

TEST_F(CapturesTest, TwoRuntimesOnTwoContextsAgreeOnDigestsAndSwapIndependently) {
  if (!OnGpu()) GTEST_SKIP() << "contexts are CUDA's";
  const OwnContext context;
  ASSERT_NE(context.handle(), nullptr);
  ExpectIndependent(std::make_unique<Engine>(),
                    std::make_unique<Engine>(RuntimeOptions{.cuda_context = context.handle()}));
  const OwnContext another;
  ExpectIndependent(std::make_unique<Engine>(RuntimeOptions{.cuda_context = another.handle()}),
                    std::make_unique<Engine>(RuntimeOptions{.cuda_context = context.handle()}));
}

TEST_F(CapturesTest, TwoRuntimesOnTwoDevicesAgreeOnDigestsAndSwapIndependently) {
  const absl::StatusOr<int> devices = CudaDeviceCount();
  if (!OnGpu() || !devices.ok() || *devices < 2) GTEST_SKIP() << "there is one device";
  ExpectIndependent(std::make_unique<Engine>(RuntimeOptions{.device = "cuda:0"}),
                    std::make_unique<Engine>(RuntimeOptions{.device = "cuda:1"}));
}

}  // namespace
}  // namespace kvr
