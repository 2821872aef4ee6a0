// SPDX-License-Identifier: Apache-2.0
//
// What the op's tensors say of routing. Threading: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kvr_plugin.h"
#include "variants/moe_decode/route.h"

namespace kvr::moe_decode {

// Valid as long as the tensors.
struct RoutingInputs {
  Router router;
  int64_t num_tokens = 0;
  int64_t valid = 0;  // tokens from here on are padding
  const float* router_logits = nullptr;

  const float* LogitsOf(int64_t token) const { return router_logits + token * router.num_experts; }
};

// KVR_OK, or KVR_INVALID_ARGUMENT where num_valid_tokens is none.
int ReadRouting(const int64_t* axes, const kvr_tensor* inputs, RoutingInputs* routing, char* error,
                size_t error_size);

}  // namespace kvr::moe_decode
