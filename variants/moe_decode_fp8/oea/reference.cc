// SPDX-License-Identifier: Apache-2.0
#include "variants/common/operation.h"
#include "variants/moe_decode_fp8/oea_reference.h"

namespace kvr::moe_decode_fp8 {
namespace {

constexpr int kFirstQuality = 7;  // in variant.toml, after the tunables of topk

int Reference(const int64_t* axes, const int64_t* tunables, const kvr_tensor* inputs, int threads,
              kvr_expected* outputs, char* error, size_t error_size) {
  return OeaReference(axes, tunables + kFirstQuality, inputs, threads, outputs, error, error_size);
}

constexpr kvr_variant kVariant = {.size = sizeof(kvr_variant),
                                  .op = "moe_decode_fp8",
                                  .name = "oea",
                                  .reference = ComputeVariantReference<Reference>};
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
