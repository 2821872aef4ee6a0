// SPDX-License-Identifier: Apache-2.0
//
// How much memory a device has left, so that who needs much can refuse before it fills anything.
//
// Threading: any. A snapshot: others allocate meanwhile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/device.h"

namespace kvr {

// Bytes. host: MemAvailable of /proc/meminfo, or less where a control group allows less. Error:
// nobody can say.
absl::StatusOr<int64_t> FreeMemory(Device& device);

// Bytes that the control group (version 2) of `directory` still grants. Cached files count as free:
// the kernel drops them for whoever asks. Nothing where it has no limit, or is none.
std::optional<int64_t> ControlGroupFreeMemory(const std::string& directory);

std::string GigabytesText(int64_t bytes);  // "51.6 GB", of 10^9 bytes

}  // namespace kvr
