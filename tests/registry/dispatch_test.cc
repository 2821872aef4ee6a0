// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <utility>

#include "bench/counting.h"
#include "registry/dispatcher.h"
#include "tests/registry/fakes.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;

const std::vector<Axes> kShapes = {{{"n", 1000}}};
constexpr Stream kDefaultStream{};

TEST(Dispatch, LaunchesWhatWasLoaded) {
  World world;
  const auto dispatcher = world.Dispatch();
  const absl::StatusOr<LoadReport> report = dispatcher->Load("axpy", kShapes);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_TRUE(report->ready()) << report->Text();
  EXPECT_EQ(report->items[0].variant, "baseline");
  EXPECT_EQ(report->items[0].key, (Axes{{"n", 1024}}));
  EXPECT_THAT(report->Text(), HasSubstr("baseline"));
  const AxpyTensors tensors(1000);
  EXPECT_TRUE(dispatcher->Launch("axpy", tensors.views, kDefaultStream).ok());
  EXPECT_TRUE(dispatcher->Launch(*dispatcher->FindOp("axpy"), tensors.views, kDefaultStream).ok());
  EXPECT_EQ(world.device->counters().launches, 2);
  EXPECT_EQ(dispatcher->counters().misses, 0u);
  // Asked again, it is there.
  const int compiles = world.compiles;
  EXPECT_TRUE(dispatcher->Load("axpy", kShapes)->items[0].cache_hit);
  EXPECT_EQ(world.compiles, compiles);
}

TEST(Dispatch, OtherShapesOfALoadedKeyAreNoMiss) {
  World world;
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  dispatcher->Freeze();
  EXPECT_TRUE(dispatcher->Launch("axpy", AxpyTensors(600).views, kDefaultStream).code() ==
              absl::StatusCode::kFailedPrecondition);  // no workspace for the stream yet
  dispatcher->Thaw();
  ASSERT_TRUE(dispatcher->PrepareStream(kDefaultStream).ok());
  dispatcher->Freeze();
  EXPECT_TRUE(dispatcher->Launch("axpy", AxpyTensors(600).views, kDefaultStream).ok());
  EXPECT_EQ(dispatcher->counters().misses, 0u);
}

TEST(Dispatch, AnEmptyBatchLaunchesNothing) {
  World world;
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Load("axpy", {{{"n", 0}}})->ready());
  EXPECT_TRUE(dispatcher->Launch("axpy", AxpyTensors(0).views, kDefaultStream).ok());
  EXPECT_EQ(world.device->counters().launches, 0);
}

TEST(Dispatch, AnEmptyBatchClearsNothingThoughARegionHasASizeOfItsOwn) {
  auto variant = AxpyVariant("baseline", true);
  variant->plan.regions[0].elements = Expr::Constant(64);
  World world({std::move(variant)});
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Load("axpy", {{{"n", 0}}, {{"n", 1}}})->ready());
  const AxpyTensors none(0), one(1);
  EXPECT_TRUE(dispatcher->Launch("axpy", none.views, kDefaultStream).ok());
  absl::StatusOr<BoundLaunch> bound = dispatcher->Bind("axpy", none.views);
  ASSERT_TRUE(bound.ok());
  EXPECT_TRUE(bound->Launch(kDefaultStream).ok());
  EXPECT_EQ(world.device->counters().bytes_set, 0);
  EXPECT_TRUE(dispatcher->Launch("axpy", one.views, kDefaultStream).ok());
  EXPECT_EQ(world.device->counters().bytes_set, 256);
}

TEST(Dispatch, RegistriesTakeTurnsOnOneThread) {
  // Whatever a thread remembers of one is not taken for another, dead ones at the same address too.
  const AxpyTensors tensors(1000);
  World kept;
  const auto one = kept.Dispatch();
  ASSERT_TRUE(one->Load("axpy", kShapes)->ready());
  for (int64_t i = 1; i <= 5; ++i) {
    World world;
    const auto other = world.Dispatch();
    ASSERT_TRUE(other->Load("axpy", kShapes)->ready());
    for (int64_t turn = 1; turn <= 3; ++turn) {
      EXPECT_TRUE(one->Launch("axpy", tensors.views, kDefaultStream).ok());
      EXPECT_TRUE(other->Launch("axpy", tensors.views, kDefaultStream).ok());
      EXPECT_TRUE(other->Launch("axpy", tensors.views, kDefaultStream).ok());
      EXPECT_EQ(world.device->counters().launches, 2 * turn);
    }
    EXPECT_EQ(kept.device->counters().launches, 3 * i);
  }
}

