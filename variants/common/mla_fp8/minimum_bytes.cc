// SPDX-License-Identifier: Apache-2.0
#include "variants/common/mla_fp8/mla_fp8.h"
#include "variants/common/slot_lists.h"

namespace kvr::mla_fp8 {

int64_t MinimumBytes(const Layout& layout, const int64_t* axes) {
  const int64_t tokens = axes[kNumTokens], topk = axes[kTopk], extra_topk = axes[kExtraTopk];
  const int64_t rows =
      DistinctSlots(tokens, topk, axes[kNumPages] * axes[kPageSize]) +
      DistinctSlots(tokens, extra_topk, axes[kExtraNumPages] * axes[kExtraPageSize]);
  return rows * layout.token_bytes +
         tokens * axes[kNumHeads] * 2 * (layout.key_dims() + kValueDims) +
         tokens * (topk + extra_topk) * 4;
}

}  // namespace kvr::mla_fp8
