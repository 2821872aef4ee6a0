// SPDX-License-Identifier: Apache-2.0
//
// What this variant is held to: OEA's choices (variants/common/moe/oea.h) among the experts of all
// ranks, and what this rank's compute for them.
#include <utility>
#include <vector>

#include "kvr_plugin.h"
#include "variants/common/moe/oea.h"
#include "variants/common/operation.h"
#include "variants/moe_decode_fp8/inputs.h"
#include "variants/moe_decode_fp8/op.h"

namespace kvr::moe_decode_fp8 {
namespace {

// Positions in variant.toml, after the tunables of topk that it extends.
enum Tunable { kK0 = 7, kKMax, kP, kMaxP, kAcrossGroups };

int OeaReference(const int64_t* axes, const int64_t* tunables, const kvr_tensor* inputs,
                 int threads, kvr_expected* outputs, char* error, size_t error_size) {
  Routing read;
  if (const int code = ReadRouting(axes, inputs, &read, error, error_size)) return code;
  const moe::RoutingInputs& routing = read.routing;
  const moe::Opportunism opportunism = {.k0 = tunables[kK0],
                                        .k_max = tunables[kKMax],
                                        .mass = tunables[kP],
                                        .max_place = tunables[kMaxP],
                                        .across_groups = tunables[kAcrossGroups] != 0};
  std::vector<moe::Choice> choices =
      moe::RouteTogether(routing.router, opportunism, routing.router_logits, routing.valid);
  choices.resize(routing.num_tokens);  // padding
  Expect(axes, inputs, choices, threads, outputs);
  return KVR_OK;
}

constexpr kvr_variant kVariant = {.size = sizeof(kvr_variant),
                                  .op = "moe_decode_fp8",
                                  .name = "oea",
                                  .reference = ComputeVariantReference<OeaReference>};
constexpr const kvr_variant* kVariants[] = {&kVariant};

constexpr kvr_plugin kPlugin = {
    .size = sizeof(kvr_plugin),
    .abi_major = KVR_ABI_MAJOR,
    .abi_minor = KVR_ABI_MINOR,
    .variant_count = 1,
    .variants = kVariants,
};

}  // namespace
}  // namespace kvr::moe_decode_fp8

KVR_EXPORT const kvr_plugin* kvr_plugin_v1() { return &kvr::moe_decode_fp8::kPlugin; }
