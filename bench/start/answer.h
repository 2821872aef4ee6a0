// SPDX-License-Identifier: Apache-2.0
//
// What a child (bench/start/child.h) has said, checked: whatever loads into a process may print,
// and may end it.
//
// Threading: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/start/set.h"

namespace kvr::bench {

// The stamps that a child of `mode` owes. `launches`: there is a device.
std::vector<std::string> StampsOf(std::string_view mode, bool launches);

// `said` as one line of JSON with all of `stamps`, in milliseconds; of mode `hit` with its rows.
// Errors: one line that quotes where `said` begins.
absl::StatusOr<Json> ParseAnswer(std::string_view mode, const std::vector<std::string>& stamps,
                                 std::string_view said);

// How a process ended, by what waitpid gave, and the line that its output begins with; OK: with 0.
// kInvalidArgument: with 2, its command line was wrong.
absl::Status CheckEnd(std::string_view mode, int wait_status, std::string_view said);

}  // namespace kvr::bench
