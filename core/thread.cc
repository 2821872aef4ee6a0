// SPDX-License-Identifier: Apache-2.0
#include "core/thread.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/strings.h"

namespace kvr {

BlockedSignals::BlockedSignals() {
  sigset_t blocked;
  sigfillset(&blocked);
  // A fault comes to the thread that made it; blocked, it would pass by the application's handler.
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) {
    sigdelset(&blocked, fault);
  }
  pthread_sigmask(SIG_SETMASK, &blocked, &before_);
}

BlockedSignals::~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

absl::StatusOr<std::thread> StartThread(std::function<void()> body) {
  const BlockedSignals blocked;
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    return Error(absl::StatusCode::kResourceExhausted,
                 StrCat("no thread can be started: ", std::string_view(error.what())),
                 "raise the limit on threads (ulimit -u)");
  }
}

void InParallel(size_t count, int threads, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next{0};
  const auto run = [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < std::min(count, static_cast<size_t>(std::max(threads, 1))); ++i) {
    absl::StatusOr<std::thread> other = StartThread(run);
    if (!other.ok()) break;
    others.push_back(*std::move(other));
  }
  run();
  for (std::thread& other : others) other.join();
}

}  // namespace kvr
