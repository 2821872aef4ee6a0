// SPDX-License-Identifier: Apache-2.0
//
// The cuda device: NVIDIA's driver API, found at run time with dlopen("libcuda.so.1"), so one
// binary runs with and without a GPU. Needs a driver that speaks CUDA 12.0 or newer (525.60.13 on
// Linux); an older one is refused with an error that says so. KVR_NO_CUDA=1 hides CUDA altogether.
//
// Threading: as core/device.h. Every call makes the device's context current on the calling thread
// and puts back what was current before, so an application that switches contexts is not disturbed.
// Ownership: OpenCuda retains the primary context (the one that the CUDA runtime and PyTorch use)
// and releases it when the device is destroyed; OpenCudaContext uses a context it does not own,
// which must outlive the device. Modules must be destroyed before their device.
// Stream order: handles are raw CUstream values; the application's streams may be passed as they
// are. The null stream is the legacy default stream. Streams made here do not synchronise with it.
// Errors: the call, CUDA's name and text for its error, mapped to the canonical code that fits
// (out of memory: kResourceExhausted; an invalid argument: kInvalidArgument; a fault of a kernel:
// kInternal, after which the context is lost). Clocks and modes are never changed; ThrottleBits
// asks NVML about them, where there is one.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "core/device.h"

namespace kvr {

// How many GPUs there are, at least 1. The error says what is missing: no driver library, a driver
// that is too old, no GPU, or that KVR_NO_CUDA hides it. Never crashes where there is no driver.
absl::StatusOr<int> CudaDeviceCount();

// Opens GPU `ordinal`, counted as CUDA counts (CUDA_VISIBLE_DEVICES applies).
absl::StatusOr<std::unique_ptr<Device>> OpenCuda(int ordinal);

// Bytes that nobody has allocated on a device of this kind, whoever else uses the GPU.
absl::StatusOr<int64_t> CudaFreeMemory(Device& device);

// Opens the GPU of `context`, a CUcontext of the application.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaContext(void* context);

}  // namespace kvr
