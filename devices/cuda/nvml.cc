// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/nvml.h"

#include <dlfcn.h>

#include <utility>

#include "core/throttle.h"

namespace kvr::cuda {
namespace {

constexpr int kNvmlSuccess = 0;

template <typename F>
F Look(void* library, const char* symbol) {
  return reinterpret_cast<F>(dlsym(library, symbol));
}

}  // namespace

Throttle::Throttle(std::string pci_bus_id, std::string library)
    : pci_bus_id_(std::move(pci_bus_id)), library_(std::move(library)) {}

// Nothing is shut down or closed: NVML counts its users, and the process may have others.
void Throttle::Find() {
  if (pci_bus_id_.empty()) return;
  void* const library = dlopen(library_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  const auto init = Look<int (*)()>(library, "nvmlInit_v2");
  const auto find =
      Look<int (*)(const char*, Device*)>(library, "nvmlDeviceGetHandleByPciBusId_v2");
  // The newer name came with the releases of 2023, and is all that a later one need have.
  auto get = Look<GetReasons>(library, "nvmlDeviceGetCurrentClocksEventReasons");
  if (get == nullptr) get = Look<GetReasons>(library, "nvmlDeviceGetCurrentClocksThrottleReasons");
  if (init == nullptr || find == nullptr || get == nullptr) return;
  if (init() != kNvmlSuccess) return;
  if (find(pci_bus_id_.c_str(), &device_) == kNvmlSuccess) get_reasons_ = get;
}

uint64_t Throttle::Bits() {
  std::call_once(once_, [this] { Find(); });
  unsigned long long reasons = 0;  // NOLINT(google-runtime-int): NVML's
  if (get_reasons_ == nullptr || get_reasons_(device_, &reasons) != kNvmlSuccess) return 0;
  return reasons & kThrottleMask;
}

}  // namespace kvr::cuda
