// SPDX-License-Identifier: Apache-2.0
//
// Threads of ours in somebody else's program. The application's signals are for its own threads: it
// may wait for them (sigwait, signalfd), and then whoever else gets one ends the program.
//
//   KVR_ASSIGN_OR_RETURN(thread_, StartThread([this] { Loop(); }));
//
// Threading: a BlockedSignals belongs to one thread.
#pragma once

#include <signal.h>

#include <cstddef>
#include <functional>
#include <thread>

#include "absl/status/statusor.h"

namespace kvr {

// For the scope, this thread and those that it starts get no signals but those of their own faults.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

// With signals blocked. kResourceExhausted: there is no thread to be had.
absl::StatusOr<std::thread> StartThread(std::function<void()> body);

// work(0) ... work(count - 1), which throws nothing, on this thread and up to `threads` - 1 of
// ours; fewer where no more are to be had.
void InParallel(size_t count, int threads, const std::function<void(size_t)>& work);

}  // namespace kvr
