// SPDX-License-Identifier: Apache-2.0
#include "variants/moe_decode/op.h"

#include <cmath>

#include "variants/common/moe/generate.h"
#include "variants/common/moe/quality.h"
#include "variants/common/operation.h"

namespace kvr::moe_decode {
namespace {

// Each active expert's weights once; tokens, logits and results.
int64_t MinimumBytes(const int64_t* axes, uint32_t /*axis_count*/) {
  const int64_t expert = 2 * (axes[kGateUp] + axes[kInner]) * axes[kHidden];
  const int64_t token = 2 * 2 * axes[kHidden] + 4 * axes[kNumExperts] + 8 * axes[kTopK];
  const auto experts = static_cast<double>(axes[kNumExperts]);
  const double active = experts * moe::ExpectedActive(static_cast<double>(axes[kTopK]) / experts,
                                                      axes[kNumTokens], axes[kCorrelation]);
  return std::llround(active) * expert + axes[kNumTokens] * token;
}

constexpr kvr_operation kOperation = [] {
  kvr_operation operation = OperationOf<Generate, Reference>("moe_decode", MinimumBytes);
  operation.quality_count = moe::kMeasures;
  operation.quality_names = moe::kMeasureNames;
  operation.quality = MeasureQuality<Quality>;
  return operation;
}();
constexpr kvr_plugin kPlugin = OperationPlugin<kOperation>();

}  // namespace
}  // namespace kvr::moe_decode

KVR_EXPORT const kvr_plugin* kvr_plugin_v1() { return &kvr::moe_decode::kPlugin; }
