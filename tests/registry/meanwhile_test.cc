// SPDX-License-Identifier: Apache-2.0
//
// What goes on while something compiles: a compiler that is held, and everything else that must
// come to its end before it is let go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/strings.h"
#include "registry/dispatcher.h"
#include "tests/registry/fakes.h"

namespace kvr {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Report = absl::StatusOr<LoadReport>;

constexpr Stream kDefaultStream{};
const std::vector<Axes> kShapes = {{{"n", 1000}}};

std::shared_ptr<Variant> Of(const std::string& op, const std::string& name, bool baseline = false) {
  std::shared_ptr<Variant> variant = AxpyVariant(name, baseline);
  variant->op = op;
  return variant;
}

// "axpy" with a baseline, "v0", "v1" and one that does not compile; "other" with a baseline.
struct Meanwhile : public testing::Test {
  Meanwhile()
      : world({Of("axpy", "baseline", true), Of("axpy", "v0"), Of("axpy", "v1"),
               Of("axpy", "broken"), Of("other", "plain", true)}) {
    world.on_compile = [this](const Unit& unit) {
      if (!is_held(unit.text)) return;
      held.set_value();
      EXPECT_EQ(released.wait_for(std::chrono::seconds(60)), std::future_status::ready)
          << "somebody waits for this compile";
    };
  }

  static bool Has(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
  }
  std::string Serving(int64_t n = 1000) {
    const AxpyTensors tensors(n);
    return dispatcher->Bind("axpy", tensors.views)->prepared().variant().name;
  }
  std::future<Report> Load() {
    return std::async(std::launch::async, [&] { return dispatcher->Load("axpy", kShapes); });
  }
  std::future<Report> Publish(GenerationPtr next) {
    return std::async(std::launch::async, [this, next] { return dispatcher->Publish(next); });
  }

  World world;
  std::function<bool(std::string_view)> is_held = [](std::string_view) { return false; };
  std::promise<void> held, release;
  std::shared_future<void> released = release.get_future().share();
  std::unique_ptr<Dispatcher> dispatcher = world.Dispatch();
};

TEST_F(Meanwhile, ALoadServesWhatWasPublished) {
  is_held = [](std::string_view text) { return Has(text, "baseline.cu"); };
  std::future<Report> loading = Load();
  held.get_future().wait();
  ASSERT_TRUE(dispatcher->Publish(world.Select({{1000, "v0"}})).ok());
  release.set_value();
  const Report report = loading.get();
  ASSERT_TRUE(report.ok());
  ASSERT_TRUE(report->ready()) << report->Text();
  EXPECT_EQ(report->items.front().variant, "v0");
  EXPECT_EQ(Serving(), "v0");
}

// A tunable is set by hand: the baseline of generation 0 has it, and is a third binary.
TEST_F(Meanwhile, WhatALoadCompilesForGenerationZeroHoldsUpNobody) {
  DispatcherOptions options;
  ASSERT_TRUE(options.overrides.Set(world.catalog, "axpy", "BLOCK", 128).ok());
  dispatcher = world.Dispatch(options);
  ASSERT_TRUE(dispatcher->Publish(world.Select({{1000, "v0"}}, 1)).ok());
  is_held = [](std::string_view text) {
    return Has(text, "baseline.cu") && Has(text, "BLOCK = 128");
  };
  std::future<Report> loading = Load();
  held.get_future().wait();
  EXPECT_TRUE(dispatcher->Load("other", kShapes)->ready());
  EXPECT_TRUE(dispatcher->Publish(world.Select({{1000, "v0"}, {64, "v0"}}, 2)).ok());
  dispatcher->OrderHistory({});
  dispatcher->Collect();
  release.set_value();
  ASSERT_TRUE(loading.get()->ready());
  EXPECT_EQ(Serving(), "v0");
  const int compiles = world.compiles;
  ASSERT_TRUE(dispatcher->Rollback("baseline").ok());
  EXPECT_EQ(Serving(), "baseline");
  EXPECT_EQ(world.compiles, compiles);
}

TEST_F(Meanwhile, WhatIsBuiltAnewForABinaryThatDoesNotLoadHoldsUpNobody) {
  auto foreign = std::make_shared<Binary>();  // has none of the kernels
  foreign->key = FingerprintOf("foreign");
  foreign->target = "null";
  foreign->bytes = "foreign";
  world.cache.Put(foreign, "foreign");
  const GenerationPtr plain = world.Select({{1000, "v0"}});
  const BucketedKey key = plain->FindOp("axpy")->selections.begin()->first;
  Selection selection = *plain->Find("axpy", key);
  selection.binary = foreign->key;
  GenerationBuilder builder(*plain);
  ASSERT_TRUE(builder.Select("axpy", key, selection).ok());
  ASSERT_TRUE(dispatcher->Publish(builder.Build(1)).ok());

  is_held = [](std::string_view text) { return Has(text, "v0.cu"); };
  std::future<Report> loading = Load();
  held.get_future().wait();
  EXPECT_TRUE(dispatcher->Load("other", kShapes)->ready());
  release.set_value();
  const Report report = loading.get();
  ASSERT_TRUE(report->ready()) << report->Text();
  EXPECT_THAT(report->items[0].why, HasSubstr("does not load: axpy/v0"));
  EXPECT_EQ(Serving(), "v0");
}

TEST_F(Meanwhile, APublicationThatCompilesHoldsUpNoLoadAndNoLaunch) {
  dispatcher = world.Dispatch({.miss_policy = MissPolicy::kJit});
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  is_held = [](std::string_view text) { return Has(text, "v0.cu"); };
  std::future<Report> publishing = Publish(world.Select({{1000, "v0"}, {64, "v1"}, {16, "v1"}}, 1));
  held.get_future().wait();
  EXPECT_TRUE(dispatcher->Load("other", kShapes)->ready());
  EXPECT_TRUE(dispatcher->Load("axpy", {{{"n", 64}}})->ready());
  const AxpyTensors tensors(16);
  EXPECT_TRUE(dispatcher->Launch("axpy", tensors.views, kDefaultStream).ok());
  EXPECT_EQ(dispatcher->counters().loaded_in_launch, 1u);
  dispatcher->Collect();
  EXPECT_EQ(Serving(64), "baseline");
  release.set_value();
  const Report report = publishing.get();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->items.size(), 4u) << "what was loaded meanwhile is published as well";
  EXPECT_EQ(Serving(1000), "v0");
  EXPECT_EQ(Serving(64), "v1");
  EXPECT_EQ(Serving(16), "v1");
}