// Made before the thread's first launch, so it goes after all that a launch made for the thread.
struct Last {
  ~Last() {
    if (launch != nullptr) launch();
  }
  std::function<void()> launch;
};

TEST(Dispatch, ADestructorAtTheEndOfItsThreadMayLaunch) {
  World world;
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  const AxpyTensors tensors(1000);
  int launched = 0;
  const auto launch = [&] {
    launched += dispatcher->Launch("axpy", tensors.views, kDefaultStream).ok();
  };
  for (int i = 0; i < 2; ++i) {
    std::thread([&] {
      static thread_local Last last;
      last.launch = [&] {
        launch();
        launch();
      };
      launch();
    }).join();
  }
  EXPECT_EQ(launched, 6);
  EXPECT_EQ(world.device->counters().launches, 6);
  EXPECT_TRUE(dispatcher->Publish(world.Select({{1000, "wide"}})).ok());
}

TEST(Dispatch, AShapeAfterARefusedLaunchIsReadAnew) {
  World world;
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  const AxpyTensors tensors(1000), other(900);
  AxpyTensors wrong(800);
  wrong.views[3].shape[0] = 801;
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(dispatcher->Launch("axpy", tensors.views, kDefaultStream).ok());
    EXPECT_FALSE(dispatcher->Launch("axpy", wrong.views, kDefaultStream).ok());
    EXPECT_TRUE(dispatcher->Launch("axpy", other.views, kDefaultStream).ok());
    EXPECT_FALSE(dispatcher->Launch("axpy", wrong.views, kDefaultStream).ok());
  }
  // 16 blocks of 64 for 1000 and 15 for 900, four bytes of cleared workspace each.
  EXPECT_EQ(world.device->counters().bytes_set, 2 * 4 * (16 + 15));
}

TEST(Dispatch, WrongTensorsAreRefused) {
  World world;
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  const auto launch = [&](auto&& change) {
    AxpyTensors tensors(1000);
    change(tensors.views);
    return dispatcher->Launch("axpy", tensors.views, kDefaultStream);
  };
  using Views = std::vector<TensorView>;
  EXPECT_TRUE(launch([](Views&) {}).ok());
  EXPECT_FALSE(launch([](Views& v) { v.pop_back(); }).ok());
  EXPECT_FALSE(launch([](Views& v) { v[0].dtype = DType::kF64; }).ok());
  EXPECT_FALSE(launch([](Views& v) { v[1].shape[0] = 999; }).ok());
  EXPECT_FALSE(launch([](Views& v) { v[0].data = nullptr; }).ok());
  EXPECT_FALSE(launch([](Views& v) { v[3].data = static_cast<char*>(v[3].data) + 2; }).ok());
  EXPECT_TRUE(launch([](Views& v) { v[2].data = nullptr; }).ok());  // the scalar's default
  EXPECT_TRUE(absl::IsNotFound(dispatcher->Launch("axpi", {}, kDefaultStream)));
  EXPECT_TRUE(absl::IsInvalidArgument(dispatcher->Launch(OpHandle{}, {}, kDefaultStream)));
}

TEST(Dispatch, AMissTakesTheBaselineAndSaysWhichKey) {
  World world;
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(dispatcher->Launch("axpy", AxpyTensors(5000).views, kDefaultStream).ok());
  }
  EXPECT_EQ(dispatcher->counters().misses, 3u);
  EXPECT_EQ(dispatcher->counters().baseline, 3u);
  ASSERT_EQ(dispatcher->misses().size(), 1u);
  EXPECT_EQ(dispatcher->misses()[0].key, (Axes{{"n", 8192}}));
  EXPECT_EQ(dispatcher->misses()[0].count, 3u);
}

