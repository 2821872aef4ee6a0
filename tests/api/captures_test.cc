// SPDX-License-Identifier: Apache-2.0
//
// What applications do wrong, or unusually, in and around a capture: each is a clear error or does
// no harm, and whatever the graph then runs, its outputs are those of the generation it was
// captured under.
#include "tests/api/captures.h"

#include <gmock/gmock.h>

#include <optional>
#include <thread>
#include <utility>

#include "api/platform.h"
#include "core/status.h"
#include "core/strings.h"
#include "devices/cuda/driver.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;

// --- keys that are not loaded

TEST_F(CapturesTest, AColdKeyIsAClearErrorAndTheCaptureGoesOn) {
  Engine engine({.miss_policy = MissPolicy::kError});
  engine.Publish("counted", 5);
  Layers cold(engine.device(), engine.stream(), 1, kColdElements);
  for (const CaptureMode mode : kCaptureModes) {
    SCOPED_TRACE(ModeName(mode));
    const Captured captured = engine.Capture({.spare_nodes = 1}, mode, [&] {
      const absl::Status status = engine.runtime().Launch("null", cold.views(0), engine.stream());
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_THAT(std::string(What(status)), HasSubstr("{n=4096} (n=3000) is not loaded"));
      EXPECT_THAT(std::string(Fix(status)), HasSubstr("Load"));
      EXPECT_KVR_OK(engine.Launch(0, engine.stream()));
    });
    EXPECT_EQ(captured.binding->launches(), Engine::kLayers + 1);
    EXPECT_EQ(engine.Replay(captured, 5), "");
    EXPECT_EQ(engine.ApplyAndReplay(captured), "");
  }
  EXPECT_EQ(engine.runtime().counters().refused, 3u);
  EXPECT_EQ(engine.runtime().counters().not_loaded, 3u);
  // What was missing is loaded, and captured.
  ASSERT_TRUE(Must(engine.runtime().Load("null", {Axes{{"n", kColdElements}}})).ready());
  const Captured captured = engine.Capture({}, CaptureMode::kGlobal, [&] {
    EXPECT_KVR_OK(engine.runtime().Launch("null", cold.views(0), engine.stream()));
  });
  EXPECT_EQ(engine.Replay(captured, 5), "");
  EXPECT_EQ(cold.Wrong(5), "");
}

TEST_F(CapturesTest, AColdKeyIsServedByTheBaselineAndCounted) {
  for (const MissPolicy policy : {MissPolicy::kBaseline, MissPolicy::kJit}) {
    Engine engine({.miss_policy = policy});
    engine.Publish("tagged", 6);
    Layers cold(engine.device(), engine.stream(), 1, kColdElements);
    const Captured captured = engine.Capture({}, CaptureMode::kGlobal, [&] {
      EXPECT_KVR_OK(engine.runtime().Launch("null", cold.views(0), engine.stream()));
    });
    EXPECT_EQ(engine.Replay(captured, 6), "");
    EXPECT_EQ(cold.Wrong(0), "");
    const Counters counters = engine.runtime().counters();
    EXPECT_EQ(counters.not_loaded, 1u);
    EXPECT_EQ(counters.baseline, 1u);
    EXPECT_EQ(counters.loaded_in_launch, 0u);
    EXPECT_EQ(counters.captured, Engine::kLayers + 1u);
  }
}

TEST_F(CapturesTest, TensorsAndWorkspacesThatDoNotFitAreErrorsAndTheCaptureGoesOn) {
  Engine engine;
  engine.Publish("counted", 7);
  const Stream unprepared = Must(engine.device().CreateStream());
  for (const CaptureMode mode : kCaptureModes) {
    const Captured captured = engine.Capture({}, mode, [&] {
      Runtime& runtime = engine.runtime();
      const Stream stream = engine.stream();
      EXPECT_FALSE(runtime.Launch("no_such_op", engine.layers().views(0), stream).ok());
      EXPECT_TRUE(absl::IsInvalidArgument(runtime.Launch("null", {}, stream)));
      std::vector<TensorView> wrong = engine.layers().views(0);
      wrong[1].shape[0] -= 1;
      EXPECT_TRUE(absl::IsInvalidArgument(runtime.Launch("null", wrong, stream)));
      EXPECT_TRUE(absl::IsInvalidArgument(
          runtime.Launch("null", engine.layers().views(0), stream, {engine.layers().y(0), 16})));
      // A stream that joins the capture, and has no workspace for it.
      EXPECT_KVR_OK(engine.device().Wait(unprepared, stream));
      const absl::Status status = engine.Launch(0, unprepared);
      EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
      EXPECT_THAT(std::string(Fix(status)), HasSubstr("PrepareStream"));
      EXPECT_KVR_OK(engine.device().Wait(stream, unprepared));
    });
    EXPECT_EQ(engine.Replay(captured, 7), "");
  }
  engine.device().DestroyStream(unprepared);
}

