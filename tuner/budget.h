// SPDX-License-Identifier: Apache-2.0
//
// How a tuning run divides the time it was given: compiling takes two fifths at most; what is left
// then is shared evenly by the keys that are to come, and of a key's share verifying takes half at
// most, and the race what leaves a seventh for the duel. What a part does not use, the next ones
// have. Where keys are compared with one choice for all of them afterwards, that is one share more.
//
// Threading: values and pure functions.
#pragma once

#include "absl/time/time.h"

namespace kvr {

struct KeyShare {
  absl::Time verify_until = absl::InfiniteFuture(), race_until = absl::InfiniteFuture(),
             end = absl::InfiniteFuture();
};

class Budget {
 public:
  // `total` zero: as long as it takes.
  Budget(absl::Duration total, absl::Time start)
      : start_(start),
        end_(total > absl::ZeroDuration() ? start + total : absl::InfiniteFuture()) {}

  bool limited() const { return end_ != absl::InfiniteFuture(); }
  absl::Duration total() const { return end_ - start_; }
  absl::Time end() const { return end_; }
  absl::Time build_until() const { return limited() ? start_ + 0.4 * total() : end_; }
  // `keys`: those to come, this one included.
  KeyShare ShareOf(int keys, absl::Time now) const {
    if (!limited()) return {};
    const absl::Duration share = now < end_ ? (end_ - now) / keys : absl::ZeroDuration();
    return {now + 0.5 * share, now + 6 * share / 7, now + share};
  }

 private:
  absl::Time start_, end_;
};

}  // namespace kvr
