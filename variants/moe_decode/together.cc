// SPDX-License-Identifier: Apache-2.0
#include "variants/moe_decode/together.h"

#include <utility>
#include <vector>

#include "variants/common/moe/oea.h"
#include "variants/moe_decode/inputs.h"

namespace kvr::moe_decode {
namespace {

enum Quality { kK0, kKMax, kP, kMaxP, kAcrossGroups };

}  // namespace

int ExpectTogether(const int64_t* axes, const int64_t* quality, const kvr_tensor* inputs,
                   int threads, kvr_expected* outputs, char* error, size_t error_size) {
  moe::RoutingInputs routing;
  if (const int code = ReadRouting(axes, inputs, &routing, error, error_size)) return code;
  const moe::Opportunism opportunism = {.k0 = quality[kK0],
                                        .k_max = quality[kKMax],
                                        .mass = quality[kP],
                                        .max_place = quality[kMaxP],
                                        .across_groups = quality[kAcrossGroups] != 0};
  std::vector<moe::Choice> choices =
      moe::RouteTogether(routing.router, opportunism, routing.router_logits, routing.valid);
  choices.resize(routing.num_tokens);  // padding
  Expect(axes, inputs, choices, threads, outputs);
  return KVR_OK;
}

}  // namespace kvr::moe_decode
