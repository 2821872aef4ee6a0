// SPDX-License-Identifier: Apache-2.0
#include "core/thread.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace kvr
