// SPDX-License-Identifier: Apache-2.0
#include "core/thread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <vector>

#include "absl/status/status.h"

namespace kvr {
namespace {

bool IsBlocked(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

TEST(StartThread, LeavesSignalsToTheApplicationAndFaultsToItsHandlers) {
  bool term = false, interrupt = false, fault = true;
  absl::StatusOr<std::thread> thread = StartThread([&] {
    term = IsBlocked(SIGTERM);
    interrupt = IsBlocked(SIGINT);
    fault = IsBlocked(SIGSEGV);
  });
  ASSERT_TRUE(thread.ok()) << thread.status();
  thread->join();
  EXPECT_TRUE(term);
  EXPECT_TRUE(interrupt);
  EXPECT_FALSE(fault);
  EXPECT_FALSE(IsBlocked(SIGTERM));  // here
}

TEST(InParallel, DoesEachPieceOnceOnNoMoreThreadsThanAsked) {
  for (const int threads : {-1, 1, 3, 64}) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{1000}}) {
      std::vector<std::atomic<int>> done(count);
      std::mutex mutex;
      std::set<std::thread::id> ids;
      InParallel(count, threads, [&](size_t i) {
        ++done[i];
        const std::lock_guard<std::mutex> lock(mutex);
        ids.insert(std::this_thread::get_id());
      });
      for (const std::atomic<int>& times : done) EXPECT_EQ(times, 1);
      EXPECT_LE(ids.size(), static_cast<size_t>(std::max(threads, 1)));
    }
  }
}

}  // namespace
}  // namespace kvr
