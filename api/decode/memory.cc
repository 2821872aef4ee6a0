// SPDX-License-Identifier: Apache-2.0
#include "api/decode/memory.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "absl/strings/str_format.h"
#include "core/status.h"
#include "core/strings.h"
#include "devices/cuda/cuda.h"

namespace kvr {
namespace {

constexpr int64_t kKiB = 1024;

absl::StatusOr<int64_t> HostFreeMemory() {
  int64_t free = -1;
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; free < 0 && std::getline(meminfo, line);) {
    constexpr std::string_view kName = "MemAvailable:";
    if (line.starts_with(kName)) free = kKiB * std::stoll(line.substr(kName.size()));
  }
  if (free < 0) {
    return Error(absl::StatusCode::kUnavailable, "/proc/meminfo does not say what is available",
                 "mount /proc");
  }
  return std::min(free, ControlGroupFreeMemory("/sys/fs/cgroup").value_or(free));
}

}  // namespace

std::optional<int64_t> ControlGroupFreeMemory(const std::string& directory) {
  int64_t limit = 0, used = 0;  // "max", where there is no limit, is no number
  if (!(std::ifstream(directory + "/memory.max") >> limit) ||
      !(std::ifstream(directory + "/memory.current") >> used)) {
    return std::nullopt;
  }
  std::ifstream stat(directory + "/memory.stat");
  int64_t bytes = 0;
  for (std::string name; stat >> name >> bytes;) {
    if (name == "active_file" || name == "inactive_file") used -= bytes;
  }
  return std::clamp<int64_t>(limit - used, 0, limit);
}

absl::StatusOr<int64_t> FreeMemory(Device& device) {
  return device.info().kind == "cuda" ? CudaFreeMemory(device) : HostFreeMemory();
}

std::string GigabytesText(int64_t bytes) {
  return absl::StrFormat("%.1f GB", static_cast<double>(bytes) / 1e9);
}

}  // namespace kvr
