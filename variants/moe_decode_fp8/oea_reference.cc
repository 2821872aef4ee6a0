// SPDX-License-Identifier: Apache-2.0
#include "variants/moe_decode_fp8/oea_reference.h"

#include <vector>

#include "variants/common/moe/oea.h"
#include "variants/moe_decode_fp8/inputs.h"
#include "variants/moe_decode_fp8/op.h"

namespace kvr::moe_decode_fp8 {

int OeaReference(const int64_t* axes, const int64_t* quality, const kvr_tensor* inputs, int threads,
                 kvr_expected* outputs, char* error, size_t error_size) {
  Routing read;
  if (const int code = ReadRouting(axes, inputs, &read, error, error_size)) return code;
  const moe::RoutingInputs& routing = read.routing;
  const moe::Opportunism opportunism = {.k0 = quality[0],
                                        .k_max = quality[1],
                                        .mass = quality[2],
                                        .max_place = quality[3],
                                        .across_groups = quality[4] != 0};
  std::vector<moe::Choice> choices =
      moe::RouteTogether(routing.router, opportunism, routing.router_logits, routing.valid);
  choices.resize(routing.num_tokens);  // padding
  Expect(axes, inputs, choices, threads, outputs);
  return KVR_OK;
}

}  // namespace kvr::moe_decode_fp8
