// SPDX-License-Identifier: Apache-2.0
//
// What need not be measured again: a config whose last trial here did not build, was wrong, or was
// dropped by a race. Here: on the same device, with its driver, under the same compiler and KVR;
// a ledger that was imported from another machine rejects nothing. The same: the variant's content
// (fingerprint), the config, the shape and, for a race, the mode.
//
// A race that was in trouble (drift, throttling, company) has dropped nobody for being slow.
//
// Threading: one caller at a time. Errors: the ledger's.
#pragma once

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/op.h"
#include "tuner/ledger/ledger.h"
#include "tuner/space.h"

namespace kvr {

struct RejectedBefore {
  std::string status;  // TrialStatusName; "PASSED": dropped by a race
  std::string reason;  // empty: dropped by a race
  std::string time;    // RFC 3339
  // Of one dropped by a race: ln(its time / the best of that race); NaN: not known.
  double behind = std::numeric_limits<double>::quiet_NaN();
};

// Was it measured here? By what a result depends on: device, driver, compiler, KVR.
bool SameConditions(const ledger::Environment& a, const ledger::Environment& b);

class Rejections {
 public:
  // The ledger outlives it.
  Rejections(const ledger::Ledger& ledger, ledger::Environment here, std::string op,
             std::string mode)
      : ledger_(ledger), here_(std::move(here)), op_(std::move(op)), mode_(std::move(mode)) {}

  // `measured`: the shapes of a key: wrong at one of them, or dropped by a race at all of them.
  // `proofs`: shapes where it must only be right. Both with every axis.
  absl::StatusOr<std::optional<RejectedBefore>> Find(const Candidate& candidate,
                                                     const std::vector<Axes>& measured,
                                                     const std::vector<Axes>& proofs) const;

 private:
  absl::StatusOr<std::optional<RejectedBefore>> Built(const Candidate& candidate) const;
  // The last trial at a shape that counts, if it rejects.
  absl::StatusOr<std::optional<RejectedBefore>> Tried(const Candidate& candidate,
                                                      const Axes& axes) const;
  absl::StatusOr<bool> InTrouble(const std::string& session) const;
  // The least median of a session's race at a shape.
  absl::StatusOr<double> BestOf(const std::string& session, const std::string& axes) const;

  const ledger::Ledger& ledger_;
  const ledger::Environment here_;
  const std::string op_, mode_;
  mutable std::map<std::pair<std::string, std::string>, double> best_;  // by session and shape
};

}  // namespace kvr
