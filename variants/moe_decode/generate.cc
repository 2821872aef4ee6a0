// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <vector>

#include "variants/common/bfloat16.h"
#include "variants/common/parallel.h"
#include "variants/common/random.h"
#include "variants/moe_decode/op.h"
#include "variants/moe_decode/route.h"

namespace kvr::moe_decode {
namespace {

constexpr double kLogitSpread = 2;        // standard deviation of a token's logits
constexpr double kLogitGrid = 64;         // logits are multiples of 1 / 64
constexpr double kBiasSpread = 1.0 / 16;  // beside scores that spread by 0.3; softmax has none
// Scores of float32 kernels are right to about 5e-7 of themselves. Tokens with a decision nearer
// than this are drawn anew.
constexpr double kLeastMargin = 5e-6;
constexpr int kDraws = 32;  // at most; then the token stands as it is
// Of a token's own part, from its second draw on: two steps of the grid, for tokens that have none.
constexpr double kLeastOwn = 1 / kLogitGrid;

std::span<uint16_t> Bf16(const kvr_tensor& tensor) {
  int64_t elements = 1;
  for (int32_t d = 0; d < tensor.rank; ++d) elements *= tensor.shape[d];
  return {static_cast<uint16_t*>(tensor.data), static_cast<size_t>(elements)};
}

// N(0, 1), from the bf16 quantiles that tensors are filled with.
std::vector<double> Normals(const RandomStream& random, int64_t count) {
  std::vector<uint16_t> bits(count);
  FillNormalBf16(random, bits);
  std::vector<double> values(count);
  std::transform(bits.begin(), bits.end(), values.begin(), WidenBf16);
  return values;
}

// Times 2^-round(log2(sqrt(fan_in))): exact, so the values stay the bf16 quantiles.
void FillWeights(const RandomStream& random, int64_t fan_in, std::span<uint16_t> out) {
  FillNormalBf16(random, out);
  const int shift = static_cast<int>(std::lround(std::log2(static_cast<double>(fan_in)) / 2));
  const float factor = std::ldexp(1.0f, -shift);
  constexpr int64_t kChunk = 1 << 16;
  const int64_t count = static_cast<int64_t>(out.size());
  ParallelFor((count + kChunk - 1) / kChunk, HardwareThreads(), [&](int64_t chunk) {
    const int64_t end = std::min(count, (chunk + 1) * kChunk);
    for (int64_t i = chunk * kChunk; i < end; ++i) out[i] = RoundToBf16(WidenBf16(out[i]) * factor);
  });
}

// One token's logits: the shares of the common part and of its own.
void DrawLogits(std::span<const double> common, double rho, double own_share,
                const RandomStream& random, std::span<float> logits) {
  const std::vector<double> own = Normals(random, static_cast<int64_t>(logits.size()));
  for (size_t e = 0; e < logits.size(); ++e) {
    const double logit = kLogitSpread * (rho * common[e] + own_share * own[e]);
    logits[e] = static_cast<float>(std::round(logit * kLogitGrid) / kLogitGrid);
  }
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
  const bool biased = static_cast<Scoring>(axes[kScoring]) != Scoring::kSoftmax;
  const std::vector<double> draws = Normals(RandomStream(seed, kBias), num_experts);
  for (int64_t e = 0; e < num_experts; ++e) {
    const double value = biased ? draws[e] * kBiasSpread : 0;
    bias[e] = static_cast<float>(std::round(value * kLogitGrid) / kLogitGrid);
  }

  const Router router = {.num_experts = num_experts,
                         .top_k = axes[kTopK],
                         .scoring = static_cast<Scoring>(axes[kScoring]),
                         .n_group = axes[kNumGroups],
                         .topk_group = axes[kTopkGroup],
                         .bias = bias};
  const double rho = static_cast<double>(axes[kCorrelation]) / 1000;
  const std::vector<double> common = Normals(RandomStream(seed, kRouterLogits), num_experts);
  auto* const logits = static_cast<float*>(inputs[kRouterLogits].data);
  ParallelFor(num_tokens, HardwareThreads(), [&](int64_t token) {
    const std::span<float> own(logits + token * num_experts, num_experts);
    for (int draw = 0; draw < kDraws; ++draw) {
      const double own_share = std::max(std::sqrt(1 - rho * rho), draw > 0 ? kLeastOwn : 0);
      // Streams of their own per token and try; those below 16 are the tensors'.
      DrawLogits(common, rho, own_share, RandomStream(seed, 16 + token * kDraws + draw), own);
      if (Margin(router, own.data()) >= kLeastMargin) return;
    }
  });
}

}  // namespace kvr::moe_decode
