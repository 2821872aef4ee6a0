// SPDX-License-Identifier: Apache-2.0
#include "variants/common/mla_fp8/operation.h"

namespace kvr::mla_sparse_decode_fp8_v32 {
namespace {

constexpr kvr_operation kOperation =
    mla_fp8::OperationOf<mla_fp8::kV32>("mla_sparse_decode_fp8_v32");
constexpr const kvr_operation* kOperations[] = {&kOperation};

constexpr kvr_plugin kPlugin = {
    .size = sizeof(kvr_plugin),
    .abi_major = KVR_ABI_MAJOR,
    .abi_minor = KVR_ABI_MINOR,
    .operation_count = 1,
    .operations = kOperations,
};

}  // namespace
}  // namespace kvr::mla_sparse_decode_fp8_v32

KVR_EXPORT const kvr_plugin* kvr_plugin_v1() { return &kvr::mla_sparse_decode_fp8_v32::kPlugin; }
