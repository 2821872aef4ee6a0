// SPDX-License-Identifier: Apache-2.0
//
// What a variant with OEA is held to: its choices (variants/common/moe/oea.h) among the experts of
// all ranks, and what this rank's compute for them. Threading: a pure function.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kvr_plugin.h"

namespace kvr::moe_decode_fp8 {

// quality: K0, K_MAX, P, MAX_P, ACROSS_GROUPS.
int OeaReference(const int64_t* axes, const int64_t* quality, const kvr_tensor* inputs, int threads,
                 kvr_expected* outputs, char* error, size_t error_size);

}  // namespace kvr::moe_decode_fp8
