// SPDX-License-Identifier: Apache-2.0
//
// The ring of buffer sets that launches rotate over, as numbers: how many sets, and where an epoch
// begins. Set i holds the inputs i % inputs.
//
// The ring is used in order and nothing of it is skipped: what lies between the end of one epoch
// and the beginning of the next is launched too, untimed (at most once more on the set that was
// used last). So before any set is timed, all others have been used since its last use: a ring of
// `cold` sets has then touched kColdFactor times the L2 cache. Twice the cache, because what
// replaces what in it is nobody's promise.
//
// A recorded epoch (Graph) has fixed buffers, so graphs begin at multiples of a stride only; that
// bounds their number by ring / stride, and the untimed launches by stride - 1 an epoch.
//
// Threading: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tuner/worker/protocol.h"

namespace kvr {

inline constexpr int64_t kColdFactor = 2;

struct RingSize {
  int64_t sets = 0;  // buffer sets to make; fewer where memory is short
  int64_t cold = 0;  // as many are needed for cold caches; 0: the device's L2 is not known
};
// `touched` bytes of a set's `allocated` ones are used by a launch (Operation::MinimumBytes). At
// most 512 sets and 12 GiB, but one for each input set.
RingSize SizeRing(int64_t l2_bytes, int64_t touched, int64_t allocated, int64_t input_sets);

struct Ring {
  size_t sets = 1;
  size_t inputs = 1;  // sets is a multiple of it, or there are fewer sets

  size_t period() const { return inputs < sets ? inputs : sets; }
  // An epoch as long as the inputs are many goes over all of them equally often.
  int WholeTurns(int launches) const;
  // Where an epoch of `launches` (of WholeTurns) begins that comes at or after `cursor`: one of
  // fewer launches than there are inputs on the inputs `phase`, so that all subjects of a round
  // have the same.
  size_t Start(LaunchMode mode, int launches, size_t phase, size_t cursor) const;
  // Upper bound of the different results of Start, over all phases and cursors.
  size_t Starts(LaunchMode mode, int launches) const;
  // From `cursor` forward to `first`.
  size_t Gap(size_t cursor, size_t first) const { return (first + sets - cursor) % sets; }

 private:
  size_t Stride(LaunchMode mode, int launches) const;
};

}  // namespace kvr