TEST(Dispatch, AMissIsAnErrorWhereThePolicySaysSo) {
  World world;
  const auto dispatcher = world.Dispatch({.miss_policy = MissPolicy::kError});
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  const absl::Status status = dispatcher->Launch("axpy", AxpyTensors(5000).views, kDefaultStream);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(What(status)), HasSubstr("n=8192"));
  EXPECT_EQ(dispatcher->counters().refused, 1u);
  EXPECT_EQ(world.device->counters().launches, 0);
}

TEST(Dispatch, AMissIsCompiledWhereThePolicySaysSoUnlessFrozenOrCapturing) {
  World world;
  const auto dispatcher = world.Dispatch({.miss_policy = MissPolicy::kJit});
  ASSERT_TRUE(dispatcher->PrepareStream(kDefaultStream).ok());
  EXPECT_TRUE(dispatcher->Launch("axpy", AxpyTensors(1000).views, kDefaultStream).ok());
  EXPECT_EQ(dispatcher->counters().loaded_in_launch, 1u);
  EXPECT_TRUE(dispatcher->Launch("axpy", AxpyTensors(1000).views, kDefaultStream).ok());
  EXPECT_EQ(dispatcher->counters().misses, 1u);

  const Stream stream = *world.device->CreateStream();
  ASSERT_TRUE(dispatcher->PrepareStream(stream).ok());
  const int compiles = world.compiles;
  const auto launch = [&] { return dispatcher->Launch("axpy", AxpyTensors(70).views, stream); };
  EXPECT_TRUE(world.device->Capture(stream, launch).ok());  // the baseline
  dispatcher->Freeze();
  EXPECT_TRUE(launch().ok());
  EXPECT_EQ(dispatcher->counters().loaded_in_launch, 1u);
  EXPECT_EQ(dispatcher->counters().baseline, 2u);
  EXPECT_EQ(world.compiles, compiles);
  world.device->DestroyStream(stream);
}

TEST(Dispatch, AMissThatDoesNotCompileTakesTheBaselineAndIsNotTriedAgain) {
  World world({AxpyVariant("baseline", true), AxpyVariant("broken"), AxpyVariant("wide")});
  const auto dispatcher = world.Dispatch({.miss_policy = MissPolicy::kJit});
  ASSERT_TRUE(dispatcher->PrepareStream(kDefaultStream).ok());
  ASSERT_TRUE(dispatcher->Publish(world.Select({{64, "broken"}}, 1)).ok());
  const AxpyTensors tensors(64);
  const absl::Status first = dispatcher->Launch("axpy", tensors.views, kDefaultStream);
  EXPECT_TRUE(first.ok()) << first;
  absl::StatusOr<BoundLaunch> bound = dispatcher->Bind("axpy", tensors.views);
  ASSERT_TRUE(bound.ok()) << bound.status();
  EXPECT_EQ(bound->prepared().variant().name, "baseline");

  const int64_t builds = world.jit->stats().builds;
  const int64_t before = AllocationsOfThisThread();
  int failures = 0;
  for (int i = 0; i < 10; ++i) {
    failures += !dispatcher->Launch("axpy", tensors.views, kDefaultStream).ok();
  }
  EXPECT_EQ(AllocationsOfThisThread() - before, 0);
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(world.jit->stats().builds, builds);
  EXPECT_EQ(dispatcher->counters().baseline, 12u);
  EXPECT_EQ(dispatcher->counters().misses, 12u);
  EXPECT_EQ(dispatcher->counters().loaded_in_launch, 0u);

  // The next generation is another chance.
  ASSERT_TRUE(dispatcher->Publish(world.Select({{64, "wide"}}, 2)).ok());
  EXPECT_TRUE(bound->Launch(kDefaultStream).ok());
  EXPECT_EQ(bound->prepared().variant().name, "wide");
  EXPECT_EQ(dispatcher->counters().loaded_in_launch, 1u);
}

TEST(Dispatch, AMissThatNothingServesSaysWhyItDidNotLoad) {
  auto baseline = AxpyVariant("broken", true);
  World world({std::move(baseline)});
  const auto dispatcher = world.Dispatch({.miss_policy = MissPolicy::kJit});
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = dispatcher->Launch("axpy", AxpyTensors(64).views, kDefaultStream);
    EXPECT_TRUE(absl::IsFailedPrecondition(status));
    EXPECT_THAT(std::string(What(status)), HasSubstr("broken.cu:1:1"));
  }
  EXPECT_EQ(dispatcher->counters().refused, 2u);
  EXPECT_EQ(world.jit->stats().builds, 1);
}

