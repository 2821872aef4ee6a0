// SPDX-License-Identifier: Apache-2.0
//
// moe_decode_fp8: the routed experts of one decode step as one rank of an expert-parallel group
// computes them, weights and activations in e4m3. The contract is FlashInfer-Bench's
// moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_h7168_i2048, with its const axes free:
//
//   x    = hidden_states[token] * hidden_states_scale[block of 128][token]
//   w    = a weight * the scale of its block of 128 x 128, both layers
//   s    = sigmoid(routing_logits)      experts e: grouped top_k by s + routing_bias (route.h)
//   weight_e = s_e / (sum of the chosen s + 1e-20) * routed_scaling_factor
//   up   = clamp(x . w1[e, :inner], -limit, limit)      gate = min(x . w1[e, inner:], limit)
//   h    = gate * sigmoid(alpha * gate) * (up + beta)   output = sum weight_e * (h . w2[e])
//
// The sum is over the token's experts within local_expert_offset ... + num_local_experts; a weight
// counts all chosen ones. num_valid_tokens, expert_ids and expert_weights are additions at the end,
// all optional. definition.json has axes and tensors. Threading: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kvr_plugin.h"

namespace kvr::moe_decode_fp8 {

inline constexpr int64_t kBlock = 128;  // values, or rows and columns, that share a scale
inline constexpr double kEpsilon = 1e-20;

// Positions in definition.json.
enum Axis {
  kSeqLen,
  kNumExperts,
  kTopK,
  kNumGroups,
  kTopkGroup,
  kNumLocal,
  kLocalOffset,
  kHidden,
  kInner,
  kGemm1Out,
  kHiddenBlocks,
  kInnerBlocks,
  kGemm1OutBlocks,
  kOne,
  kSlots,
  kCorrelation
};
enum Input {
  kRoutingLogits,
  kRoutingBias,
  kHiddenStates,
  kHiddenStatesScale,
  kGemm1Weights,
  kGemm1WeightsScale,
  kAlpha,
  kBeta,
  kClampLimit,
  kGemm2Weights,
  kGemm2WeightsScale,
  kTopKValue,
  kNumGroupsValue,
  kTopkGroupValue,
  kLocalOffsetValue,
  kRoutedScalingFactor,
  kNumValidTokens
};
enum OutputTensor { kOutput, kExpertIds, kExpertWeights };

// Codes are N(0, 1) over the whole range of e4m3, as a quantiser leaves them; never NaN. Scales
// make of them x of N(0, 1) and weights of N(0, 1 / fan-in), a block's times 2^-1 ... 2^2 at
// random, and no powers of two. An odd seed adds what a kernel must survive: tokens of 2^-24 times
// the size, weight blocks of 2^-20 and of 2^3, and factors of 2^40 and 2^30 moved from activations
// and scaling factor to weights. Every fourth expert has alpha 1, beta 0 and no limit. Routing
// logits: variants/common/moe/generate.h, with the axis `correlation`. With one seed in four the
// last of more than two tokens is padding.
void Generate(const int64_t* axes, uint64_t seed, const kvr_tensor* inputs);

int Reference(const int64_t* axes, const kvr_tensor* inputs, int threads, kvr_expected* outputs,
              char* error, size_t error_size);

// values[measure] (variants/common/moe/quality.h) of what a kernel wrote to `outputs`. Active
// experts are those of this rank.
int Quality(const int64_t* axes, const kvr_tensor* inputs, const kvr_tensor* outputs,
            const kvr_expected* exact, double* values, char* error, size_t error_size);

}  // namespace kvr::moe_decode_fp8
