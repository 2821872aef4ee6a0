// SPDX-License-Identifier: Apache-2.0
//
// The limits of cuTensorMapEncodeTiled that a plan alone decides: what a launch could not encode is
// no plan. Where the memory lies is the device's to check.
//
// Threading: pure.
#pragma once

#include "absl/status/status.h"
#include "core/plan.h"

namespace kvr {

// Bytes that the address of a view, and the distance of its rows, are multiples of.
inline constexpr int64_t kTensorMapAlign = 16;

// kFailedPrecondition says which limit is not met. Allocates nothing unless it fails.
absl::Status CheckTensorMap(const TensorMapLaunch& map);

}  // namespace kvr
