// SPDX-License-Identifier: Apache-2.0
//
// The definition in float64: what each token's top_k experts (route.h) compute (experts.h).
#include <vector>

#include "variants/moe_decode/experts.h"
#include "variants/moe_decode/inputs.h"
#include "variants/moe_decode/op.h"

namespace kvr::moe_decode {

int Reference(const int64_t* axes, const kvr_tensor* inputs, int threads, kvr_expected* outputs,
              char* error, size_t error_size) {
  RoutingInputs routing;
  if (const int code = ReadRouting(axes, inputs, &routing, error, error_size)) return code;
  std::vector<Choice> choices(routing.num_tokens);
  for (int64_t token = 0; token < routing.valid; ++token) {
    choices[token] = Route(routing.router, routing.LogitsOf(token));
  }
  ComputeExperts(axes, inputs, choices, threads, outputs);
  return KVR_OK;
}

}  // namespace kvr::moe_decode
