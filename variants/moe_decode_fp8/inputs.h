// SPDX-License-Identifier: Apache-2.0
//
// What the op's tensors say of routing, and what its outputs then are. Threading: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvr_plugin.h"
#include "variants/common/moe/quality.h"
#include "variants/common/moe/route.h"

namespace kvr::moe_decode_fp8 {

// KVR_OK, or KVR_INVALID_ARGUMENT where num_valid_tokens is none.
int ReadRouting(const int64_t* axes, const kvr_tensor* inputs, moe::RoutingInputs* routing,
                char* error, size_t error_size);

// All outputs, in float64, for choices[token]: of up to top_k experts each.
void Expect(const int64_t* axes, const kvr_tensor* inputs, const std::vector<moe::Choice>& choices,
            int threads, kvr_expected* outputs);

}  // namespace kvr::moe_decode_fp8
