// SPDX-License-Identifier: Apache-2.0
//
// Selection files between machines: what may leave for a fleet, what may be taken over here, and
// whether two of them select the same. All of it or nothing: a refusal names every selection that
// is in the way, and why.
//
// Threading: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/device_info.h"
#include "registry/catalog.h"
#include "registry/selection_content.h"
#include "tuner/ledger/ledger.h"

namespace kvr {

// `content` for a fleet, its evidence completed by the ledger's ship verdicts. `ledger` may be
// null. Errors: kFailedPrecondition, selections have no ship verdict (tuner/selections/shipped.h)
// and `unshipped` does not let them pass; the fix is a command line, with `ab_options` as the
// reader's `kvr ab` needs them ("--ledger DIR").
absl::StatusOr<SelectionContent> ForTheFleet(SelectionContent content, const Catalog& catalog,
                                             const ledger::Ledger* ledger, bool unshipped,
                                             std::string_view ab_options = "");

struct TakenOver {
  SelectionContent content;
  int added = 0, replaced = 0, unchanged = 0;
};

// `incoming` (from `origin`) into `local`, which may be null. What only `local` has stays. Errors:
// kFailedPrecondition, another device model or target, a variant that is not here or not the one
// that was measured, another key policy than `local` has.
absl::StatusOr<TakenOver> TakeOver(const SelectionContent* local, const SelectionContent& incoming,
                                   std::string_view origin, const Catalog& catalog,
                                   const DeviceInfo& device);

// What two files select differently. Evidence and the generation's number do not count, as in the
// digest: no differences, equal digests.
struct Difference {
  std::string op;           // empty: of the file
  Axes key;                 // empty: of the op
  std::string field, a, b;  // empty: not there
};
std::vector<Difference> Differences(const SelectionContent& a, const SelectionContent& b);

}  // namespace kvr