TEST(Dispatch, AForcedVariantThatDoesNotFitIsNotLoadedAgainAtEveryLaunch) {
  World world({AxpyVariant("baseline", true), AxpyVariant("even", false, "mod(n, 2) == 0")});
  SteppedDevice device(*world.device);
  DispatcherOptions options{.miss_policy = MissPolicy::kJit};
  ASSERT_TRUE(options.overrides.Force(world.catalog, "axpy", "even").ok());
  Dispatcher dispatcher(world.catalog, device, *world.jit, std::move(options));
  ASSERT_TRUE(dispatcher.PrepareStream(kDefaultStream).ok());
  int asked = 0;  // by each launch, and before it loads
  device.on_is_capturing = [&] { ++asked; };
  const AxpyTensors odd(61), even(62);
  const absl::Status first = dispatcher.Launch("axpy", odd.views, kDefaultStream);
  EXPECT_TRUE(first.ok()) << first;
  EXPECT_EQ(asked, 2);
  EXPECT_TRUE(dispatcher.Launch("axpy", odd.views, kDefaultStream).ok());
  EXPECT_TRUE(dispatcher.Launch("axpy", even.views, kDefaultStream).ok());
  EXPECT_EQ(asked, 4);  // the launches alone
  EXPECT_EQ(dispatcher.counters().baseline, 2u);
  EXPECT_EQ(dispatcher.Bind("axpy", even.views)->prepared().variant().name, "even");
}

TEST(Dispatch, ALaunchThatLoadedTakesTheWorkspacesItGrew) {
  World world;
  SteppedDevice device(*world.device);
  Dispatcher dispatcher(world.catalog, device, *world.jit, {.miss_policy = MissPolicy::kJit});
  ASSERT_TRUE(dispatcher.PrepareStream(kDefaultStream).ok());
  device.on_load = [&] { dispatcher.Freeze(); };
  const absl::Status status = dispatcher.Launch("axpy", AxpyTensors(1000).views, kDefaultStream);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(dispatcher.counters().loaded_in_launch, 1u);
}

TEST(Dispatch, AKeyTheGenerationDoesNotSelectIsAMissForThatOpOnly) {
  World world;
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Publish(world.Select({{64, "wide"}})).ok());
  const absl::StatusOr<LoadReport> report = dispatcher->Load("axpy", {{{"n", 64}}, {{"n", 65}}});
  ASSERT_TRUE(report->ready());
  EXPECT_EQ(report->items[0].variant, "wide");
  EXPECT_EQ(report->items[1].variant, "baseline");
  EXPECT_THAT(report->items[1].why, HasSubstr("no selection for {n=128}"));
  EXPECT_TRUE(dispatcher->Launch("axpy", AxpyTensors(64).views, kDefaultStream).ok());
  EXPECT_EQ(dispatcher->counters().misses, 0u);
  EXPECT_TRUE(dispatcher->Launch("axpy", AxpyTensors(65).views, kDefaultStream).ok());
  EXPECT_EQ(dispatcher->counters().misses, 1u);
}

TEST(Dispatch, LoadWithoutShapesTakesEverySelectedKey) {
  World world;
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Publish(world.Select({{64, "wide"}, {512, "baseline"}})).ok());
  const absl::StatusOr<LoadReport> report = dispatcher->Load("axpy", {});
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->items.size(), 2u);
  EXPECT_TRUE(report->ready());
}

TEST(Dispatch, LoadReportsEachShapeInOrder) {
  World world;
  const auto dispatcher = world.Dispatch();
  const absl::StatusOr<LoadReport> report =
      dispatcher->Load("axpy", {{{"n", 10}}, {{"m", 3}}, {{"n", 20}}});
  ASSERT_TRUE(report.ok());
  EXPECT_FALSE(report->ready());
  EXPECT_TRUE(report->items[0].status.ok());
  EXPECT_EQ(report->items[0].axes.at("n"), 10);
  EXPECT_FALSE(report->items[1].status.ok());
  EXPECT_TRUE(report->items[2].status.ok());
  EXPECT_EQ(report->items[2].axes.at("n"), 20);
}

