// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/ring.h"

#include <algorithm>

namespace kvr {
namespace {

constexpr int64_t kMostBufferSets = 512;
constexpr int64_t kMostRingBytes = int64_t{12} << 30;

}  // namespace

RingSize SizeRing(int64_t l2_bytes, int64_t touched, int64_t allocated, int64_t input_sets) {
  allocated = std::max<int64_t>(allocated, 1);
  touched = std::clamp<int64_t>(touched, 1, allocated);
  RingSize ring;
  // The set itself, and those between its two uses.
  if (l2_bytes > 0) ring.cold = 1 + (kColdFactor * l2_bytes + touched - 1) / touched;
  const int64_t most = std::min(kMostBufferSets, kMostRingBytes / allocated);
  ring.sets = std::max(input_sets, std::min(ring.cold, most));
  // Whole turns over the inputs, so that the order holds where the ring closes.
  const int64_t rest = ring.sets % std::max<int64_t>(input_sets, 1);
  if (rest != 0) ring.sets += input_sets - rest;
  return ring;
}

int Ring::WholeTurns(int launches) const {
  const int turn = static_cast<int>(period());
  return launches < turn ? launches : (launches + turn - 1) / turn * turn;
}

size_t Ring::Stride(LaunchMode mode, int launches) const {
  if (mode == LaunchMode::kEager) return period();
  const size_t most = std::min(static_cast<size_t>(launches), sets);
  return std::max(most / period() * period(), period());
}

size_t Ring::Start(LaunchMode mode, int launches, size_t phase, size_t cursor) const {
  const size_t base = static_cast<size_t>(launches) < period() ? phase % period() : 0;
  if (cursor <= base) return base;
  const size_t stride = Stride(mode, launches);
  const size_t first = base + (cursor - base + stride - 1) / stride * stride;
  return first < sets ? first : base;
}

size_t Ring::Starts(LaunchMode mode, int launches) const {
  const size_t bases = static_cast<size_t>(launches) < period() ? period() : 1;
  const size_t stride = Stride(mode, launches);
  return bases * ((sets + stride - 1) / stride);
}

}  // namespace kvr
