// SPDX-License-Identifier: Apache-2.0
//
// Whether a prebuilt cubin is what its manifest says, before a device refuses it with a number.
//
// Threading: pure.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "plugins/manifest.h"

namespace kvr::bundle {

// Made for the target's architecture, and holding every kernel's entry. `cubin.target` is known.
absl::Status CheckCubin(const CubinEntry& cubin, const std::vector<KernelEntry>& kernels);

}  // namespace kvr::bundle