TEST(Dispatch, AVariantThatDoesNotCompileIsReportedAndTheRestServes) {
  World world({AxpyVariant("baseline", true), AxpyVariant("broken"), AxpyVariant("wide")});
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Publish(world.Select({{64, "broken"}, {128, "wide"}})).ok());
  const absl::StatusOr<LoadReport> report = dispatcher->Load("axpy", {{{"n", 64}}, {{"n", 128}}});
  ASSERT_TRUE(report.ok());
  EXPECT_THAT(std::string(What(report->items[0].status)), HasSubstr("broken.cu:1:1"));
  EXPECT_TRUE(report->items[1].status.ok());
  EXPECT_TRUE(report->fallback.ok());
  EXPECT_TRUE(dispatcher->Launch("axpy", AxpyTensors(64).views, kDefaultStream).ok());
  EXPECT_EQ(dispatcher->counters().baseline, 1u);
}

TEST(Dispatch, AConfigThatDoesNotFitAShapeOfItsBucketGivesWayToTheBaseline) {
  World world({AxpyVariant("baseline", true), AxpyVariant("even", false, "mod(n, 2) == 0")});
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Publish(world.Select({{64, "even"}})).ok());
  const absl::StatusOr<LoadReport> report = dispatcher->Load("axpy", {{{"n", 62}}, {{"n", 61}}});
  ASSERT_TRUE(report->ready()) << report->Text();
  EXPECT_EQ(report->items[0].variant, "even");
  EXPECT_EQ(report->items[1].variant, "baseline");
  EXPECT_THAT(report->items[1].why, HasSubstr("even does not fit"));
  // And so does a shape met only in the launch.
  EXPECT_TRUE(dispatcher->Launch("axpy", AxpyTensors(59).views, kDefaultStream).ok());
  EXPECT_EQ(dispatcher->counters().baseline, 1u);
}

TEST(Dispatch, FrozenLaunchesCompileLoadAndAllocateNothing) {
  World world;
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  ASSERT_TRUE(dispatcher->PrepareStream(kDefaultStream).ok());
  const Stream other = *world.device->CreateStream();
  dispatcher->Freeze();
  const NullCounters before = world.device->counters();
  const int compiles = world.compiles;
  EXPECT_TRUE(dispatcher->Launch("axpy", AxpyTensors(1000).views, kDefaultStream).ok());
  EXPECT_FALSE(dispatcher->Launch("axpy", AxpyTensors(1 << 20).views, kDefaultStream).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(dispatcher->Load("axpy", kShapes).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(dispatcher->PrepareStream(other)));
  EXPECT_EQ(world.device->counters().allocations, before.allocations);
  EXPECT_EQ(world.device->counters().modules, before.modules);
  EXPECT_EQ(world.compiles, compiles);
  dispatcher->Thaw();
  EXPECT_TRUE(dispatcher->Launch("axpy", AxpyTensors(1 << 20).views, kDefaultStream).ok());
  world.device->DestroyStream(other);
}

TEST(Dispatch, AnExplicitSwapRunsWhileFrozen) {
  World world;
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  dispatcher->Freeze();
  const absl::StatusOr<LoadReport> report = dispatcher->Publish(world.Select({{1000, "wide"}}, 3));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->items[0].variant, "wide");
  EXPECT_EQ(dispatcher->generation()->number(), 3);
}

TEST(Dispatch, AFailedPublishLeavesTheOldGenerationServing) {
  World world({AxpyVariant("baseline", true), AxpyVariant("broken"), AxpyVariant("wide")});
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Publish(world.Select({{1000, "wide"}}, 1)).ok());
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  const absl::Status status = dispatcher->Publish(world.Select({{1000, "broken"}}, 2)).status();
  EXPECT_THAT(std::string(What(status)), HasSubstr("generation 2"));
  EXPECT_EQ(dispatcher->generation()->number(), 1);
  const absl::StatusOr<BoundLaunch> bound = dispatcher->Bind("axpy", AxpyTensors(1000).views);
  EXPECT_EQ(bound->prepared().variant().name, "wide");
}

