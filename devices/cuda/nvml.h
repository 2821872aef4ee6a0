// SPDX-License-Identifier: Apache-2.0
//
// What slows a GPU's clocks down, asked of NVML, the library beside the driver that nvidia-smi
// stands on. It is found with dlopen at the first question, and kept; whatever fails, the answer is
// that nothing is known.
//
// Threading: concurrent calls. The first takes as long as NVML's start (tens of milliseconds), the
// others a system call: not for the time between launches that are timed.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

namespace kvr::cuda {

class Throttle {
 public:
  // By the GPU's place on the bus, "0000:3b:00.0": the CUDA devices that MIG makes of one GPU share
  // its clocks, and its place. Empty: unknown, and so are the bits.
  explicit Throttle(std::string pci_bus_id, std::string library = "libnvidia-ml.so.1");

  // Of core/throttle.h's mask; 0 also where NVML is missing, refuses or fails.
  uint64_t Bits();

 private:
  using Device = struct NvmlDeviceTag*;
  using GetReasons = int (*)(Device, unsigned long long*);  // NOLINT(google-runtime-int): NVML's

  void Find();

  const std::string pci_bus_id_, library_;
  std::once_flag once_;
  GetReasons get_reasons_ = nullptr;  // null: nobody to ask
  Device device_ = nullptr;
};

}  // namespace kvr::cuda
