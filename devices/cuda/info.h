// SPDX-License-Identifier: Apache-2.0
//
// What the driver says about a GPU, as a DeviceInfo.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/device_info.h"
#include "devices/cuda/driver.h"

namespace kvr::cuda {

absl::StatusOr<DeviceInfo> ReadDeviceInfo(const Driver& driver, DeviceHandle device);

// "0000:3b:00.0"; empty where the driver does not say.
std::string PciBusId(const Driver& driver, DeviceHandle device);

// (9, 0) → "sm_90a": from Hopper on, binaries use the instructions of exactly one architecture.
std::string TargetOf(int major, int minor);

// "NVIDIA H200" → "nvidia-h200": lower case, every run of other characters one dash.
std::string ModelSlug(std::string_view name);

// "GPU-6e5f0c3a-…", as nvidia-smi prints it.
std::string UuidText(const Uuid& uuid);

// Blocks of the largest cluster that an architecture can launch; more than 8 is not portable.
int MaxClusterSize(int major, bool cluster_launch);

}  // namespace kvr::cuda
