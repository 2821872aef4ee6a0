// SPDX-License-Identifier: Apache-2.0
//
// One config for several tuning keys: which would serve all of them best, by what each key's race
// measured. It is chosen by noisy times, so it is only a candidate: what it costs a key is measured
// on fresh samples (tune_single.cc).
//
// Threading: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/device_info.h"
#include "core/op.h"
#include "tuner/space.h"

namespace kvr {

// One that raced for a key: ln(its time / the best time of that race), both measured by turns.
struct Behind {
  Candidate candidate;
  double by = 0;
};

struct SingleKey {
  std::vector<AxisVector> shapes;  // at which the key is measured
  std::vector<Behind> behind;
};

// Do two configs launch the same kernels in the same way at all of `shapes`? Then they are one
// choice there, and a race has measured only one of them.
bool SameWork(const Candidate& a, const Candidate& b, absl::Span<const AxisVector> shapes,
              const DeviceInfo& device);

// The config whose mean `by` over the keys is least; keys where nobody raced do not count. None:
// no config (or one of the same work) raced at every key. `of` (may be null): of how many that did.
std::optional<Candidate> BestSingle(absl::Span<const SingleKey> keys, const DeviceInfo& device,
                                    size_t* of = nullptr);

}  // namespace kvr
