// SPDX-License-Identifier: Apache-2.0
//
// toml++ nests tables by dotted keys without a limit and destroys them recursively: a file of dots
// would overflow the stack. So dots are counted before it parses.
//
// Threading: pure.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace kvr::bundle {

inline constexpr int kMaxDots =
    512;  // outside strings and comments; a manifest needs one a tunable

absl::Status CheckDots(std::string_view text, std::string_view file);

}  // namespace kvr::bundle
