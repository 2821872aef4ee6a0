// SPDX-License-Identifier: Apache-2.0
//
// What this variant is held to (variants/moe_decode/together.h).
#include "kvr_plugin.h"
#include "variants/common/operation.h"
#include "variants/moe_decode/together.h"

namespace kvr::moe_decode {
namespace {

constexpr int kFirstQuality = 6;  // in variant.toml, after the tunables of topk that it extends

int OeaReference(const int64_t* axes, const int64_t* tunables, const kvr_tensor* inputs,
                 int threads, kvr_expected* outputs, char* error, size_t error_size) {
  return ExpectTogether(axes, tunables + kFirstQuality, inputs, threads, outputs, error,
                        error_size);
}

constexpr kvr_variant kVariant = {.size = sizeof(kvr_variant),
                                  .op = "moe_decode",
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
}  // namespace kvr::moe_decode

KVR_EXPORT const kvr_plugin* kvr_plugin_v1() { return &kvr::moe_decode::kPlugin; }
