// SPDX-License-Identifier: Apache-2.0
#include "core/install_layout.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "core/status.h"
#include "core/strings.h"

namespace kvr {

namespace fs = std::filesystem;

std::string ExecutablePath() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).string();
}

std::string InstallPath(std::string_view relative) {
  const fs::path executable = ExecutablePath();
  if (executable.empty()) return "";
  const fs::path prefix = executable.parent_path().parent_path();
  return (relative.empty() ? prefix : prefix / relative).string();
}

absl::StatusOr<std::string> FindPart(const Part& part) {
  const char* named = part.variable == nullptr ? nullptr : std::getenv(part.variable);
  const bool by_name = named != nullptr && *named != '\0';
  const fs::path place = by_name ? std::string(named) : InstallPath(part.relative);
  const fs::path probe = *part.probe == '\0' ? place : place / part.probe;
  std::error_code error;
  if (!place.empty() && fs::exists(probe, error)) {
    const fs::path found = fs::canonical(place, error);
    return error ? place.string() : found.string();
  }
  if (by_name) {
    return Error(absl::StatusCode::kNotFound,
                 StrCat(part.variable, " names ", place.string(), ", but there is no ",
                        probe == place ? "such file" : probe.string()),
                 StrCat("let it name ", part.what, ", or unset it"));
  }
  return Error(absl::StatusCode::kNotFound, StrCat(part.what, ": there is no ", probe.string()),
               part.fix);
}

}  // namespace kvr
