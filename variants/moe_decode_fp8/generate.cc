// SPDX-License-Identifier: Apache-2.0
#include "variants/common/moe/generate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "variants/common/bfloat16.h"
#include "variants/common/random.h"
#include "variants/moe_decode_fp8/op.h"

namespace kvr::moe_decode_fp8 {
namespace {

// Streams of the tensors; those from 16 on are the tokens'.
enum Stream : uint64_t { kLogits, kBias, kCodes, kScales, kW1, kW1Scales, kW2, kW2Scales };

// N(0, 1) as FillNormalBf16 draws it lies within this; times the factor, within e4m3.
constexpr float kReach = 4.34375f, kFactor = 448 / kReach;

// What an odd seed multiplies scales by: those of every fifth token, and of one weight block in
// eight and one in sixteen. The shifts change nothing that comes out: what tokens lose, the first
// layer's weights have; what the second's have, the scaling factor loses.
constexpr float kTinyToken = 0x1p-24f, kTinyBlock = 0x1p-20f, kLargeBlock = 0x1p3f;
constexpr float kFirstShift = 0x1p40f, kSecondShift = 0x1p30f;
constexpr float kScalingFactor = 2.5f;

template <typename T>
std::span<T> Values(const kvr_tensor& tensor) {
  int64_t elements = 1;
  for (int32_t d = 0; d < tensor.rank; ++d) elements *= tensor.shape[d];
  return {static_cast<T*>(tensor.data), static_cast<size_t>(elements)};
}

// Of codes that are to have standard deviation `deviation`: 2^-1, 1 or 2 times that, and up to
// twice as much again.
float DrawScale(uint64_t bits, float deviation) {
  const float within = 1 + static_cast<float>(bits & 0xffff) / 0x1p16f;
  return std::ldexp(within * deviation / kFactor, static_cast<int>((bits >> 16) % 3) - 1);
}

void DrawTokenScales(const RandomStream& random, int64_t num_tokens, bool extremes,
                     std::span<float> scales) {
  for (size_t i = 0; i < scales.size(); ++i) {
    scales[i] = DrawScale(random.Bits(i), 1);
    if (!extremes) continue;
    const bool tiny = static_cast<int64_t>(i) % num_tokens % 5 == 1;
    scales[i] *= tiny ? kTinyToken / kFirstShift : 1 / kFirstShift;
  }
}

void DrawWeightScales(const RandomStream& random, int64_t fan_in, bool extremes, float shift,
                      std::span<float> scales) {
  const float deviation = 1 / std::sqrt(static_cast<float>(fan_in));
  for (size_t i = 0; i < scales.size(); ++i) {
    const uint64_t bits = random.Bits(i);
    scales[i] = DrawScale(bits, deviation);
    if (!extremes) continue;
    const uint64_t kind = bits >> 60;
    scales[i] *= shift * (kind < 2 ? kTinyBlock : kind == 2 ? kLargeBlock : 1);
  }
}

// What SwiGLU has besides: nothing, and three ways of something.
struct Activation {
  float alpha, beta, limit;
};
constexpr Activation kActivations[] = {{1, 0, std::numeric_limits<float>::infinity()},
                                       {1.702f, 1, 7},
                                       {1, 0, 1.5f},
                                       {0.75f, -0.25f, 3}};

}  // namespace

void Generate(const int64_t* axes, uint64_t seed, const kvr_tensor* inputs) {
  const int64_t num_tokens = axes[kSeqLen], num_experts = axes[kNumExperts];
  const bool extremes = seed % 2 != 0;
  const auto stream = [&](Stream which) { return RandomStream(seed, which); };
  FillNormalE4m3(stream(kCodes), kFactor, Values<uint8_t>(inputs[kHiddenStates]));
  FillNormalE4m3(stream(kW1), kFactor, Values<uint8_t>(inputs[kGemm1Weights]));
  FillNormalE4m3(stream(kW2), kFactor, Values<uint8_t>(inputs[kGemm2Weights]));
  DrawTokenScales(stream(kScales), num_tokens, extremes, Values<float>(inputs[kHiddenStatesScale]));
  DrawWeightScales(stream(kW1Scales), axes[kHidden], extremes, kFirstShift,
                   Values<float>(inputs[kGemm1WeightsScale]));
  DrawWeightScales(stream(kW2Scales), axes[kInner], extremes, kSecondShift,
                   Values<float>(inputs[kGemm2WeightsScale]));
  for (int64_t expert = 0; expert < axes[kNumLocal]; ++expert) {
    const Activation& activation = kActivations[expert % std::size(kActivations)];
    Values<float>(inputs[kAlpha])[expert] = activation.alpha;
    Values<float>(inputs[kBeta])[expert] = activation.beta;
    Values<float>(inputs[kClampLimit])[expert] = activation.limit;
  }

  const auto set = [&](int input, int64_t value) {
    *static_cast<int32_t*>(inputs[input].data) = static_cast<int32_t>(value);
  };
  set(kTopKValue, axes[kTopK]);
  set(kNumGroupsValue, axes[kNumGroups]);
  set(kTopkGroupValue, axes[kTopkGroup]);
  set(kLocalOffsetValue, axes[kLocalOffset]);
  set(kNumValidTokens, num_tokens > 2 && seed % 4 == 3 ? num_tokens - 1 : num_tokens);
  *static_cast<float*>(inputs[kRoutedScalingFactor].data) =
      extremes ? kScalingFactor / kSecondShift : kScalingFactor;

  const std::vector<float> bias = moe::DrawBias(stream(kBias), num_experts);
  std::transform(bias.begin(), bias.end(), Values<uint16_t>(inputs[kRoutingBias]).begin(),
                 RoundToBf16);
  const moe::Router router = {.num_experts = num_experts,
                              .top_k = axes[kTopK],
                              .scoring = moe::Scoring::kSigmoid,
                              .n_group = axes[kNumGroups],
                              .topk_group = axes[kTopkGroup],
                              .bias = bias.data()};
  moe::DrawLogits(router, num_tokens, axes[kCorrelation], seed, kLogits,
                  static_cast<float*>(inputs[kRoutingLogits].data));
}

}  // namespace kvr::moe_decode_fp8