TEST(Dispatch, AGenerationOfAnotherDeviceIsNotPublished) {
  World world;
  const auto dispatcher = world.Dispatch();
  EXPECT_TRUE(absl::IsFailedPrecondition(
      dispatcher->Publish(GenerationBuilder("other", "null").Build(1)).status()));
}

TEST(Dispatch, PublishingChangesTheKeyPolicyOfWhatIsLoaded) {
  World world;
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  const absl::StatusOr<LoadReport> report =
      dispatcher->Publish(world.Select({{1000, "wide"}}, 1, "n:exact"));
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->items[0].key, (Axes{{"n", 1000}}));
  EXPECT_TRUE(dispatcher->Launch("axpy", AxpyTensors(1000).views, kDefaultStream).ok());
  EXPECT_EQ(dispatcher->counters().misses, 0u);
}

TEST(Dispatch, SwappingBackLoadsNothingTwice) {
  World world;
  const auto dispatcher = world.Dispatch();
  const GenerationPtr wide = world.Select({{1000, "wide"}}, 1);
  const GenerationPtr base = world.Select({{1000, "baseline"}}, 2);
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  ASSERT_TRUE(dispatcher->Publish(wide).ok());
  const int64_t modules = world.device->counters().modules;
  const int compiles = world.compiles;
  ASSERT_TRUE(dispatcher->Publish(base).ok());
  ASSERT_TRUE(dispatcher->Publish(wide).ok());
  EXPECT_EQ(world.device->counters().modules, modules);
  EXPECT_EQ(world.compiles, compiles);
}

TEST(Dispatch, AnOverrideIsServedAndMarked) {
  World world;
  DispatcherOptions options;
  ASSERT_TRUE(options.overrides.Force(world.catalog, "axpy", "wide").ok());
  ASSERT_TRUE(options.overrides.Set(world.catalog, "axpy", "BLOCK", 256).ok());
  const auto dispatcher = world.Dispatch(std::move(options));
  const absl::StatusOr<LoadReport> report = dispatcher->Load("axpy", kShapes);
  ASSERT_TRUE(report->ready());
  EXPECT_EQ(report->items[0].variant, "wide");
  EXPECT_EQ(report->items[0].config.at("BLOCK"), 256);
  EXPECT_TRUE(report->items[0].overridden);
  const AxpyTensors tensors(1000);
  EXPECT_EQ(dispatcher->Bind("axpy", tensors.views)->prepared().config().at("BLOCK"), 256);
}

TEST(Dispatch, TheMeasuredBinaryIsTakenFromTheCacheWithoutACompiler) {
  World world;
  BinaryPtr binary;
  {
    const auto dispatcher = world.Dispatch();
    ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
    binary = world.cache.Get(dispatcher->Load("axpy", kShapes)->items[0].binary);
  }
  ASSERT_NE(binary, nullptr);
  const GenerationPtr empty_binary = world.Select({{1000, "baseline"}});
  const BucketedKey key = empty_binary->FindOp("axpy")->selections.begin()->first;
  Selection selection = *empty_binary->Find("axpy", key);
  selection.binary = binary->key;
  GenerationBuilder builder(*empty_binary);
  ASSERT_TRUE(builder.Select("axpy", key, selection).ok());

  Jit no_compilers({}, &world.cache);
  Dispatcher dispatcher(world.catalog, *world.device, no_compilers, {});
  ASSERT_TRUE(dispatcher.Publish(builder.Build(1)).ok());
  const absl::StatusOr<LoadReport> report = dispatcher.Load("axpy", kShapes);
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->ready()) << report->Text();
  EXPECT_EQ(report->items[0].binary, binary->key);
  // The baseline under its default config has no known key here: only misses would need it.
  EXPECT_FALSE(report->fallback.ok());
}

