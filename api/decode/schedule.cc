// SPDX-License-Identifier: Apache-2.0
#include "api/decode/schedule.h"

#include <algorithm>
#include <iterator>

namespace kvr {

DecodeSchedule::DecodeSchedule(int64_t concurrency, int64_t requests, int64_t max_tokens)
    : requests_(requests), max_tokens_(max_tokens) {
  for (; next_ < std::min(concurrency, requests); ++next_) slots_.push_back({.request = next_});
}

std::vector<int64_t> DecodeSchedule::EndStep() {
  std::vector<int64_t> finished;
  tokens_ += batch();
  for (Slot& slot : slots_) {
    if (++slot.tokens < max_tokens_) continue;
    finished.push_back(slot.request);
    if (next_ < requests_) slot = {.request = next_++};
  }
  for (size_t i = 0; i < slots_.size();) {  // those that nothing came after
    if (slots_[i].tokens < max_tokens_) {
      ++i;
    } else {
      slots_[i] = slots_.back();
      slots_.pop_back();
    }
  }
  return finished;
}

std::vector<int64_t> BatchesOf(int64_t concurrency, int64_t requests) {
  std::vector<int64_t> batches;
  // How many tokens a request takes does not matter: all take as many.
  for (DecodeSchedule schedule(concurrency, requests, 1); !schedule.done(); schedule.EndStep()) {
    if (batches.empty() || batches.back() != schedule.batch()) batches.push_back(schedule.batch());
  }
  return batches;
}

int64_t DecodeBucketOf(int64_t batch) {
  const int64_t* const found =
      std::lower_bound(std::begin(kDecodeBuckets), std::end(kDecodeBuckets), batch);
  return found == std::end(kDecodeBuckets) ? 0 : *found;
}

}  // namespace kvr
