// SPDX-License-Identifier: Apache-2.0
#include "devices/host/stream.h"

#include <utility>

#include "core/status.h"

namespace kvr::host {

HostStream::HostStream() : thread_([this] { Loop(); }) {}

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
    if (recording_.has_value()) {
      recording_->push_back(std::move(work));
      return;
    }
    queue_.push_back({std::move(work), always});
  }
  wake_.notify_one();
}

void HostStream::Drain() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return queue_.empty() && !busy_; });
}

absl::Status HostStream::Synchronize() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return queue_.empty() && !busy_; });
  return std::exchange(error_, absl::OkStatus());
}

void HostStream::BeginCapture() {
  std::lock_guard lock(mutex_);
  recording_.emplace();
}

std::vector<HostStream::Work> HostStream::EndCapture() {
  std::lock_guard lock(mutex_);
  return *std::exchange(recording_, std::nullopt);
}

bool HostStream::IsCapturing() {
  std::lock_guard lock(mutex_);
  return recording_.has_value();
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
    busy_ = true;
    lock.unlock();
    absl::Status status;
    if (!skip) status = item.work(&runner);
    item.work = nullptr;  // frees what it holds before the stream looks idle
    lock.lock();
    busy_ = false;
    if (error_.ok()) error_ = std::move(status);
    if (queue_.empty()) idle_.notify_all();
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