// --- what the capturing thread should have done before

TEST_F(CapturesTest, LoadingPublishingAndWaitingOnTheCapturingThreadDoNoHarm) {
  const std::string scratch(1 << 16, 'x');
  for (const CaptureMode mode : kCaptureModes) {
    SCOPED_TRACE(ModeName(mode));
    Engine engine;
    engine.Publish("counted", 11);
    Runtime& runtime = engine.runtime();
    Device& device = engine.device();
    const Captured earlier = engine.Capture();
    const Stream another = Must(device.CreateStream());
    const std::vector<Axes> unseen = {{{"n", kColdElements}}};
    int published = 11;
    const Captured captured = engine.Capture({.spare_nodes = 1}, mode, [&] {
      // Compile, load and allocate: of no stream, so allowed or refused, never half done.
      const absl::StatusOr<LoadReport> loaded = runtime.Load("null", unseen);
      EXPECT_TRUE(loaded.ok()) << loaded.status();
      EXPECT_TRUE(loaded.ok() && loaded->ready()) << loaded->Text();
      EXPECT_KVR_OK(runtime.PrepareStream(another, "of a later capture"));
      const VariantPtr variant = Must(runtime.catalog().Find("null", "compiled"));
      const OpSpec& spec = Must(runtime.catalog().FindOp("null"))->spec();
      const auto built =
          runtime.platform().jit().Build(spec, *variant, {{"TAG", 9}}, device.info().target);
      ASSERT_TRUE(built.ok()) << built.status();
      EXPECT_TRUE(device.Load(*built->binary).ok());
      const absl::StatusOr<LoadReport> report =
          runtime.Publish(engine.Selecting("compiled", published = 9));
      EXPECT_TRUE(report.ok()) << report.status();
      const absl::StatusOr<void*> memory = device.Allocate(1 << 16);
      ASSERT_TRUE(memory.ok()) << memory.status();
      device.Free(*memory);
      runtime.Collect();

      // Of the stream that captures: refused.
      const auto refused = [](const absl::Status& status) {
        EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      };
      refused(device.Synchronize(engine.stream()));
      refused(device.CopyToDevice(engine.layers().y(0), scratch.data(), 16, engine.stream()));
      refused(device.BeginCapture(engine.stream(), mode));
      refused(earlier.graph->Launch(engine.stream()));
      refused(runtime.OpenCapture(engine.stream()).status());  // it has a scope
      const Event event = Must(device.CreateEvent());
      refused(device.Record(event, engine.stream()));
      device.DestroyEvent(event);
    });
    EXPECT_EQ(captured.binding->launches(), Engine::kLayers);
    EXPECT_EQ(engine.Replay(captured, 11), "");
    EXPECT_EQ(engine.Eager(published), "");
    EXPECT_EQ(engine.ApplyAndReplay(captured), "");
    EXPECT_EQ(engine.TagOf(captured.binding->digest(captured.exec())), published);
    device.DestroyStream(another);
  }
}

// --- captures that come to nothing, scopes that go early or late

