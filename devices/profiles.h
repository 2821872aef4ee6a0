// SPDX-License-Identifier: Apache-2.0
//
// Profiles: named descriptions of devices, for feasibility, occupancy and wave analysis without the
// hardware. A profile is a TOML file, NAME.toml; adding one is adding a file. Every key must be
// known and every limit given, so that a typo cannot pass as a default.
//
// They lie in the directory that KVR_PROFILES_DIR names, else in <prefix>/share/kvr/profiles
// (core/install_layout.h).
//
// Threading: pure functions of the file system and the environment.
// Errors: kNotFound for an unknown name, listing the known ones; kInvalidArgument with file, line
// and column for a file that is wrong.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/device_info.h"

namespace kvr {

absl::StatusOr<std::string> ProfilesDirectory();

// "rtx-pro-6000-blackwell". The result's kind is "profile".
absl::StatusOr<DeviceInfo> LoadProfile(std::string_view name);

// The profile that describes `model` (DeviceInfo::model of a real device), for what a driver does
// not tell, such as memory bandwidth. kNotFound if there is none.
absl::StatusOr<DeviceInfo> LoadProfileOfModel(std::string_view model);

// Known names, sorted.
absl::StatusOr<std::vector<std::string>> ListProfiles();

// `text` is a profile's TOML; `file` is its name in errors.
absl::StatusOr<DeviceInfo> ParseProfile(std::string_view text, std::string_view file);

}  // namespace kvr
