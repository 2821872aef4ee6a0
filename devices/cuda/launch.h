// SPDX-License-Identifier: Apache-2.0
//
// A kernel launch, as a launch function of the driver and as a graph's kernel node take it.
//
// Threading: pure functions. The context must be current where the driver is asked.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "core/device.h"
#include "devices/cuda/driver.h"

namespace kvr::cuda {

// As Device::Launch.
absl::Status LaunchKernel(const Driver& driver, FunctionHandle function, const KernelLaunch& launch,
                          const LaunchAttributes& attributes, void* const* params,
                          StreamHandle stream);

// Is it within the limits that all kernels of a device have? The error says which one is not met. A
// launch that the driver refuses while its stream captures invalidates the capture, so what is
// recorded is checked first.
absl::Status CheckLimits(const DeviceInfo& info, const KernelLaunch& launch);

// And does this kernel fit, with its registers and shared memory, and all its blocks at once where
// that is asked for?
absl::Status CheckFits(const Driver& driver, const DeviceInfo& info, FunctionHandle function,
                       const KernelLaunch& launch, const LaunchAttributes& attributes);

// Cluster and attributes belong to the node and are not in here.
KernelNodeParams NodeParams(FunctionHandle function, const KernelLaunch& launch,
                            void* const* params);

// "grid 4x1x1, block 128x1x1, cluster 1x1x1, 0 bytes of dynamic shared memory", for errors.
std::string Text(const KernelLaunch& launch);
std::string Text(const Dim3& dim);

}  // namespace kvr::cuda
