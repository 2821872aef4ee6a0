// SPDX-License-Identifier: Apache-2.0
//
// Tensors in DLPack's layout, checked and read as KVR's own.
//
// Threading: pure functions. Ownership: a view shows the caller's memory; a scalar's value lies in
// `scalars`, or in the caller's memory.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "api/kvr.h"
#include "core/device_info.h"
#include "core/op.h"
#include "core/tensor.h"

namespace kvr::c {

// Values of scalars that were given in another type.
using Scalars = std::array<uint64_t, kMaxTensors>;

// Tensor `index` of `op`; null: an absent one. Its type and shape are the launch's to check, since
// these depend on the others.
absl::Status ReadTensor(const OpSpec& op, int index, const kvr_dltensor* given,
                        const DeviceInfo& device, TensorView* view, uint64_t* scalar);

// All of them, `views` and `scalars` by position.
absl::Status ReadTensors(const OpSpec& op, const kvr_dltensor* const* given, size_t count,
                         const DeviceInfo& device, TensorView* views, Scalars* scalars);

}  // namespace kvr::c
