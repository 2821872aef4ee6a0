// SPDX-License-Identifier: Apache-2.0
//
// Calls f(0), ..., f(count - 1), each once, spread over up to `threads` threads, and returns when
// all are done. Items are handed out one at a time, so they may differ in cost. Where the system
// gives no more threads, fewer do. f must not throw.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace kvr {

template <typename F>
void ParallelFor(int64_t count, int threads, const F& f) {
  std::atomic<int64_t> next{0};
  auto work = [&] {
    for (int64_t i = next++; i < count; i = next++) f(i);
  };
  const int64_t helpers = std::min<int64_t>(threads, count) - 1;
  std::vector<std::thread> pool;
  try {
    for (int64_t i = 0; i < helpers; ++i) pool.emplace_back(work);
  } catch (const std::system_error&) {
  }
  work();
  for (std::thread& thread : pool) thread.join();
}

// As many threads as the machine runs at once.
inline int HardwareThreads() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace kvr
