// SPDX-License-Identifier: Apache-2.0
//
// Which requests a decode step serves: continuous batching, as pure logic. Requests are numbered
// from 0 in the order they arrive, all at once; at most `concurrency` of them run. A step gives
// each running request one token; one that has all of its tokens makes place for the next. While
// any wait the batch is full, so it falls only at the tail.
//
//   for (DecodeSchedule schedule(48, 192, 256); !schedule.done();) {
//     Step(schedule.batch());
//     for (int64_t request : schedule.EndStep()) Finished(request);
//   }
//
// Slots are the rows of a step: the first batch() are taken. Where no request waits, the last slot
// moves into the one that falls free.
//
// Threading: a schedule belongs to one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace kvr {

class DecodeSchedule {
 public:
  struct Slot {
    int64_t request = 0;
    int64_t tokens = 0;  // that it has
  };

  // All at least 1.
  DecodeSchedule(int64_t concurrency, int64_t requests, int64_t max_tokens);

  absl::Span<const Slot> running() const { return slots_; }
  int64_t batch() const { return static_cast<int64_t>(slots_.size()); }
  bool done() const { return slots_.empty(); }
  int64_t tokens() const { return tokens_; }  // given so far, to all

  // Gives the requests that have finished.
  std::vector<int64_t> EndStep();

 private:
  const int64_t requests_, max_tokens_;
  int64_t next_ = 0;  // the first that waits
  int64_t tokens_ = 0;
  std::vector<Slot> slots_;
};

// The batch sizes that such a schedule comes to, each once, descending.
std::vector<int64_t> BatchesOf(int64_t concurrency, int64_t requests);

// Batch sizes that graphs are captured for, and the one that serves `batch`, the rest of it being
// padding; 0: there is none that large.
inline constexpr int64_t kDecodeBuckets[] = {1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 128, 256, 512};
int64_t DecodeBucketOf(int64_t batch);

}  // namespace kvr
