// SPDX-License-Identifier: Apache-2.0
//
// Eight threads launch while others publish, load and prepare streams. Counts, not times: run it
// under ThreadSanitizer too.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "registry/dispatcher.h"
#include "registry/epoch.h"
#include "tests/registry/fakes.h"

namespace kvr {
namespace {

constexpr int kThreads = 8;
constexpr uint64_t kPublications = 30;
constexpr int64_t kLaunches = 20000;

TEST(Stress, EightThreadsLaunchWhileGenerationsComeAndGo) {
  World world;
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Load("axpy", {{{"n", 1000}}, {{"n", 64}}})->ready());
  std::vector<Stream> streams;
  for (int i = 0; i < kThreads; ++i) {
    streams.push_back(*world.device->CreateStream());
    ASSERT_TRUE(dispatcher->PrepareStream(streams.back()).ok());
  }
  const std::vector<GenerationPtr> generations = {
      world.Select({{1000, "wide"}, {64, "baseline"}}, 1),
      world.Select({{1000, "baseline"}, {64, "wide"}}, 2)};

  std::atomic<bool> stop{false};
  std::atomic<int64_t> launched{0}, failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const AxpyTensors exact(1000), planned(50), missed(70000);
      absl::StatusOr<BoundLaunch> bound = dispatcher->Bind("axpy", exact.views);
      if (!bound.ok()) ++failed;
      while (!stop.load() && bound.ok()) {
        failed += !dispatcher->Launch("axpy", exact.views, streams[t]).ok();
        failed += !dispatcher->Launch("axpy", planned.views, streams[t]).ok();
        failed += !dispatcher->Launch("axpy", missed.views, streams[t]).ok();
        failed += !bound->Launch(streams[t]).ok();
        launched += 4;
      }
    });
  }
  std::thread loader([&] {
    for (int64_t n = 1; !stop.load(); n = n % 4000 + 37) {
      failed += !dispatcher->Load("axpy", {{{"n", n}}}).ok();
    }
  });
  uint64_t published = 0;
  while (published < kPublications || launched < kLaunches) {
    failed += !dispatcher->Publish(generations[published++ % 2]).ok();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  loader.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(world.device->counters().launches, launched);
  EXPECT_EQ(dispatcher->counters().generations, published);
  for (Stream stream : streams) world.device->DestroyStream(stream);
}

// A World's variants, and as many more as generations are to be had.
World Crowd(int variants) {
  std::vector<std::shared_ptr<Variant>> all = {AxpyVariant("baseline", true)};
  for (int i = 0; i < variants; ++i) all.push_back(AxpyVariant("v" + std::to_string(i)));
  return World(std::move(all));
}

TEST(Stress, WhatIsRetiredIsDroppedWhileEightThreadsLaunchAndGenerationsGoBackAndForth) {
  constexpr int kVariants = 20;  // more than the history has
  World world = Crowd(kVariants);
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Load("axpy", {{{"n", 1000}}, {{"n", 64}}})->ready());
  std::vector<Stream> streams;
  for (int i = 0; i < kThreads; ++i) {
    streams.push_back(*world.device->CreateStream());
    ASSERT_TRUE(dispatcher->PrepareStream(streams.back()).ok());
  }
  std::atomic<bool> stop{false};
  std::atomic<int64_t> launched{0}, failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const AxpyTensors exact(1000), missed(70000);
      absl::StatusOr<BoundLaunch> bound = dispatcher->Bind("axpy", exact.views);
      if (!bound.ok()) ++failed;
      while (!stop.load() && bound.ok()) {
        failed += !dispatcher->Launch("axpy", exact.views, streams[t]).ok();
        failed += !dispatcher->Launch("axpy", missed.views, streams[t]).ok();
        failed += !bound->Launch(streams[t]).ok();
        launched += 3;
      }
    });
  }
  std::thread collector([&] {
    while (!stop.load()) {
      dispatcher->Collect();
      failed += dispatcher->served().empty();
      failed += dispatcher->history().empty();
      (void)dispatcher->misses();
    }
  });
  std::thread back([&] {
    while (!stop.load()) {
      const absl::Status status = dispatcher->Rollback("").status();
      failed += !status.ok() && !absl::IsNotFound(status);
    }
  });
  const auto load = [&](int64_t first) {
    for (int64_t n = first; !stop.load(); n = n % 300 + 37) {
      failed += !dispatcher->Load("axpy", {{{"n", n}}}).ok();
    }
  };
  std::thread loader(load, 1), second_loader(load, 150);
  for (int64_t i = 0; i < 60 || launched < kLaunches; ++i) {
    const std::string variant = "v" + std::to_string(i % kVariants);
    failed += !dispatcher->Publish(world.Select({{1000, variant}, {64, "baseline"}}, i + 1)).ok();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  for (std::thread* thread : {&collector, &back, &loader, &second_loader}) thread->join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(world.device->counters().launches, launched);
  dispatcher->Collect();
  EXPECT_LE(world.device->counters().modules, 2 + Dispatcher::kKeptGenerations);
  EXPECT_GT(dispatcher->counters().retired, 0u);
  for (Stream stream : streams) world.device->DestroyStream(stream);
}

TEST(Epoch, NothingIsDroppedThatAGuardMayHold) {
  Limbo limbo;
  auto object = std::make_shared<int>(1);
  const std::weak_ptr<int> alive = object;
  {
    const EpochGuard outer;
    {
      const EpochGuard nested;
      limbo.Retire(std::move(object));
    }
    limbo.Collect();
    EXPECT_FALSE(alive.expired());
  }
  limbo.Collect();
  EXPECT_TRUE(alive.expired());
  EXPECT_EQ(limbo.size(), 0u);
}

TEST(Epoch, AGuardTakenLaterHoldsNothingBack) {
  Limbo limbo;
  auto object = std::make_shared<int>(1);
  const std::weak_ptr<int> alive = object;
  {
    const EpochGuard before;
    limbo.Retire(std::move(object));
  }
  const EpochGuard after;
  limbo.Collect();
  EXPECT_TRUE(alive.expired());
}

TEST(Epoch, ReadersNeverSeeWhatWasFreed) {
  struct Value {
    explicit Value(int64_t v) : a(v), b(v) {}
    ~Value() { a = b = -1; }
    int64_t a, b;
  };
  std::atomic<const Value*> current{nullptr};
  auto owner = std::make_shared<const Value>(0);
  current.store(owner.get());
  std::atomic<bool> stop{false};
  std::atomic<int> torn{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < kThreads; ++t) {
    readers.emplace_back([&] {
      while (!stop.load()) {
        const EpochGuard guard;
        const Value* value = current.load(std::memory_order_seq_cst);
        torn += value->a < 0 || value->a != value->b;
      }
    });
  }
  Limbo limbo;
  for (int64_t i = 1; i <= 5000; ++i) {
    auto next = std::make_shared<const Value>(i);
    current.store(next.get(), std::memory_order_seq_cst);
    limbo.Retire(std::exchange(owner, std::move(next)));
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  limbo.Collect();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(limbo.size(), 0u);
}

}  // namespace
}  // namespace kvr