TEST_F(CapturesTest, ACaptureThatFailsToEndLeavesNothingBehind) {
  Engine engine;
  const Stream side = engine.NewStream();
  const uint64_t retired = engine.runtime().counters().retired;
  for (const CaptureMode mode : kCaptureModes) {
    for (const bool finish : {true, false}) {
      engine.Publish("compiled", 1);
      std::optional<GraphBinding> binding;
      ASSERT_KVR_OK(engine.device().BeginCapture(engine.stream(), mode));
      {
        const auto scope = Must(engine.runtime().OpenCapture(engine.stream()));
        ASSERT_KVR_OK(engine.Launch(0, engine.stream()));
        ASSERT_KVR_OK(engine.device().Wait(side, engine.stream()));
        ASSERT_KVR_OK(engine.Launch(1, side));  // and nobody waits for it
        if (finish) binding.emplace(Must(scope->Finish()));
        const absl::Status status = engine.device().EndCapture(engine.stream()).status();
        EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
        if (!finish) {
          EXPECT_TRUE(absl::IsFailedPrecondition(scope->Finish().status()));
        }
      }
      if (finish) {
        EXPECT_EQ(binding->launches(), 2);
      }
      EXPECT_EQ(engine.Eager(1), "");
      const Captured next = engine.Capture({}, mode);
      EXPECT_EQ(engine.Replay(next, 1), "");
    }
  }
  engine.PushOut();
  EXPECT_TRUE(engine.Retires(retired + 1)) << engine.runtime().counters().retired;
  EXPECT_EQ(engine.runtime().counters().unscoped, 0u);
}

TEST_F(CapturesTest, ACaptureThatTheApplicationInvalidatesIsAClearErrorInEveryCall) {
  if (!OnGpu()) GTEST_SKIP() << "nothing that an application calls invalidates a host capture";
  Engine engine;
  engine.Publish("counted", 3);
  const cuda::Driver& driver = *Must(cuda::GetDriver());
  for (int round = 0; round < 2; ++round) {
    ASSERT_KVR_OK(engine.device().BeginCapture(engine.stream(), CaptureMode::kGlobal));
    const auto scope = Must(engine.runtime().OpenCapture(engine.stream()));
    ASSERT_KVR_OK(engine.LaunchLayers());
    ASSERT_KVR_OK(engine.device().WithContext([&] {
      if (round == 0) {
        const auto stream = static_cast<cuda::StreamHandle>(engine.stream().handle);
        EXPECT_NE(driver.StreamSynchronize(stream), cuda::kSuccess);
      } else {  // as code that knows nothing of captures allocates
        int mode = cuda::kCaptureModeGlobal;
        cuda::DevicePtr memory = 0;
        EXPECT_EQ(driver.ThreadExchangeCaptureMode(&mode), cuda::kSuccess);
        EXPECT_NE(driver.MemAlloc(&memory, 4096), cuda::kSuccess);
        EXPECT_EQ(driver.ThreadExchangeCaptureMode(&mode), cuda::kSuccess);
      }
      return absl::OkStatus();
    }));
    const absl::Status statuses[] = {engine.LaunchLayers(), scope->Finish().status(),
                                     engine.runtime().OpenCapture(engine.stream()).status(),
                                     engine.device().EndCapture(engine.stream()).status(),
                                     scope->Finish().status()};
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_FALSE(Fix(status).empty()) << status;
    }
    EXPECT_EQ(engine.Eager(3), "");
    const Captured next = engine.Capture({}, CaptureMode::kGlobal);
    EXPECT_EQ(engine.Replay(next, 3), "");
  }
}

TEST_F(CapturesTest, ScopeBindingAndGraphMayGoInAnyOrder) {
  Engine engine;
  const uint64_t retired = engine.runtime().counters().retired;
  enum When { kBeforeFinish, kBeforeEnd, kAfterEnd, kAfterGraph };
  enum First { kGraphFirst, kBindingFirst };
  for (const bool finish : {true, false}) {
    for (const When when : {kBeforeFinish, kBeforeEnd, kAfterEnd, kAfterGraph}) {
      for (const First first : {kGraphFirst, kBindingFirst}) {
        for (const bool keeps_graph : {true, false}) {
          if (finish && when == kBeforeFinish) continue;
          if (!finish && when == kBeforeEnd) continue;
          engine.Publish("compiled", 2);
          ASSERT_KVR_OK(engine.device().BeginCapture(engine.stream(), CaptureMode::kThreadLocal));
          auto scope =
              Must(engine.runtime().OpenCapture(engine.stream(), {.keeps_graph = keeps_graph}));
          ASSERT_KVR_OK(engine.LaunchLayers());
          std::optional<GraphBinding> binding;
          if (finish) binding.emplace(Must(scope->Finish()));
          if (when <= kBeforeEnd) scope.reset();
          auto graph = Must(engine.device().EndCapture(engine.stream(), keeps_graph));
          if (when == kAfterEnd) scope.reset();
          engine.PushOut();  // the graph alone keeps what it runs
          EXPECT_EQ(engine.Replay({std::move(graph), nullptr}, 2), "");
          if (first == kBindingFirst) binding.reset();
        }
      }
    }
  }
  EXPECT_TRUE(engine.Retires(retired + 24)) << engine.runtime().counters().retired;
}

