// SPDX-License-Identifier: Apache-2.0
#include "variants/moe_decode/inputs.h"

#include "variants/common/errors.h"
#include "variants/moe_decode/op.h"

namespace kvr::moe_decode {

int ReadRouting(const int64_t* axes, const kvr_tensor* inputs, RoutingInputs* routing, char* error,
                size_t error_size) {
  const int32_t valid = *static_cast<const int32_t*>(inputs[kNumValidTokens].data);
  if (valid < 0 || valid > axes[kNumTokens]) {
    return Fail(KVR_INVALID_ARGUMENT, error, error_size,
                "num_valid_tokens is %d; give 0 to num_tokens, %lld", valid,
                static_cast<long long>(axes[kNumTokens]));
  }
  routing->router = {
      .num_experts = axes[kNumExperts],
      .top_k = axes[kTopK],
      .scoring = static_cast<Scoring>(axes[kScoring]),
      .renormalize = axes[kRenormalize] != 0,
      .n_group = axes[kNumGroups],
      .topk_group = axes[kTopkGroup],
      .scaling_factor = *static_cast<const float*>(inputs[kRoutedScalingFactor].data),
      .bias = static_cast<const float*>(inputs[kBias].data)};
  routing->num_tokens = axes[kNumTokens];
  routing->valid = valid;
  routing->router_logits = static_cast<const float*>(inputs[kRouterLogits].data);
  return KVR_OK;
}

}  // namespace kvr::moe_decode
