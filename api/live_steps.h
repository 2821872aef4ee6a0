// SPDX-License-Identifier: Apache-2.0
//
// How many steps a serving loop took and how long they were, per bucket. Times fall into bins 9 %
// apart, from 1 us to 16 s, so percentiles are that exact.
//
// Threading: Count from one thread, wait-free, without allocation; the rest from any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvr {

class StepCounts {
 public:
  static constexpr size_t kLongestBucket = 31;
  // Buckets beyond 64, and names that are too long, are counted together as "other".
  void Count(std::string_view bucket, double microseconds);
  void CountError() { errors_.fetch_add(1, std::memory_order_relaxed); }

  struct Bucket {
    std::string name;
    uint64_t steps = 0;
    double p50_us = 0, p99_us = 0;
  };
  std::vector<Bucket> Read() const;  // in the order first seen
  uint64_t steps() const { return steps_.load(std::memory_order_relaxed); }
  uint64_t errors() const { return errors_.load(std::memory_order_relaxed); }

 private:
  static constexpr int kBuckets = 64, kPerOctave = 8, kOctaves = 24;
  static constexpr int kBins = kPerOctave * kOctaves;
  struct Slot {
    std::array<char, kLongestBucket + 1> name{};  // written before `used_` says so, and never again
    std::array<std::atomic<uint64_t>, kBins> bins{};
  };
  static void Add(std::atomic<uint64_t>& counter) {  // one writer
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  Slot& Find(std::string_view bucket);

  std::atomic<uint64_t> steps_{0}, errors_{0};
  std::atomic<int> used_{0};
  std::array<Slot, kBuckets + 1> slots_;  // the last: "other"
};

}  // namespace kvr
