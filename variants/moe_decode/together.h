// SPDX-License-Identifier: Apache-2.0
//
// The reference of the variants that route by opportunistic expert activation: OEA's choices
// (variants/common/moe/oea.h), and the op's experts for them. Threading: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kvr_plugin.h"

namespace kvr::moe_decode {

// `quality`: a variant's tunables K0, K_MAX, P, MAX_P, ACROSS_GROUPS. KVR_OK, or what ReadRouting
// says.
int ExpectTogether(const int64_t* axes, const int64_t* quality, const kvr_tensor* inputs,
                   int threads, kvr_expected* outputs, char* error, size_t error_size);

}  // namespace kvr::moe_decode
