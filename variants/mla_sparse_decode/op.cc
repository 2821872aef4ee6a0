// SPDX-License-Identifier: Apache-2.0
#include "variants/mla_sparse_decode/op.h"

#include "variants/common/operation.h"
#include "variants/common/slot_lists.h"

namespace kvr::mla_sparse_decode {
namespace {

// Each KV row once, however many tokens read it; q, output and the slot lists.
int64_t MinimumBytes(const int64_t* axes, uint32_t /*axis_count*/) {
  const int64_t slots = axes[kNumTokens] * axes[kTopk];
  // Padding, a few percent, is not taken off.
  const int64_t rows =
      DistinctSlots(axes[kNumTokens], axes[kTopk], axes[kNumPages] * axes[kPageSize]);
  const int64_t key_bytes = 2 * (axes[kCkvDim] + axes[kKpeDim]);
  const int64_t value_bytes = 2 * axes[kCkvDim];
  return rows * key_bytes + axes[kNumTokens] * axes[kNumHeads] * (key_bytes + value_bytes) +
         slots * 4;
}

constexpr kvr_operation kOperation =
    OperationOf<Generate, Reference>("mla_sparse_decode", MinimumBytes);
constexpr kvr_plugin kPlugin = OperationPlugin<kOperation>();

}  // namespace
}  // namespace kvr::mla_sparse_decode

KVR_EXPORT const kvr_plugin* kvr_plugin_v1() { return &kvr::mla_sparse_decode::kPlugin; }