TEST_F(Meanwhile, ALaunchThatCompilesHoldsNothingThatIsRetired) {
  dispatcher = world.Dispatch({.miss_policy = MissPolicy::kJit});
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  ASSERT_TRUE(dispatcher->Publish(world.Select({{1000, "v0"}, {64, "v1"}}, 1)).ok());
  const std::weak_ptr<const Generation> old = dispatcher->generation();
  is_held = [](std::string_view text) { return Has(text, "v1.cu"); };
  std::future<absl::Status> launching = std::async(std::launch::async, [&] {
    const AxpyTensors tensors(64);
    return dispatcher->Launch("axpy", tensors.views, kDefaultStream);
  });
  held.get_future().wait();
  for (int i = 0; i <= Dispatcher::kKeptGenerations; ++i) {
    const int64_t n = int64_t{1} << (13 + i);
    ASSERT_TRUE(dispatcher->Publish(world.Select({{1000, "v0"}, {n, "v0"}}, 2 + i)).ok());
  }
  dispatcher->Collect();
  EXPECT_TRUE(old.expired());
  release.set_value();
  EXPECT_TRUE(launching.get().ok());
  EXPECT_EQ(Serving(64), "baseline");
}

TEST_F(Meanwhile, PublicationsFollowEachOtherInTheOrderInWhichTheyCame) {
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  is_held = [](std::string_view text) { return Has(text, "v0.cu"); };
  const GenerationPtr zero = dispatcher->generation(), slow = world.Select({{1000, "v0"}}, 1),
                      quick = world.Select({{1000, "v1"}}, 2);
  std::future<Report> first = Publish(slow);
  held.get_future().wait();
  std::future<Report> second = Publish(quick);
  // It never comes first, however long it is given.
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  EXPECT_EQ(dispatcher->generation(), zero);
  release.set_value();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
  EXPECT_EQ(dispatcher->generation(), quick);
  EXPECT_THAT(dispatcher->history(), ElementsAre(slow, zero));
}

TEST_F(Meanwhile, APublicationThatFailsLeavesWhatWasLoadedMeanwhile) {
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  const GenerationPtr zero = dispatcher->generation();
  const int64_t modules = world.device->counters().modules;
  is_held = [](std::string_view text) { return Has(text, "broken.cu"); };
  std::future<Report> publishing = Publish(world.Select({{1000, "broken"}, {64, "v1"}}, 1));
  held.get_future().wait();
  EXPECT_TRUE(dispatcher->Load("axpy", {{{"n", 64}}})->ready());
  release.set_value();
  EXPECT_THAT(publishing.get().status().ToString(), HasSubstr("broken.cu:1:1"));
  EXPECT_EQ(dispatcher->generation(), zero);
  EXPECT_EQ(Serving(1000), "baseline");
  EXPECT_EQ(Serving(64), "baseline");
  EXPECT_EQ(world.device->counters().modules, modules);
  EXPECT_TRUE(dispatcher->misses().empty());
}

TEST(ManyLoads, RunNoMoreCompilersThanThereArePlaces) {
  constexpr int kOps = 4;
  std::vector<std::shared_ptr<Variant>> variants;
  for (int op = 0; op < kOps; ++op) {
    const std::string name = StrCat("op", op);
    variants.push_back(Of(name, StrCat(name, "_baseline"), true));
    for (int i = 0; i < 3; ++i) variants.push_back(Of(name, StrCat(name, "_v", i)));
  }
  World world(std::move(variants));
  std::mutex mutex;
  int inside = 0, most = 0;
  world.on_compile = [&](const Unit&) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      most = std::max(most, ++inside);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // for others to come in
    const std::lock_guard<std::mutex> lock(mutex);
    --inside;
  };
  GenerationBuilder builder(world.device->info().model, world.device->info().target);
  for (const auto& op : world.catalog.ops()) {
    builder.SetPolicy(op->name(), op->policy);
    for (int i = 0; i < 3; ++i) {
      const VariantPtr variant = *world.catalog.Find(op->name(), StrCat(op->name(), "_v", i));
      const AxisVector axes = *ResolveAxes(op->spec(), {{"n", int64_t{64} << i}});
      ASSERT_TRUE(builder
                      .Select(op->name(), op->policy.Bucket(axes),
                              {.variant = variant, .config = DefaultConfig(variant->tunables)})
                      .ok());
    }
  }
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Publish(builder.Build(1)).ok());
  std::vector<std::future<Report>> loads;
  for (int op = 0; op < kOps; ++op) {
    loads.push_back(
        std::async(std::launch::async, [&, op] { return dispatcher->Load(StrCat("op", op), {}); }));
  }
  for (std::future<Report>& load : loads) EXPECT_TRUE(load.get()->ready());
  EXPECT_EQ(world.compiles, 4 * kOps);
  EXPECT_LE(most, World::kMaxCompiles);
}

}  // namespace
}  // namespace kvr
