// SPDX-License-Identifier: Apache-2.0
//
// Lists of cache slots for the generators of sparse attention ops.
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "variants/common/random.h"

namespace kvr {

inline constexpr int32_t kPaddingSlot = -1;

// Slots of [first, first + count): prefixes of random permutations, as many as the list needs, so
// that slots repeat only where there are fewer than the list is long. count > 0.
void DrawSlots(const RandomStream& random, int32_t first, int32_t count, std::span<int32_t> slots);

// Makes about one in 16 slots padding.
void ScatterPadding(const RandomStream& random, std::span<int32_t> slots);

// How many slots a short list leaves out: at least one, about an eighth at most. `length` > 0.
uint32_t DrawTail(const RandomStream& random, size_t length);

// Slots of `count` that so many lists of DrawSlots are expected to name at least once. Each draws
// `length` different ones, so a slot is left out by all with probability (1 - length/count)^lists.
int64_t DistinctSlots(int64_t lists, int64_t length, int64_t count);

}  // namespace kvr
