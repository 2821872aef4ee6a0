// SPDX-License-Identifier: Apache-2.0
#include "variants/common/moe/generate.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "variants/common/random.h"
#include "variants/moe_decode/op.h"

namespace kvr::moe_decode {
namespace {

std::span<uint16_t> Bf16(const kvr_tensor& tensor) {
  int64_t elements = 1;
  for (int32_t d = 0; d < tensor.rank; ++d) elements *= tensor.shape[d];
  return {static_cast<uint16_t*>(tensor.data), static_cast<size_t>(elements)};
}

// Times 2^-round(log2(sqrt(fan_in))): exact, so the values stay the bf16 quantiles.
void FillWeights(const RandomStream& random, int64_t fan_in, std::span<uint16_t> out) {
  const int shift = static_cast<int>(std::lround(std::log2(static_cast<double>(fan_in)) / 2));
  FillNormalBf16(random, std::ldexp(1.0f, -shift), out);
}

}  // namespace

void Generate(const int64_t* axes, uint64_t seed, const kvr_tensor* inputs) {
  FillNormalBf16(RandomStream(seed, kX), Bf16(inputs[kX]));
  FillWeights(RandomStream(seed, kW13), axes[kHidden], Bf16(inputs[kW13]));
  FillWeights(RandomStream(seed, kW2), axes[kInner], Bf16(inputs[kW2]));
  const int64_t num_tokens = axes[kNumTokens], num_experts = axes[kNumExperts];
  *static_cast<int32_t*>(inputs[kNumValidTokens].data) =
      static_cast<int32_t>(num_tokens > 2 && seed % 4 == 3 ? num_tokens - 1 : num_tokens);
  const auto set = [&](int input, int64_t value) {
    *static_cast<int32_t*>(inputs[input].data) = static_cast<int32_t>(value);
  };
  set(kScoringValue, axes[kScoring]);
  set(kRenormalizeValue, axes[kRenormalize]);
  set(kNumGroupsValue, axes[kNumGroups]);
  set(kTopkGroupValue, axes[kTopkGroup]);
  *static_cast<float*>(inputs[kRoutedScalingFactor].data) = 1;

  auto* const bias = static_cast<float*>(inputs[kBias].data);
  std::fill(bias, bias + num_experts, 0.0f);
  const auto scoring = static_cast<moe::Scoring>(axes[kScoring]);
  if (scoring != moe::Scoring::kSoftmax) {
    const std::vector<float> drawn = moe::DrawBias(RandomStream(seed, kBias), num_experts);
    std::copy(drawn.begin(), drawn.end(), bias);
  }
  const moe::Router router = {.num_experts = num_experts,
                              .top_k = axes[kTopK],
                              .scoring = scoring,
                              .n_group = axes[kNumGroups],
                              .topk_group = axes[kTopkGroup],
                              .bias = bias};
  moe::DrawLogits(router, num_tokens, axes[kCorrelation], seed, kRouterLogits,
                  static_cast<float*>(inputs[kRouterLogits].data));
}

}  // namespace kvr::moe_decode
