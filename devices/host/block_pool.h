// SPDX-License-Identifier: Apache-2.0
//
// Threads that run the blocks of launches, several at once. The launching thread takes part, so a
// launch of one block wakes nobody.
//
// Threading: Run may be called from several threads; their launches share the pool.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "devices/host/block_runner.h"

namespace kvr::host {

class BlockPool {
 public:
  explicit BlockPool(int workers);  // besides the launching threads
  ~BlockPool();                     // no Run may be in progress

  // Runs every block of `call`'s grid and waits for them. After an error no further block starts;
  // the error of the lowest block seen is returned. `runner` belongs to the calling thread.
  absl::Status Run(const KernelCall& call, BlockRunner* runner);

 private:
  struct Job;
  void Work();
  static void TakeBlocks(Job* job, BlockRunner* runner);

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::deque<Job*> jobs_;  // with blocks not taken yet
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kvr::host
