// SPDX-License-Identifier: Apache-2.0
//
// Whether a record that comes from elsewhere can be what it says: words are those that records.h
// names, times RFC 3339 in UTC, numbers in the range of what they count or measure. NaN, which
// stands for what was not measured, passes where that can be. Whether a record is true nobody can
// tell.
//
// Threading: pure functions. Errors: kInvalidArgument; the what reads on from "the record":
// "has a 'sessions' of -5: it must be ...".
#pragma once

#include "absl/status/status.h"
#include "tuner/ledger/records.h"

namespace kvr::ledger {

absl::Status Check(const Environment& environment);
absl::Status Check(const Build& build);
absl::Status Check(const Trial& trial);
absl::Status Check(const Verdict& verdict);
absl::Status Check(const Band& band);
absl::Status Check(const Publication& publication);
absl::Status Check(const Summary& summary);

}  // namespace kvr::ledger
