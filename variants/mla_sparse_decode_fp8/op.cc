// SPDX-License-Identifier: Apache-2.0
#include "variants/common/mla_fp8/operation.h"

namespace kvr::mla_sparse_decode_fp8 {
namespace {

constexpr kvr_operation kOperation = mla_fp8::OperationOf<mla_fp8::kV4>("mla_sparse_decode_fp8");
constexpr kvr_plugin kPlugin = OperationPlugin<kOperation>();

}  // namespace
}  // namespace kvr::mla_sparse_decode_fp8

KVR_EXPORT const kvr_plugin* kvr_plugin_v1() { return &kvr::mla_sparse_decode_fp8::kPlugin; }
