// SPDX-License-Identifier: Apache-2.0
#include "api/live_steps.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kvr {
namespace {

// The middle, by its logarithm, of the bin that holds the `rank`th time.
double Percentile(const std::vector<uint64_t>& bins, uint64_t total, double part, int per_octave) {
  const auto rank = static_cast<uint64_t>(part * static_cast<double>(total - 1));
  uint64_t below = 0;
  for (size_t bin = 0; bin < bins.size(); ++bin) {
    below += bins[bin];
    if (below > rank) return std::exp2((static_cast<double>(bin) + 0.5) / per_octave);
  }
  return 0;
}

}  // namespace

StepCounts::Slot& StepCounts::Find(std::string_view bucket) {
  const int used = used_.load(std::memory_order_relaxed);
  if (bucket.size() > kLongestBucket) return slots_[kBuckets];
  for (int i = 0; i < used; ++i) {
    if (bucket == slots_[i].name.data()) return slots_[i];
  }
  if (used == kBuckets) return slots_[kBuckets];
  std::copy(bucket.begin(), bucket.end(), slots_[used].name.begin());
  used_.store(used + 1, std::memory_order_release);
  return slots_[used];
}

void StepCounts::Count(std::string_view bucket, double microseconds) {
  Add(steps_);
  const double octaves = microseconds > 1 ? std::log2(microseconds) : 0;  // NaN: the first bin
  const int bin = static_cast<int>(std::min(octaves * kPerOctave, kBins - 1.0));
  Add(Find(bucket).bins[static_cast<size_t>(bin)]);
}

std::vector<StepCounts::Bucket> StepCounts::Read() const {
  std::vector<Bucket> buckets;
  const int used = used_.load(std::memory_order_acquire);
  for (int i = 0; i <= kBuckets; ++i) {
    if (i >= used && i < kBuckets) continue;
    std::vector<uint64_t> bins;
    for (const auto& bin : slots_[i].bins) bins.push_back(bin.load(std::memory_order_relaxed));
    const uint64_t total = std::accumulate(bins.begin(), bins.end(), uint64_t{0});
    if (total == 0) continue;
    buckets.push_back({i == kBuckets ? "other" : slots_[i].name.data(), total,
                       Percentile(bins, total, 0.5, kPerOctave),
                       Percentile(bins, total, 0.99, kPerOctave)});
  }
  return buckets;
}

}  // namespace kvr