// --- launches outside a scope

TEST_F(CapturesTest, LaunchesOutsideAScopeAreFixedCountedAndNeverUnloaded) {
  Engine engine;
  engine.Publish("compiled", 4);
  const uint64_t retired = engine.runtime().counters().retired;
  for (const CaptureMode mode : kCaptureModes) {
    SCOPED_TRACE(ModeName(mode));
    engine.Publish("compiled", 4);
    ASSERT_KVR_OK(engine.device().BeginCapture(engine.stream(), mode));
    ASSERT_KVR_OK(engine.Launch(0, engine.stream()));  // before the scope
    ASSERT_KVR_OK(engine.Launch(2, engine.stream()));
    auto scope = Must(engine.runtime().OpenCapture(engine.stream(), {.keeps_graph = true}));
    ASSERT_KVR_OK(engine.Launch(1, engine.stream()));
    Captured mixed;
    mixed.binding = std::make_unique<GraphBinding>(Must(scope->Finish()));
    EXPECT_EQ(mixed.binding->launches(), 1);
    mixed.graph = Must(engine.device().EndCapture(engine.stream(), /*keep_graph=*/true));

    ASSERT_KVR_OK(engine.device().BeginCapture(engine.stream(), mode));
    ASSERT_KVR_OK(engine.LaunchLayers());
    const Captured fixed{Must(engine.device().EndCapture(engine.stream())), nullptr};

    engine.PushOut();
    EXPECT_EQ(engine.Replay(mixed, 4), "");
    EXPECT_EQ(Must(mixed.binding->Apply(mixed.exec())).outcome, Applied::kApplied);
    EXPECT_THAT(engine.Replay(mixed, 4), HasSubstr("layer 1")) << "the others are as captured";
    EXPECT_EQ(engine.Replay(fixed, 4), "");
  }
  EXPECT_EQ(engine.runtime().counters().unscoped, 3u * (Engine::kLayers + 2));
  EXPECT_EQ(engine.runtime().counters().captured, 3u);
  EXPECT_TRUE(engine.Retires(retired)) << engine.runtime().counters().retired;
}

TEST_F(CapturesTest, ALaunchAfterFinishIsRecordedAndTheGraphAsksToBeCapturedAgain) {
  Engine engine;
  for (const bool keeps_graph : {true, false}) {
    engine.Publish("tagged", 8);
    ASSERT_KVR_OK(engine.device().BeginCapture(engine.stream(), CaptureMode::kThreadLocal));
    const auto scope =
        Must(engine.runtime().OpenCapture(engine.stream(), {.keeps_graph = keeps_graph}));
    ASSERT_KVR_OK(engine.Launch(0, engine.stream()));
    ASSERT_KVR_OK(engine.Launch(1, engine.stream()));
    Captured captured;
    captured.binding = std::make_unique<GraphBinding>(Must(scope->Finish()));
    ASSERT_KVR_OK(engine.Launch(2, engine.stream()));
    captured.graph = Must(engine.device().EndCapture(engine.stream(), keeps_graph));
    EXPECT_EQ(engine.Replay(captured, 8), "");
    engine.Publish("tagged", 9);
    const Applied applied = Must(captured.binding->Apply(captured.exec()));
    EXPECT_EQ(applied.outcome, Applied::kNeedsRecapture);
    EXPECT_THAT(applied.reason, HasSubstr("after Finish()"));
    EXPECT_EQ(engine.Replay(captured, 8), "") << "it runs what it ran";
  }
}

