// SPDX-License-Identifier: Apache-2.0
//
// A cubin loaded into one context.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "core/binary.h"
#include "core/device.h"
#include "devices/cuda/driver.h"

namespace kvr::cuda {

// `driver` and `info` must outlive the module. `binary.bytes` is a cubin, or PTX text, which the
// driver compiles; the target is the caller's to check.
absl::StatusOr<std::unique_ptr<Module>> LoadModule(const Driver& driver, Context context,
                                                   const DeviceInfo& info, const Binary& binary);

}  // namespace kvr::cuda
