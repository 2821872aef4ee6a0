// SPDX-License-Identifier: Apache-2.0
#include "jit/sdk.h"

#include <filesystem>
#include <system_error>

#include "core/install_layout.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {

absl::StatusOr<std::string> FindSdkDir(std::string_view override_dir) {
  constexpr char kFix[] = "set KVR_SDK_DIR to the directory that holds kvr/device.cuh";
  if (override_dir.empty()) {
    return FindPart(
        {"KVR's device headers", "KVR_SDK_DIR", "share/kvr/sdk/device", "kvr/device.cuh", kFix});
  }
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::path(override_dir) / "kvr/device.cuh", error)) {
    return std::string(override_dir);
  }
  return Error(absl::StatusCode::kNotFound,
               StrCat("KVR's device headers (kvr/device.cuh) are not in ", override_dir), kFix);
}

}  // namespace kvr
