// SPDX-License-Identifier: Apache-2.0
//
// A stream: a thread that runs what is enqueued, in order. The first error stops the stream's work
// (later work is skipped, events are still recorded) until Synchronize has reported it.
//
// Threading: every function may be called from any thread, but not from the stream's own work.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/host/block_runner.h"

namespace kvr::host {

class HostStream {
 public:
  // Gets the stream thread's own runner.
  using Work = std::function<absl::Status(BlockRunner*)>;

  HostStream();
  ~HostStream();  // finishes what is enqueued

  // `always`: not skipped after an error.
  void Enqueue(Work work, bool always = false);
  void Drain();                // waits, reports nothing
  absl::Status Synchronize();  // waits, reports the first error and forgets it

  // From the one to the other, what is enqueued is kept and not run. Work that is to be kept must
  // be able to run again.
  void BeginCapture();
  std::vector<Work> EndCapture();
  bool IsCapturing();

 private:
  struct Item {
    Work work;
    bool always;
  };
  void Loop();

  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<Item> queue_;
  std::optional<std::vector<Work>> recording_;  // while it captures
  bool busy_ = false, stop_ = false;
  absl::Status error_;
  std::thread thread_;
};

// A point in a stream's work. Recording it again moves it.
class HostEvent {
 public:
  using Clock = std::chrono::steady_clock;

  void Expect();  // when the record is enqueued
  void Happen();  // when the stream reaches it
  absl::StatusOr<Clock::time_point> Wait();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int pending_ = 0;
  bool recorded_ = false;
  Clock::time_point time_;
};

}  // namespace kvr::host
