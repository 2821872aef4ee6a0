// SPDX-License-Identifier: Apache-2.0
//
// How many experts a batch activates: counted from the routers' logits of the very input sets that
// are timed, routed on the host by the operation's reference, or an approximate variant's own.
//
// The generator's logits depend on seed, tokens, experts and scoring, not on how large an expert
// is: routing is computed with experts as small as the operation admits.
//
// Threading: pure functions; the operation's code is loaded as needed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/op.h"
#include "tuner/space.h"

namespace kvr::bench {

// Different ids in `expert_ids`; negative ones are none.
int64_t DistinctExperts(absl::Span<const double> expert_ids);

// Of the input set of `seed`, this rank's alone where the op has experts of other ranks; nothing
// where it has padding tokens, so that its batch is smaller than its shape says. `candidate` null:
// what is exact.
absl::StatusOr<std::optional<int64_t>> ActiveExperts(const Operation& op, const Axes& axes,
                                                     uint64_t seed, const Candidate* candidate);

struct TypicalSeeds {
  std::vector<uint64_t> seeds;
  int64_t active = 0;  // of each
};
// The first `wanted` seeds from `first` on that activate as many experts as the median of `draws`
// does: every round then reads the same amount, and the roofline kernel that much. Errors:
// `count`'s; seeds that never agree.
absl::StatusOr<TypicalSeeds> FindTypicalSeeds(
    uint64_t first, int wanted, int draws,
    const std::function<absl::StatusOr<std::optional<int64_t>>(uint64_t seed)>& count);

}  // namespace kvr::bench
