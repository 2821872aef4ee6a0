// SPDX-License-Identifier: Apache-2.0
#include "core/install_layout.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "core/status.h"
#include "core/strings.h"

namespace kvr {

namespace fs = std::filesystem;

namespace {

std::string FindOwnPath() {
  std::error_code error;
  Dl_info info;
  void* found = nullptr;
  const int known =
      dladdr1(reinterpret_cast<const void*>(&FindOwnPath), &info, &found, RTLD_DL_LINKMAP);
  // The loader's name of a library is the path it was loaded by; of the executable it is empty.
  const auto* object = static_cast<const link_map*>(found);
  if (known != 0 && object != nullptr && *object->l_name != '\0') {
    return fs::canonical(object->l_name, error).string();
  }
  return fs::read_symlink("/proc/self/exe", error).string();
}

}  // namespace

const std::string& OwnPath() {
  static const std::string& path = *new std::string(FindOwnPath());  // for threads at exit, too
  return path;
}

std::string InstallPath(std::string_view relative) {
  const fs::path own = OwnPath();
  if (own.empty()) return "";
  const fs::path prefix = own.parent_path().parent_path();
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
