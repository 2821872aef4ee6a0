// SPDX-License-Identifier: Apache-2.0
//
// Tensor maps through cuTensorMapEncodeTiled: tiles of a row-major view, no interleaving, elements
// beyond the view read as zero, L2 promotion to 128 bytes. bool, uint8 and float8 travel as bytes.
//
// Threading: pure functions, but that the driver's encoder fails where no context is current
// (CUDA_ERROR_INVALID_CONTEXT on driver 580); it touches no stream.
#pragma once

#include "absl/status/status.h"
#include "core/device.h"
#include "devices/cuda/driver.h"

namespace kvr::cuda {

absl::Status EncodeTensorMap(const Driver& driver, const TensorMapLaunch& map, const void* data,
                             TensorMap* encoded);

// The driver answers every unmet limit with one code: this says which it is. OK: none of those
// known here.
absl::Status ExplainTensorMap(const TensorMapLaunch& map, const void* data);

}  // namespace kvr::cuda
