// SPDX-License-Identifier: Apache-2.0
//
// Where the device headers for contributors lie: the directory that holds kvr/device.cuh.
// KVR_SDK_DIR, else <prefix>/share/kvr/sdk/device (core/install_layout.h).
//
// Threading: pure but for the environment and the file system.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace kvr {

// `override_dir`, if not empty, is the only place looked at. kNotFound lists the places.
absl::StatusOr<std::string> FindSdkDir(std::string_view override_dir = {});

}  // namespace kvr
