// SPDX-License-Identifier: Apache-2.0
//
// Whether a selection may go to a fleet: on a ship verdict, never on a quick one. A selection is
// shipped if
//   - it is the op's baseline with its default config: what runs without any selection; or
//   - its own evidence is a ship verdict that it won; or
//   - the ledger has ship verdicts of it on the selection's device model, against what it replaced
//     or the baseline, that by the newest row of each shape in its key say: a win at one of them,
//     and at none a loss, trouble, or a regression of 3 % not excluded.
//
// Threading: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "registry/catalog.h"
#include "registry/selection_content.h"
#include "tuner/selections/placed.h"

namespace kvr {

struct ShipProof {
  bool shipped = false;
  std::string missing;       // why not
  std::vector<Axes> shapes;  // of the key, where a ship verdict would help; every axis of each
  // The selection's; where the ledger ships it that of the ship run alone: time (the geometric mean
  // of its medians over shapes and devices, 0: not in the ledger), interval, device and date.
  Evidence evidence;
};

// `verdicts`, `trials`: of the op on the selection's device model, oldest row first; of several
// devices, every one that speaks of the selection must agree.
ShipProof ProofFor(const Catalog::Op& op, const KeyPolicy& policy, const Axes& key,
                   const StoredSelection& selection,
                   absl::Span<const Placed<ledger::Verdict>> verdicts,
                   absl::Span<const Placed<ledger::Trial>> trials);

bool IsDefaultBaseline(const Catalog::Op& op, const StoredSelection& selection);

}  // namespace kvr
