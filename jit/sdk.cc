// SPDX-License-Identifier: Apache-2.0
#include "jit/sdk.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "core/status.h"

namespace kvr {
namespace {

bool HoldsSdk(const std::string& directory) {
  struct stat s;
  return stat((directory + "/kvr/device.cuh").c_str(), &s) == 0 && S_ISREG(s.st_mode);
}

std::string ExecutableDirectory() {
  char path[PATH_MAX];
  ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  if (size <= 0) return ".";
  std::string executable(path, static_cast<size_t>(size));
  return executable.substr(0, executable.rfind('/'));
}

}  // namespace

absl::StatusOr<std::string> FindSdkDir(std::string_view override_dir) {
  std::vector<std::string> places;
  const char* environment = std::getenv("KVR_SDK_DIR");
  if (!override_dir.empty()) {
    places.emplace_back(override_dir);
  } else if (environment != nullptr && *environment != '\0') {
    places.emplace_back(environment);
  } else {
    places.push_back(ExecutableDirectory() + "/../share/kvr/sdk/device");
    places.emplace_back(KVR_SDK_SOURCE_DIR);
  }
  std::string looked;
  for (const std::string& place : places) {
    if (HoldsSdk(place)) return place;
    looked += (looked.empty() ? "" : ", ") + place;
  }
  return Error(absl::StatusCode::kNotFound,
               "KVR's device headers (kvr/device.cuh) are not in " + looked,
               "set KVR_SDK_DIR to the directory that holds kvr/device.cuh");
}

}  // namespace kvr
