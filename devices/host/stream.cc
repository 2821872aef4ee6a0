// SPDX-License-Identifier: Apache-2.0
#include "devices/host/stream.h"

#include <utility>

#include "core/status.h"

namespace kvr::host {

HostStream::HostStream(bool is_default) : capture_(is_default), thread_([this] { Loop(); }) {}

HostStream::~HostStream() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void HostStream::Enqueue(Work work, bool always) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back({std::move(work), always});
    ++enqueued_;
  }
  wake_.notify_one();
}

void HostStream::WaitForAll(std::unique_lock<std::mutex>& lock) {
  done_one_.wait(lock, [this, now = enqueued_] { return done_ >= now; });
}

void HostStream::Drain() {
  std::unique_lock lock(mutex_);
  WaitForAll(lock);
}

absl::Status HostStream::Synchronize() {
  std::unique_lock lock(mutex_);
  WaitForAll(lock);
  return std::exchange(error_, absl::OkStatus());
}

void HostStream::Loop() {
  BlockRunner runner;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    const bool skip = !error_.ok() && !item.always;
    lock.unlock();
    absl::Status status;
    if (!skip) status = item.work(&runner);
    item.work = nullptr;  // frees what it holds before it counts as done
    lock.lock();
    if (error_.ok()) error_ = std::move(status);
    ++done_;
    done_one_.notify_all();
  }
}

void HostEvent::Expect() {
  std::lock_guard lock(mutex_);
  ++pending_;
  recorded_ = true;
}

void HostEvent::Happen() {
  const Clock::time_point now = Clock::now();
  std::lock_guard lock(mutex_);
  time_ = now;
  --pending_;
  changed_.notify_all();
}

absl::StatusOr<HostEvent::Clock::time_point> HostEvent::Wait() {
  std::unique_lock lock(mutex_);
  if (!recorded_) {
    return Error(absl::StatusCode::kFailedPrecondition, "the event was never recorded",
                 "record it on a stream first");
  }
  changed_.wait(lock, [this] { return pending_ == 0; });
  return time_;
}

}  // namespace kvr::host
