// SPDX-License-Identifier: Apache-2.0
//
// One selection file for all ranks from the ledgers of several GPUs of one model. Every GPU of that
// model in any of the ledgers has a say; per tuning key is selected
//   1. what has ship verdicts (tuner/selections/shipped.h) on every one of them; of several, the
//      least geometric mean of their times over GPUs and shapes;
//   2. else, if `unshipped`: of what every GPU measured at every shape, the least geometric mean,
//      where that is more than 1 % below the baseline's, the least that a noise band may be; else
//      the baseline;
//   3. else nothing: the key is served by the baseline.
// The order of the ledgers does not matter, nor do their clocks.
//
// Considered are trials that passed a race's last rounds or an A/B comparison, in the mode that
// serves (graph cold, where there is one), of exact variants that are here as they were measured:
// nothing opts in to approximate ones for a fleet.
//
// Threading: pure but for reading the ledgers.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "registry/catalog.h"
#include "registry/selection_content.h"
#include "tuner/ledger/ledger.h"

namespace kvr {

struct FromLedgersRequest {
  std::vector<std::string> ops;  // empty: all that the ledgers know
  std::string device_model;      // empty: the only one that they know
  bool unshipped = false;
};

struct MergedKey {
  std::string op;
  Axes key;
  std::string selected;  // "w8 {BLOCK_H=16}"; empty: nothing, the baseline serves it
  std::string why;       // "ship verdicts on all 4 GPUs"
};

struct FromLedgers {
  SelectionContent content;
  std::vector<std::string> gpus;  // UUIDs, or hosts
  std::vector<MergedKey> keys;
};

// Errors: kFailedPrecondition, a ledger has nothing of the device model (what it was measured on is
// named), the model is ambiguous, or nothing can be selected.
absl::StatusOr<FromLedgers> MergeLedgers(absl::Span<const ledger::Ledger* const> ledgers,
                                         const Catalog& catalog, const FromLedgersRequest& request);

}  // namespace kvr
