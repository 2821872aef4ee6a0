// SPDX-License-Identifier: Apache-2.0
#include "devices/host/block_pool.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <system_error>
#include <utility>

namespace kvr::host {

struct BlockPool::Job {
  const KernelCall* call = nullptr;
  int64_t blocks = 0;
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  int helpers = 0;  // pool threads at work on it; guarded by the pool's mutex

  std::mutex error_mutex;
  int64_t error_block = INT64_MAX;
  absl::Status error;
};

BlockPool::BlockPool(int workers) {
  for (int i = 0; i < workers; ++i) {
    try {
      threads_.emplace_back([this] { Work(); });
    } catch (const std::system_error&) {
      return;  // fewer is slower, not wrong
    }
  }
}

BlockPool::~BlockPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void BlockPool::TakeBlocks(Job* job, BlockRunner* runner) {
  while (!job->failed.load(std::memory_order_relaxed)) {
    const int64_t block = job->next.fetch_add(1, std::memory_order_relaxed);
    if (block >= job->blocks) return;
    absl::Status status = runner->Run(*job->call, block);
    if (status.ok()) continue;
    job->failed.store(true, std::memory_order_relaxed);
    std::lock_guard lock(job->error_mutex);
    if (block < job->error_block) {
      job->error_block = block;
      job->error = std::move(status);
    }
  }
}

void BlockPool::Work() {
  BlockRunner runner;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    Job* job = jobs_.front();
    ++job->helpers;
    lock.unlock();
    TakeBlocks(job, &runner);
    lock.lock();
    // All blocks are taken: nobody else shall come.
    if (!jobs_.empty() && jobs_.front() == job) jobs_.pop_front();
    if (--job->helpers == 0) done_.notify_all();
  }
}

absl::Status BlockPool::Run(const KernelCall& call, BlockRunner* runner) {
  Job job;
  job.call = &call;
  job.blocks = call.grid.volume();
  const int64_t helpers = std::min<int64_t>(job.blocks - 1, static_cast<int64_t>(threads_.size()));
  if (helpers > 0) {
    std::lock_guard lock(mutex_);
    jobs_.push_back(&job);
  }
  for (int64_t i = 0; i < helpers; ++i) wake_.notify_one();
  TakeBlocks(&job, runner);
  if (helpers > 0) {
    std::unique_lock lock(mutex_);
    std::erase(jobs_, &job);
    done_.wait(lock, [&job] { return job.helpers == 0; });
  }
  return std::move(job.error);
}

}  // namespace kvr::host
