// SPDX-License-Identifier: Apache-2.0
#include "variants/moe_decode/inputs.h"

#include "variants/common/bfloat16.h"
#include "variants/common/moe/experts.h"
#include "variants/moe_decode/op.h"

namespace kvr::moe_decode {
namespace {

moe::Experts ReadExperts(const int64_t* axes, const kvr_tensor* inputs) {
  const int64_t hidden = axes[kHidden], inner = axes[kInner];
  const auto rows = [](const kvr_tensor& tensor, int64_t width) {
    return [values = static_cast<const uint16_t*>(tensor.data), width](int64_t row, double* to) {
      constexpr int64_t kStep = 8;  // hidden and inner are multiples of it; a loop to unroll
      for (int64_t i = 0; i < width; i += kStep) {
        for (int64_t j = i; j < i + kStep; ++j) to[j] = WidenBf16(values[row * width + j]);
      }
    };
  };
  const auto w13 = rows(inputs[kW13], hidden), w2 = rows(inputs[kW2], inner);
  return {.num_tokens = axes[kNumTokens],
          .hidden = hidden,
          .inner = inner,
          .count = axes[kNumExperts],
          .token = rows(inputs[kX], hidden),
          .gate = [=](int64_t e, int64_t row, double* to) { w13(e * 2 * inner + row, to); },
          .up = [=](int64_t e, int64_t row, double* to) { w13((e * 2 + 1) * inner + row, to); },
          .down = [=](int64_t e, int64_t row, double* to) { w2(e * hidden + row, to); },
          .activate = [](int64_t, double gate, double up) { return moe::Silu(gate) * up; }};
}

}  // namespace

int ReadRouting(const int64_t* axes, const kvr_tensor* inputs, moe::RoutingInputs* routing,
                char* error, size_t error_size) {
  routing->router = {
      .num_experts = axes[kNumExperts],
      .top_k = axes[kTopK],
      .scoring = static_cast<moe::Scoring>(axes[kScoring]),
      .renormalize = axes[kRenormalize] != 0,
      .n_group = axes[kNumGroups],
      .topk_group = axes[kTopkGroup],
      .scaling_factor = *static_cast<const float*>(inputs[kRoutedScalingFactor].data),
      .bias = static_cast<const float*>(inputs[kBias].data)};
  routing->num_tokens = axes[kNumTokens];
  routing->valid = *static_cast<const int32_t*>(inputs[kNumValidTokens].data);
  routing->router_logits = static_cast<const float*>(inputs[kRouterLogits].data);
  routing->end_expert = axes[kNumExperts];
  return moe::CheckValid(*routing, error, error_size);
}

void Expect(const int64_t* axes, const kvr_tensor* inputs, const std::vector<moe::Choice>& choices,
            int threads, kvr_expected* outputs) {
  moe::ComputeExperts(ReadExperts(axes, inputs), choices, threads, &outputs[kOut]);
  moe::ExpectChoices(choices, axes[kTopK], &outputs[kExpertIds], &outputs[kExpertWeights]);
}

}  // namespace kvr::moe_decode
