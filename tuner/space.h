// SPDX-License-Identifier: Apache-2.0
//
// The space a command works on: which configs of which variants. `--set NAME=VALUE` pins a tunable;
// a pin that a variant does not have, or whose value it does not allow, leaves that variant out
// with the reason. A pin that no variant has, or pins that leave no variant, are an error. An
// opt-in gives the quality tunables of its variant their values (registry/opt_in.h).
//
// Threading: pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/config.h"
#include "core/variant.h"
#include "registry/opt_in.h"

namespace kvr {

struct Candidate {
  VariantPtr variant;
  Config config;
  bool operator==(const Candidate& other) const {
    return variant == other.variant && config == other.config;
  }
};
std::string CandidateText(const Candidate& candidate);  // "baseline {BLOCK_H=16,...}"
// Everything that is searched is at its default; quality tunables have no say.
bool IsDefault(const Candidate& candidate);

struct Omitted {
  VariantPtr variant;
  std::string reason;
};

enum class Coverage : uint8_t {
  kDefault,  // each variant's default config, pins applied
  kAll,      // every assignment of the tunables not pinned
};

struct Space {
  std::vector<Candidate> candidates;  // by variant in the order given, default config first
  std::vector<Omitted> omitted;       // variants a pin excludes
};

// Pins: "NAME=VALUE" texts. Errors: malformed, set twice, or a name that no variant has.
absl::StatusOr<std::vector<std::pair<std::string, int64_t>>> ParsePins(
    absl::Span<const std::string> texts);

absl::StatusOr<Space> BuildSpace(absl::Span<const VariantPtr> variants,
                                 absl::Span<const std::string> pins, Coverage coverage,
                                 absl::Span<const ApproximateOptIn> opt_ins = {});

}  // namespace kvr
