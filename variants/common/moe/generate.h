// SPDX-License-Identifier: Apache-2.0
//
// What routers of decode batches read, drawn. The tokens' logits share a part, so that a batch's
// choices overlap as a trained router's do:
//
//   logit = 2 (rho common[expert] + sqrt(1 - rho^2) own[token, expert])
//
// They are multiples of 1/64, so that ties occur and are exact, and drawn anew where a choice of
// any variant would hang on the last bits of a score (Margin in route.h).
//
// Threading: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <vector>

#include "variants/common/moe/route.h"
#include "variants/common/random.h"

namespace kvr::moe {

// N(0, 1), from the bf16 quantiles that tensors are filled with.
std::vector<double> Normals(const RandomStream& random, int64_t count);

// [num_experts]: of standard deviation 1/16, beside sigmoid scores that spread by 0.3; multiples of
// 1/64, which bf16 holds.
std::vector<float> DrawBias(const RandomStream& random, int64_t num_experts);

// logits[num_tokens][num_experts]. `correlation`: rho in thousandths. `stream`: of the common part;
// the streams of `seed` from 16 on are the tokens'.
void DrawLogits(const Router& router, int64_t num_tokens, int64_t correlation, uint64_t seed,
                uint64_t stream, float* logits);

// Experts that so many such tokens are expected to choose together, as a share of all, for many
// experts and without ties, where each chooses `share` of all.
double ExpectedActive(double share, int64_t num_tokens, int64_t correlation);

}  // namespace kvr::moe
