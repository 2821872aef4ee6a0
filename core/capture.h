// SPDX-License-Identifier: Apache-2.0
//
// What every device answers where a capture, or a call during one, cannot be.
//
// Threading: pure functions. All are kFailedPrecondition.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace kvr {

// `call`, which is not legal while the stream captures.
absl::Status RefusedWhileCapturing(std::string_view call);

// Capture of the default stream.
absl::Status DefaultStreamCannotCapture();

// A capture in which nothing was enqueued.
absl::Status CapturedNothing();

}  // namespace kvr
