// SPDX-License-Identifier: Apache-2.0
//
// What a variant launches: kernels compiled from sources, kernels of cubins, or a launch function;
// and that nothing else stands beside.
//
// Threading: pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plugins/manifest.h"

namespace kvr::bundle {

// Does `m`, complete, state one kind with all it needs, and functions that a library has? One that
// is approximate has a reference function, and one that is exact has none.
absl::Status CheckKind(const Manifest& m);

// Cubins say themselves what they are for; `targets` beside them may only say the same.
absl::StatusOr<std::vector<std::string>> CubinTargets(const Manifest& m);

}  // namespace kvr::bundle