TEST_F(CapturesTest, WhatDoesNotFitTheGraphAsksForARecaptureAndLeavesItAsItIs) {
  Engine engine;
  for (const bool keeps_graph : {true, false}) {
    engine.Publish("tagged", 40);
    Captured captured = engine.Capture({.keeps_graph = keeps_graph});
    const Fingerprint before = captured.binding->digest(captured.exec());
    engine.Publish("counted", 41);  // a clear and a kernel more, and no spare nodes
    const Applied applied = Must(captured.binding->Apply(captured.exec()));
    EXPECT_EQ(applied.outcome, Applied::kNeedsRecapture);
    EXPECT_THAT(applied.reason, HasSubstr("tagged -> counted"));
    EXPECT_EQ(applied.digest, before);
    EXPECT_EQ(captured.binding->digest(captured.exec()), before);
    EXPECT_EQ(engine.Replay(captured, 40), "");
    engine.Publish("compiled", 2);
    EXPECT_EQ(engine.ApplyAndReplay(captured), "");
    engine.Publish("counted", 42);
    captured = engine.Capture({.keeps_graph = keeps_graph});
    EXPECT_EQ(engine.Replay(captured, 42), "");
    engine.Publish("tagged", 43);  // fewer always fit
    EXPECT_EQ(engine.ApplyAndReplay(captured), "");
    EXPECT_EQ(engine.TagOf(captured.binding->digest(captured.exec())), 43);
  }
  EXPECT_EQ(engine.runtime().counters().recaptures, 2u);
}

// --- several streams, the application's own work

TEST_F(CapturesTest, ForkedStreamsAndTheApplicationsOwnWorkKeepTheirOrderThroughSwaps) {
  for (const bool keeps_graph : {true, false}) {
    Engine engine;
    OwnKernel own(engine.runtime());
    Layers& layers = engine.layers();
    Device& device = engine.device();
    const Stream stream = engine.stream(), side = engine.NewStream();
    Layers chained(device, stream, 2);
    const auto run = [&](int layer, Stream on) {
      return engine.runtime().Launch("null", chained.views(layer), on);
    };
    const int count = static_cast<int>(kElements);
    engine.Publish("counted", 21);

    // Everything is chained through copies of the application: y0 = x0 + tag; on two streams
    // y1 = y0 + tag and y2 = y0 + tag; joined, y1 + tag and y2 + tag.
    ASSERT_KVR_OK(device.BeginCapture(stream, CaptureMode::kGlobal));
    const auto scope =
        Must(engine.runtime().OpenCapture(stream, {.spare_nodes = 1, .keeps_graph = keeps_graph}));
    ASSERT_KVR_OK(layers.Poison());
    ASSERT_KVR_OK(engine.Launch(0, stream));
    ASSERT_KVR_OK(device.Wait(side, stream));
    for (const int branch : {1, 2}) {
      const Stream on = branch == 1 ? side : stream;
      ASSERT_KVR_OK(device.MemsetAsync(layers.x(branch), 0, kElements * 4, on));
      ASSERT_KVR_OK(own.Copy(layers.y(0), layers.x(branch), count, on));
      ASSERT_KVR_OK(engine.Launch(branch, on));
    }
    ASSERT_KVR_OK(device.Wait(stream, side));
    for (const int branch : {1, 2}) {
      ASSERT_KVR_OK(own.Copy(layers.y(branch), chained.x(branch - 1), count, stream));
      ASSERT_KVR_OK(run(branch - 1, stream));
    }
    Captured captured;
    captured.binding = std::make_unique<GraphBinding>(Must(scope->Finish()));
    captured.graph = Must(device.EndCapture(stream, keeps_graph));
    EXPECT_EQ(captured.binding->launches(), 5);

    struct Swap {
      const char* variant;
      int tag;
    };
    const Swap swaps[] = {{"counted", 21}, {"tagged", 22},  {"compiled", 3},
                          {"counted", 23}, {"baseline", 0}, {"counted", 4000}};
    for (const Swap& swap : swaps) {
      SCOPED_TRACE(StrCat(swap.variant, " ", swap.tag));
      engine.Publish(swap.variant, swap.tag);
      const Applied applied = Must(captured.binding->Apply(captured.exec()));
      ASSERT_NE(applied.outcome, Applied::kNeedsRecapture) << applied.reason;
      EXPECT_KVR_OK(chained.Poison());
      EXPECT_KVR_OK(captured.graph->Launch(stream));
      std::vector<float> out(2 * kElements);
      EXPECT_KVR_OK(device.CopyToHost(out.data(), chained.y(0), chained.bytes(), stream));
      EXPECT_KVR_OK(device.Synchronize(stream));
      for (int64_t i = 0; i < 2 * kElements; ++i) {
        ASSERT_EQ(out[static_cast<size_t>(i)],
                  layers.input(0, i % kElements) + static_cast<float>(3 * swap.tag))
            << "element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace kvr
