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
  // "max" where there is no limit, which is no number.
  int64_t limit = 0, used = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit &&
      std::ifstream("/sys/fs/cgroup/memory.current") >> used) {
    free = std::min(free, std::max<int64_t>(limit - used, 0));
  }
  return free;
}

}  // namespace

absl::StatusOr<int64_t> FreeMemory(Device& device) {
  return device.info().kind == "cuda" ? CudaFreeMemory(device) : HostFreeMemory();
}

std::string GigabytesText(int64_t bytes) {
  return absl::StrFormat("%.1f GB", static_cast<double>(bytes) / 1e9);
}

}  // namespace kvr
