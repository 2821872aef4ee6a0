// SPDX-License-Identifier: Apache-2.0
#include "variants/common/slot_lists.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

namespace kvr {
namespace {

constexpr uint32_t kScatteredOneIn = 16;  // slots that are padding where padding is scattered
constexpr uint32_t kTailAtMost = 8;       // a tail is at most an eighth of the list

}  // namespace

void DrawSlots(const RandomStream& random, int32_t first, int32_t count, std::span<int32_t> slots) {
  std::vector<int32_t> permutation(count);
  std::iota(permutation.begin(), permutation.end(), first);
  for (size_t i = 0; i < slots.size(); ++i) {
    const int32_t at = static_cast<int32_t>(i % count);
    const uint32_t other = at + random.Below(i, count - at);
    std::swap(permutation[at], permutation[other]);
    slots[i] = permutation[at];
  }
}

void ScatterPadding(const RandomStream& random, std::span<int32_t> slots) {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (random.Below(i, kScatteredOneIn) == 0) slots[i] = kPaddingSlot;
  }
}

uint32_t DrawTail(const RandomStream& random, size_t length) {
  return 1 + random.Below(0, std::max<uint32_t>(1, length / kTailAtMost));
}

int64_t DistinctSlots(int64_t lists, int64_t length, int64_t count) {
  if (count == 0) return 0;
  const double left_out =
      1.0 - std::min(1.0, static_cast<double>(length) / static_cast<double>(count));
  return std::llround(static_cast<double>(count) *
                      (1.0 - std::pow(left_out, static_cast<double>(lists))));
}

}  // namespace kvr
