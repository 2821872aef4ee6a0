// SPDX-License-Identifier: Apache-2.0
//
// The kernels that a slot runs when it runs none of a variant's: one that clears memory and one
// that does nothing. They are PTX text, compiled by the driver when the first slot is recorded.
//
// Threading: Load from any thread; As is a pure function once Load has succeeded.
// Ownership: `driver` and `info` must outlive this; every graph with such a slot retains module().
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "core/device.h"
#include "devices/cuda/driver.h"

namespace kvr::cuda {

// A slot's work as the launch of one kernel. Points into itself and into the NodeWork.
struct SlotLaunch {
  SlotLaunch() = default;
  SlotLaunch(const SlotLaunch&) = delete;
  SlotLaunch& operator=(const SlotLaunch&) = delete;

  FunctionHandle function = nullptr;
  const KernelLaunch* launch = nullptr;
  void* const* params = nullptr;

  KernelLaunch own;  // where the work is not a variant's kernel
  DevicePtr data = 0;
  uint64_t bytes = 0;
  void* own_params[2] = {&data, &bytes};
};

class SlotKernels {
 public:
  SlotKernels(const Driver& driver, Context context, const DeviceInfo& info)
      : driver_(driver), context_(context), info_(info) {}

  // Compiles and loads both, once; about 100 ms. Legal while streams capture. A failure is tried
  // again by the next call.
  absl::Status Load();
  // What both lie in, once Load has succeeded.
  std::shared_ptr<const void> module() const { return module_; }

  // Clearing and doing nothing fit any node: they keep `cluster`, which is the node's, and wait for
  // what a programmatic edge would let them overtake. kInvalidArgument: `work` is not complete, or
  // beyond the device's limits.
  absl::Status As(const NodeWork& work, const Dim3& cluster, SlotLaunch* slot) const;

 private:
  const Driver& driver_;
  const Context context_;
  const DeviceInfo& info_;

  std::mutex mutex_;
  std::atomic<bool> loaded_ = false;
  std::shared_ptr<Module> module_;
  Function nothing_, clear_;
};

}  // namespace kvr::cuda
