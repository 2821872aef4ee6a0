// SPDX-License-Identifier: Apache-2.0
#include "variants/moe_decode_fp8/op.h"

#include <algorithm>
#include <cmath>

#include "variants/common/moe/generate.h"
#include "variants/common/moe/quality.h"
#include "variants/common/operation.h"

namespace kvr::moe_decode_fp8 {
namespace {

// Each active expert's weights once, and their scales; tokens, logits and output. A token's experts
// fall among this rank's as any others do.
int64_t MinimumBytes(const int64_t* axes, uint32_t /*axis_count*/) {
  constexpr int64_t kScale = 4, kBf16 = 2, kId = 4;
  const int64_t weights = (axes[kGemm1Out] + axes[kInner]) * axes[kHidden];
  const int64_t expert = weights + weights / (kBlock * kBlock) * kScale;
  const int64_t token = axes[kHidden] + axes[kHiddenBlocks] * kScale + kBf16 * axes[kHidden] +
                        4 * axes[kNumExperts] + 2 * kId * axes[kSlots];
  const auto experts = static_cast<double>(axes[kNumExperts]);
  const double share = moe::ExpectedActive(static_cast<double>(axes[kTopK]) / experts,
                                           axes[kSeqLen], axes[kCorrelation]);
  const int64_t local = std::min(axes[kNumLocal], axes[kNumExperts] - axes[kLocalOffset]);
  return std::llround(share * static_cast<double>(local)) * expert + axes[kSeqLen] * token;
}

constexpr kvr_operation kOperation = [] {
  kvr_operation operation = OperationOf<Generate, Reference>("moe_decode_fp8", MinimumBytes);
  operation.quality_count = moe::kMeasures;
  operation.quality_names = moe::kMeasureNames;
  operation.quality = MeasureQuality<Quality>;
  return operation;
}();
constexpr kvr_plugin kPlugin = OperationPlugin<kOperation>();

}  // namespace
}  // namespace kvr::moe_decode_fp8

KVR_EXPORT const kvr_plugin* kvr_plugin_v1() { return &kvr::moe_decode_fp8::kPlugin; }
