// SPDX-License-Identifier: Apache-2.0
#include "variants/moe_decode_fp8/inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "variants/common/bfloat16.h"
#include "variants/common/fp8.h"
#include "variants/common/moe/experts.h"
#include "variants/moe_decode_fp8/op.h"

namespace kvr::moe_decode_fp8 {
namespace {

constexpr float kNoLimit = std::numeric_limits<float>::infinity();

// codes[rows][width], scales[rows / 128][width / 128]: of one matrix, or several on top of each
// other.
auto ScaledRows(const kvr_tensor& codes, const kvr_tensor& scales, int64_t width) {
  return [codes = static_cast<const uint8_t*>(codes.data),
          scales = static_cast<const float*>(scales.data), width](int64_t row, double* to) {
    const float* const scale = scales + row / kBlock * (width / kBlock);
    for (int64_t block = 0; block < width / kBlock; ++block) {
      const double factor = scale[block];
      for (int64_t i = block * kBlock; i < (block + 1) * kBlock; ++i) {
        to[i] = DecodeE4m3(codes[row * width + i]) * factor;
      }
    }
  };
}

// By local expert.
auto ValueOf(const kvr_tensor& tensor, float absent) {
  return [values = static_cast<const float*>(tensor.data), absent](int64_t expert) -> double {
    return values == nullptr ? absent : values[expert];
  };
}

moe::Experts ReadExperts(const int64_t* axes, const kvr_tensor* inputs) {
  const int64_t num_tokens = axes[kSeqLen], hidden = axes[kHidden], inner = axes[kInner];
  const int64_t offset = axes[kLocalOffset];
  const auto* const codes = static_cast<const uint8_t*>(inputs[kHiddenStates].data);
  const auto* const scales = static_cast<const float*>(inputs[kHiddenStatesScale].data);
  const auto w1 = ScaledRows(inputs[kGemm1Weights], inputs[kGemm1WeightsScale], hidden);
  const auto w2 = ScaledRows(inputs[kGemm2Weights], inputs[kGemm2WeightsScale], inner);
  const auto alpha = ValueOf(inputs[kAlpha], 1), beta = ValueOf(inputs[kBeta], 0);
  const auto limit = ValueOf(inputs[kClampLimit], kNoLimit);
  return {.num_tokens = num_tokens,
          .hidden = hidden,
          .inner = inner,
          .first = offset,
          .count = std::min(axes[kNumLocal], axes[kNumExperts] - offset),
          .token =
              [=](int64_t token, double* to) {
                for (int64_t d = 0; d < hidden; ++d) {
                  to[d] = DecodeE4m3(codes[token * hidden + d]) *
                          scales[d / kBlock * num_tokens + token];
                }
              },
          .gate = [=](int64_t e, int64_t row,
                      double* to) { w1(((e - offset) * 2 + 1) * inner + row, to); },
          .up = [=](int64_t e, int64_t row, double* to) { w1((e - offset) * 2 * inner + row, to); },
          .down = [=](int64_t e, int64_t row, double* to) { w2((e - offset) * hidden + row, to); },
          .activate =
              [=](int64_t e, double gate, double up) {
                const double most = limit(e - offset);
                const double g = std::min(gate, most), u = std::clamp(up, -most, most);
                return g / (1 + std::exp(-alpha(e - offset) * g)) * (u + beta(e - offset));
              }};
}

}  // namespace

int ReadRouting(const int64_t* axes, const kvr_tensor* inputs, moe::RoutingInputs* routing,
                char* error, size_t error_size) {
  const auto* const bias = static_cast<const uint16_t*>(inputs[kRoutingBias].data);
  routing->bias.resize(axes[kNumExperts]);
  std::transform(bias, bias + axes[kNumExperts], routing->bias.begin(), WidenBf16);
  routing->router = {
      .num_experts = axes[kNumExperts],
      .top_k = axes[kTopK],
      .scoring = moe::Scoring::kSigmoid,
      .n_group = axes[kNumGroups],
      .topk_group = axes[kTopkGroup],
      .scaling_factor = *static_cast<const float*>(inputs[kRoutedScalingFactor].data),
      .epsilon = kEpsilon,
      .bias = routing->bias.data()};
  const auto* const valid = static_cast<const int32_t*>(inputs[kNumValidTokens].data);
  routing->num_tokens = axes[kSeqLen];
  routing->valid = valid == nullptr ? axes[kSeqLen] : *valid;
  routing->router_logits = static_cast<const float*>(inputs[kRoutingLogits].data);
  routing->first_expert = axes[kLocalOffset];
  routing->end_expert = axes[kLocalOffset] + axes[kNumLocal];
  return moe::CheckValid(*routing, error, error_size);
}

void Expect(const int64_t* axes, const kvr_tensor* inputs, const std::vector<moe::Choice>& choices,
            int threads, kvr_expected* outputs) {
  moe::ComputeExperts(ReadExperts(axes, inputs), choices, threads, &outputs[kOutput]);
  moe::ExpectChoices(choices, axes[kSlots], &outputs[kExpertIds], &outputs[kExpertWeights]);
}

}  // namespace kvr::moe_decode_fp8
