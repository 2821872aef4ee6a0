// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/info.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>

#include "core/status.h"
#include "core/strings.h"
#include "devices/profiles.h"

namespace kvr::cuda {
namespace {

// "580.95.05 (CUDA 13.0)". The release is the kernel module's; the driver API tells only which CUDA
// it speaks.
std::string DriverText(const Driver& driver) {
  std::string api = StrCat("CUDA ", ApiVersionText(driver.api_version));
  std::ifstream file("/sys/module/nvidia/version");
  std::string release;
  if (file >> release) return StrCat(release, " (", api, ")");
  return api;
}

}  // namespace

std::string PciBusId(const Driver& driver, DeviceHandle device) {
  std::array<char, 32> text{};
  if (driver.DeviceGetPciBusId(text.data(), text.size(), device) != kSuccess) return {};
  return text.data();
}

std::string TargetOf(int major, int minor) {
  return StrCat("sm_", major, minor, major >= 9 ? "a" : "");
}

std::string ModelSlug(std::string_view name) {
  std::string slug;
  for (const char c : name) {
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      slug += upper ? static_cast<char>(c - 'A' + 'a') : c;
    } else if (!slug.empty() && slug.back() != '-') {
      slug += '-';
    }
  }
  while (!slug.empty() && slug.back() == '-') slug.pop_back();
  return slug;
}

std::string UuidText(const Uuid& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    std::array<char, 3> digits;
    std::snprintf(digits.data(), digits.size(), "%02x", uuid.bytes[i]);
    text += digits.data();
  }
  return text;
}

int MaxClusterSize(int major, bool cluster_launch) {
  if (!cluster_launch) return 1;
  return major == 9 || major == 10 ? 16 : 8;
}

absl::StatusOr<DeviceInfo> ReadDeviceInfo(const Driver& driver, DeviceHandle device) {
  absl::Status status;
  const auto attribute = [&](int id) {
    int value = 0;
    const Result result = driver.DeviceGetAttribute(&value, id, device);
    if (result != kSuccess && status.ok()) {
      status = ErrorFrom(driver, result, "cuDeviceGetAttribute", StrCat(id));
    }
    return value;
  };

  DeviceInfo info;
  std::array<char, 256> name{};
  if (const Result result = driver.DeviceGetName(name.data(), name.size(), device);
      result != kSuccess) {
    return ErrorFrom(driver, result, "cuDeviceGetName");
  }
  Uuid uuid{};
  if (const Result result = driver.DeviceGetUuid(&uuid, device); result != kSuccess) {
    return ErrorFrom(driver, result, "cuDeviceGetUuid");
  }
  const int major = attribute(kComputeCapabilityMajor);
  info.kind = "cuda";
  info.name = name.data();
  info.model = ModelSlug(info.name);
  info.target = TargetOf(major, attribute(kComputeCapabilityMinor));
  info.uuid = UuidText(uuid);
  info.driver = DriverText(driver);
  info.ordinal = device;  // what the driver hands out as a CUdevice
  info.sms = attribute(kMultiprocessorCount);
  info.max_threads_per_block = attribute(kMaxThreadsPerBlock);
  info.max_threads_per_sm = attribute(kMaxThreadsPerMultiprocessor);
  info.max_blocks_per_sm = attribute(kMaxBlocksPerMultiprocessor);
  info.max_cluster_size = MaxClusterSize(major, attribute(kClusterLaunch) != 0);
  info.regs_per_sm = attribute(kMaxRegistersPerMultiprocessor);
  info.regs_per_block = attribute(kMaxRegistersPerBlock);
  info.smem_per_sm = attribute(kMaxSharedMemoryPerMultiprocessor);
  info.smem_per_block = attribute(kMaxSharedMemoryPerBlockOptin);
  info.smem_reserved_per_block = attribute(kReservedSharedMemoryPerBlock);
  info.l2_bytes = attribute(kL2CacheSize);
  KVR_RETURN_IF_ERROR(status);
  // The driver does not tell the bandwidth; a profile of this model does, where there is one.
  if (const auto profile = LoadProfileOfModel(info.model); profile.ok()) {
    info.memory_bandwidth = profile->memory_bandwidth;
  }
  return info;
}

}  // namespace kvr::cuda
