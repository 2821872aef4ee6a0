// SPDX-License-Identifier: Apache-2.0
//
// What this variant is held to (variants/common/moe/oea_reference.h).
#include "variants/common/moe/oea_reference.h"
#include "variants/common/operation.h"
#include "variants/moe_decode_fp8/inputs.h"

namespace kvr::moe_decode_fp8 {
namespace {

constexpr kvr_variant kVariant =
    VariantOf<moe::OeaReference<ReadRouting, Expect>>("moe_decode_fp8", "oea");
constexpr kvr_plugin kPlugin = VariantPlugin<kVariant>();

}  // namespace
}  // namespace kvr::moe_decode_fp8

KVR_EXPORT const kvr_plugin* kvr_plugin_v1() { return &kvr::moe_decode_fp8::kPlugin; }
