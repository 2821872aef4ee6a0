// SPDX-License-Identifier: Apache-2.0
//
// moe_decode: the routed experts of one decode step. A token's experts e, chosen by
// variants/common/moe/route.h from its router logits, each compute
//
//   h = silu(x . w13[e, :inner]) * (x . w13[e, inner:])     out = sum weight_e * (h . w2[e])
//
// Tokens at and beyond num_valid_tokens are padding: they choose no expert, out is 0, their ids are
// -1 and their weights 0. definition.json has axes and tensors. Threading: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kvr_plugin.h"

namespace kvr::moe_decode {

// Positions in definition.json.
enum Axis {
  kNumTokens,
  kNumExperts,
  kTopK,
  kHidden,
  kInner,
  kGateUp,
  kOne,
  kScoring,
  kRenormalize,
  kNumGroups,
  kTopkGroup,
  kCorrelation
};
enum Input {
  kX,
  kRouterLogits,
  kW13,
  kW2,
  kNumValidTokens,
  kBias,
  kScoringValue,
  kRenormalizeValue,
  kNumGroupsValue,
  kTopkGroupValue,
  kRoutedScalingFactor
};
enum OutputTensor { kOut, kExpertIds, kExpertWeights };

// x is N(0, 1) rounded to bf16, weights N(0, 1) scaled by a power of two near 1 / sqrt(fan-in).
// Router logits: variants/common/moe/generate.h, with the axis `correlation`. With one seed in four
// the last of more than two tokens is padding.
void Generate(const int64_t* axes, uint64_t seed, const kvr_tensor* inputs);

int Reference(const int64_t* axes, const kvr_tensor* inputs, int threads, kvr_expected* outputs,
              char* error, size_t error_size);

// values[measure] (variants/common/moe/quality.h) of what a kernel wrote to `outputs`.
int Quality(const int64_t* axes, const kvr_tensor* inputs, const kvr_tensor* outputs,
            const kvr_expected* exact, double* values, char* error, size_t error_size);

}  // namespace kvr::moe_decode
