// SPDX-License-Identifier: Apache-2.0
//
// A stream: a thread that runs what is enqueued, in order. The first error stops the stream's work
// (later work is skipped, events are still recorded) until Synchronize has reported it.
//
// Threading: every function may be called from any thread, but not from the stream's own work.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/capture_state.h"
#include "devices/host/block_runner.h"

namespace kvr::host {

class HostStream {
 public:
  // Gets the stream thread's own runner.
  using Work = std::function<absl::Status(BlockRunner*)>;

  explicit HostStream(bool is_default = false);
  ~HostStream();  // finishes what is enqueued

  // `always`: not skipped after an error.
  void Enqueue(Work work, bool always = false);
  // Both wait for what is enqueued now, not for what others enqueue meanwhile.
  void Drain();                // reports nothing
  absl::Status Synchronize();  // reports the first error and forgets it

  CapturingStream& capture() { return capture_; }

 private:
  struct Item {
    Work work;
    bool always;
  };
  void Loop();
  void WaitForAll(std::unique_lock<std::mutex>& lock);

  CapturingStream capture_;
  std::mutex mutex_;
  std::condition_variable wake_, done_one_;
  std::deque<Item> queue_;
  uint64_t enqueued_ = 0, done_ = 0;
  bool stop_ = false;
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
