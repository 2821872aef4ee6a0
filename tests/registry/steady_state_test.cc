// SPDX-License-Identifier: Apache-2.0
//
// A launch neither allocates nor takes a lock, whatever serves it and whatever happens beside it.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "bench/counting.h"
#include "registry/dispatcher.h"
#include "tests/registry/fakes.h"

namespace kvr {
namespace {

constexpr Stream kDefaultStream{};

struct Cost {
  int64_t allocations = 0, locks = 0, failures = 0;
  bool operator==(const Cost&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Cost& cost) {
  return out << cost.allocations << " allocations, " << cost.locks << " locks, " << cost.failures
             << " failures";
}

// Of `times` launches. Nothing that is tested is in here but `launch`.
template <typename Launch>
Cost CostOf(int times, Launch&& launch) {
  Cost cost{-AllocationsOfThisThread(), -LocksOfThisThread(), 0};
  for (int i = 0; i < times; ++i) cost.failures += !launch().ok();
  cost.allocations += AllocationsOfThisThread();
  cost.locks += LocksOfThisThread();
  return cost;
}

TEST(Counting, CountsAllocationsAndLocks) {
  std::mutex mutex;
  const Cost cost = CostOf(3, [&] {
    const std::lock_guard<std::mutex> lock(mutex);
    const std::unique_lock<std::mutex> tried(mutex, std::try_to_lock);
    delete new int;
    return absl::OkStatus();
  });
  EXPECT_GE(cost.allocations, 0);  // a compiler may leave the pair out
  EXPECT_EQ(cost.locks, kLocksAreCounted ? 6 : 0);
  const std::vector<std::vector<int>> kept(2, std::vector<int>(100));
  EXPECT_EQ(CostOf(1,
                   [&] {
                     const std::vector<std::vector<int>> copy = kept;
                     return copy.size() == 2 ? absl::OkStatus() : absl::UnknownError("");
                   })
                .allocations,
            3);
}

// A world where a launch may be served in each of the ways there are.
class SteadyState : public ::testing::Test {
 protected:
  SteadyState()
      : world({AxpyVariant("baseline", true), AxpyVariant("wide"),
               AxpyVariant("even", false, "mod(n, 2) == 0")}),
        dispatcher(world.Dispatch()) {
    EXPECT_TRUE(dispatcher->Publish(Generation(1)).ok());
    // 5000 is of no selected key.
    EXPECT_TRUE(dispatcher->Load("axpy", {{{"n", 1000}}, {{"n", 60}}, {{"n", 5000}}})->ready());
    EXPECT_TRUE(dispatcher->PrepareStream(kDefaultStream).ok());
  }

  GenerationPtr Generation(int64_t number) const {
    return world.Select({{1000, number % 2 == 0 ? "baseline" : "wide"}, {64, "even"}}, number);
  }

  // Every way once, so that what a thread does the first time is done.
  std::vector<std::pair<const char*, std::function<absl::Status()>>> Ways(Stream stream) {
    const auto launch = [this, stream](int64_t n) {
      auto tensors = std::make_shared<AxpyTensors>(n);
      return [this, stream, tensors] { return dispatcher->Launch(op, tensors->views, stream); };
    };
    auto named = std::make_shared<AxpyTensors>(1000);
    auto first = std::make_shared<AxpyTensors>(999), second = std::make_shared<AxpyTensors>(998);
    auto bound = std::make_shared<BoundLaunch>(*dispatcher->Bind("axpy", named->views));
    std::vector<std::pair<const char*, std::function<absl::Status()>>> ways = {
        {"a loaded shape", launch(1000)},
        {"another shape of its key", launch(900)},
        {"two shapes in turn",
         [this, stream, first, second, odd = false]() mutable {
           odd = !odd;
           return dispatcher->Launch(op, (odd ? first : second)->views, stream);
         }},
        {"by name",
         [this, stream, named] { return dispatcher->Launch("axpy", named->views, stream); }},
        {"a config that fits", launch(60)},
        {"a config that does not fit these axes", launch(61)},
        {"a key that is not selected", launch(5000)},
        {"a key that is not loaded", launch(300)},
        {"bound", [stream, named, bound] { return bound->Launch(stream); }},
    };
    for (const auto& [name, way] : ways) {
      EXPECT_TRUE(way().ok()) << name;
      EXPECT_TRUE(way().ok()) << name;
    }
    return ways;
  }

  World world;
  std::unique_ptr<Dispatcher> dispatcher;
  const OpHandle op{0};
};

TEST_F(SteadyState, LaunchesNeitherAllocateNorLock) {
  const auto ways = Ways(kDefaultStream);
  for (const bool frozen : {false, true}) {
    if (frozen) dispatcher->Freeze();
    for (const auto& [name, way] : ways) EXPECT_EQ(CostOf(100, way), Cost{}) << name;
  }
}

TEST_F(SteadyState, TheFirstLaunchAfterASwapNeitherAllocatesNorLocks) {
  const auto ways = Ways(kDefaultStream);
  for (int64_t number = 2; number < 6; ++number) {
    ASSERT_TRUE(dispatcher->Publish(Generation(number)).ok());
    for (const auto& [name, way] : ways) EXPECT_EQ(CostOf(1, way), Cost{}) << name;
  }
}

TEST_F(SteadyState, LaunchesBesideAPublisherNeitherAllocateNorLock) {
  std::atomic<bool> stop{false}, ready{false};
  std::atomic<int> published{0};
  std::thread publisher([&] {
    for (int64_t number = 2; !stop.load(); ++number) {
      if (!dispatcher->Publish(Generation(number)).ok()) stop = true;
      ++published;
      ready = true;
    }
  });
  while (!ready.load()) std::this_thread::yield();
  std::vector<std::thread> launchers;
  std::vector<Cost> costs(3);
  std::vector<Stream> streams;
  for (Cost& cost : costs) {
    const Stream stream = streams.emplace_back(*world.device->CreateStream());
    ASSERT_TRUE(dispatcher->PrepareStream(stream).ok());
    launchers.emplace_back([&, stream] {
      const auto ways = Ways(stream);
      const int until = published + 20;
      do {  // once at least: whoever publishes may have had the turns of twenty already
        for (const auto& [name, way] : ways) {
          const Cost more = CostOf(20, way);
          cost.allocations += more.allocations;
          cost.locks += more.locks;
          cost.failures += more.failures;
        }
      } while (published < until && !stop.load());
    });
  }
  for (std::thread& launcher : launchers) launcher.join();
  stop = true;
  publisher.join();
  for (const Stream& stream : streams) world.device->DestroyStream(stream);
  for (const Cost& cost : costs) EXPECT_EQ(cost, Cost{});
  EXPECT_GT(published, 20);
}

}  // namespace
}  // namespace kvr
