// SPDX-License-Identifier: Apache-2.0
#include "core/fair_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace kvr {
namespace {

TEST(FairLock, LetsSoManyInAtATime) {
  for (const int width : {1, 3}) {
    FairLock lock(width);
    std::atomic<int> inside{0}, most{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 200; ++i) {
          const std::lock_guard<FairLock> held(lock);
          const int now = ++inside;
          for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
          }
          std::this_thread::yield();
          --inside;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_LE(most, width);
  }
}

TEST(FairLock, IsTriedWithoutWaiting) {
  FairLock lock(2);
  EXPECT_TRUE(lock.try_lock());
  EXPECT_TRUE(lock.try_lock());
  EXPECT_FALSE(lock.try_lock());
  lock.unlock();
  EXPECT_TRUE(lock.try_lock());
}

// 'S': the thread sleeps.
char StateOf(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(") ");
  return name_end == text.npos ? '?' : text[name_end + 2];
}

TEST(FairLock, IsTakenInTheOrderInWhichTheyCame) {
  constexpr int kThreads = 8;
  FairLock lock;
  lock.lock();
  std::vector<int> order;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    std::atomic<pid_t> coming{0};
    threads.emplace_back([&, t] {
      coming = gettid();
      const std::lock_guard<FairLock> held(lock);
      order.push_back(t);
    });
    // From there on it sleeps for the lock alone.
    while (coming == 0 || StateOf(coming) != 'S') std::this_thread::yield();
  }
  EXPECT_FALSE(lock.try_lock());
  lock.unlock();
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

}  // namespace
}  // namespace kvr