TEST(Dispatch, AMeasuredBinaryThatDoesNotLoadHereIsBuiltAnew) {
  World world;
  auto foreign = std::make_shared<Binary>();  // none of the kernels: as little use as another CPU's
  foreign->key = FingerprintOf("foreign");
  foreign->target = "null";
  foreign->bytes = "foreign";
  world.cache.Put(foreign, "foreign");
  const GenerationPtr plain = world.Select({{1000, "wide"}});
  const BucketedKey key = plain->FindOp("axpy")->selections.begin()->first;
  Selection selection = *plain->Find("axpy", key);
  selection.binary = foreign->key;
  GenerationBuilder builder(*plain);
  ASSERT_TRUE(builder.Select("axpy", key, selection).ok());

  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Publish(builder.Build(1)).ok());
  const absl::StatusOr<LoadReport> report = dispatcher->Load("axpy", kShapes);
  ASSERT_TRUE(report.ok());
  ASSERT_TRUE(report->ready()) << report->Text();
  EXPECT_EQ(report->items[0].variant, "wide");
  EXPECT_NE(report->items[0].binary, foreign->key);
  EXPECT_FALSE(report->items[0].cache_hit);
  EXPECT_THAT(report->items[0].why, HasSubstr("does not load: axpy/wide"));
  EXPECT_EQ(dispatcher->Bind("axpy", AxpyTensors(1000).views)->prepared().variant().name, "wide");

  // Without a compiler the reason is that of the binary.
  Jit no_compilers({}, &world.cache);
  Dispatcher cannot(world.catalog, *world.device, no_compilers, {});
  ASSERT_TRUE(cannot.Publish(builder.Build(1)).ok());
  EXPECT_THAT(std::string(What(cannot.Load("axpy", kShapes)->items[0].status)),
              HasSubstr("has no kernel 'axpy<BLOCK>'"));
}

TEST(Workspaces, AreSizedAtLoadPerStreamAndApartForCaptures) {
  World world;
  const auto dispatcher = world.Dispatch();
  const Stream a = *world.device->CreateStream(), b = *world.device->CreateStream();
  ASSERT_TRUE(dispatcher->PrepareStream(a).ok());
  ASSERT_TRUE(dispatcher->PrepareStream(b).ok());
  const absl::StatusOr<LoadReport> report = dispatcher->Load("axpy", {{{"n", 64 * 1000}}});
  EXPECT_EQ(report->items[0].workspace_bytes, 4096);  // the representative's 1024 blocks
  EXPECT_EQ(report->workspace_bytes, 4096);
  EXPECT_EQ(world.device->counters().bytes_allocated, 4 * 4096);
  const AxpyTensors tensors(64 * 1000);
  EXPECT_TRUE(dispatcher->Launch("axpy", tensors.views, a).ok());
  const auto graph =
      world.device->Capture(b, [&] { return dispatcher->Launch("axpy", tensors.views, b); });
  EXPECT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(world.device->counters().captured_launches, 1);
  EXPECT_EQ(dispatcher->counters().captured, 0u);
  EXPECT_EQ(dispatcher->counters().unscoped, 1u);
  EXPECT_EQ(world.device->counters().bytes_allocated, 4 * 4096);
  world.device->DestroyStream(a);
  world.device->DestroyStream(b);
}

TEST(Workspaces, AStreamNotPreparedIsAnErrorInACaptureAndThatLeavesNothingEnqueued) {
  World world;
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  const Stream stream = *world.device->CreateStream();
  const NullCounters before = world.device->counters();
  const auto launch = [&] { return dispatcher->Launch("axpy", AxpyTensors(1000).views, stream); };
  const absl::Status status = world.device->Capture(stream, launch).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(Fix(status)), HasSubstr("PrepareStream"));
  EXPECT_EQ(world.device->counters().captured_launches, 0);
  EXPECT_EQ(world.device->counters().allocations, before.allocations);
  EXPECT_TRUE(launch().ok());
  world.device->DestroyStream(stream);
}

