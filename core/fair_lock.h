// SPDX-License-Identifier: Apache-2.0
//
// A lock that lets `width` threads in at a time, in the order in which they came: nobody waits for
// those that come after him, however often they do. std::mutex promises no order, and whoever gives
// it back and takes it again at once mostly gets it.
//
//   FairLock lock;                       // one at a time: a mutex
//   FairLock places(8);                  // eight
//   const std::lock_guard held(places);
//
// Threading: that is what it is for. Not recursive; each unlock wakes all that wait, so it is for
// what is held for long and taken seldom.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace kvr {

class FairLock {
 public:
  explicit FairLock(int width = 1) : width_(static_cast<uint64_t>(width)) {}
  FairLock(const FairLock&) = delete;
  FairLock& operator=(const FairLock&) = delete;

  void lock() {
    std::unique_lock<std::mutex> held(mutex_);
    const uint64_t ticket = came_++;
    left_changed_.wait(held, [&] { return ticket < left_ + width_; });
  }
  // False where there is somebody to wait for.
  bool try_lock() {
    const std::lock_guard<std::mutex> held(mutex_);
    if (came_ >= left_ + width_) return false;
    ++came_;
    return true;
  }
  void unlock() {
    const std::lock_guard<std::mutex> held(mutex_);
    ++left_;
    left_changed_.notify_all();
  }

 private:
  const uint64_t width_;
  std::mutex mutex_;
  std::condition_variable left_changed_;
  uint64_t came_ = 0, left_ = 0;  // since the beginning
};

}  // namespace kvr