TEST(Workspaces, TheCallersOwnIsCheckedAndUsed) {
  World world;
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  dispatcher->Freeze();
  const AxpyTensors tensors(1000);
  alignas(256) static std::byte memory[1024];
  EXPECT_TRUE(dispatcher->Launch("axpy", tensors.views, kDefaultStream, {memory, 1024}).ok());
  EXPECT_FALSE(dispatcher->Launch("axpy", tensors.views, kDefaultStream, {memory, 16}).ok());
  EXPECT_FALSE(dispatcher->Launch("axpy", tensors.views, kDefaultStream, {memory + 4, 1020}).ok());
  absl::StatusOr<BoundLaunch> bound = dispatcher->Bind("axpy", tensors.views);
  ASSERT_TRUE(bound.ok());
  EXPECT_FALSE(bound->Launch(kDefaultStream).ok());
  EXPECT_FALSE(bound->SetWorkspace({memory + 4, 1020}).ok());
  ASSERT_TRUE(bound->SetWorkspace({memory, 1024}).ok());
  EXPECT_TRUE(bound->Launch(kDefaultStream).ok());
}

TEST(Workspaces, ThePerThreadDefaultStreamOfCudaIsRefused) {
  DeviceInfo info = NullDeviceInfo();
  info.kind = "cuda";
  const std::unique_ptr<NullDevice> device = OpenNull(info);
  WorkspacePool pool(*device);
  const Stream per_thread{reinterpret_cast<void*>(2)};
  EXPECT_TRUE(absl::IsInvalidArgument(pool.Grow(1, &per_thread).status()));
}

TEST(Bound, ScalarsAreCopiedAndTensorsMayMove) {
  World world;
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  AxpyTensors tensors(1000);
  absl::StatusOr<BoundLaunch> bound = dispatcher->Bind("axpy", tensors.views);
  ASSERT_TRUE(bound.ok());
  EXPECT_TRUE(bound->SetData(0, tensors.memory.data()).ok());
  EXPECT_TRUE(bound->SetData(2, nullptr).ok());
  EXPECT_TRUE(bound->SetData(2, &tensors.alpha).ok());
  EXPECT_FALSE(bound->SetData(4, &tensors.alpha).ok());
  EXPECT_FALSE(bound->SetData(-1, &tensors.alpha).ok());
  EXPECT_FALSE(bound->SetData(1, nullptr).ok());
  EXPECT_FALSE(bound->SetData(1, reinterpret_cast<char*>(tensors.memory.data()) + 1).ok());
  BoundLaunch moved = *std::move(bound);
  EXPECT_TRUE(moved.Launch(kDefaultStream).ok());
  EXPECT_EQ(moved.workspace_bytes(), 256);
}

TEST(Bound, AGenerationPublishedWhileItPlansIsTakenByTheNextLaunch) {
  World world;
  SteppedDevice device(*world.device);
  Dispatcher dispatcher(world.catalog, device, *world.jit, {.miss_policy = MissPolicy::kJit});
  ASSERT_TRUE(dispatcher.Load("axpy", kShapes)->ready());
  ASSERT_TRUE(dispatcher.PrepareStream(kDefaultStream).ok());
  const AxpyTensors tensors(5000);
  device.capturing = true;  // so that the miss is not loaded at once
  int failures = 0;
  bool published = false;
  device.on_is_capturing = [&] {
    if (std::exchange(published, true)) return;
    std::thread([&] {
      failures += !dispatcher.Publish(world.Select({{1000, "wide"}, {5000, "wide"}})).ok();
      failures += !dispatcher.Load("axpy", {{{"n", 5000}}})->ready();
    }).join();
  };
  absl::StatusOr<BoundLaunch> bound = dispatcher.Bind("axpy", tensors.views);
  ASSERT_TRUE(bound.ok()) << bound.status();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(bound->prepared().variant().name, "baseline");
  device.capturing = false;
  EXPECT_TRUE(bound->Launch(kDefaultStream).ok());
  EXPECT_EQ(bound->prepared().variant().name, "wide");
}

TEST(Bound, AMissedKeyIsCountedAtEveryLaunch) {
  World world;
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  const AxpyTensors tensors(5000);
  absl::StatusOr<BoundLaunch> bound = dispatcher->Bind("axpy", tensors.views);  // one
  ASSERT_TRUE(bound.ok());
  ASSERT_TRUE(dispatcher->PrepareStream(kDefaultStream).ok());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(bound->Launch(kDefaultStream).ok());
  EXPECT_EQ(dispatcher->counters().baseline, 4u);
}

}  // namespace
}  // namespace kvr
