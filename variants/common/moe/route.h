// SPDX-License-Identifier: Apache-2.0
//
// Top-k routing in float64: which experts a token takes, and with what weights.
//
//   score   = softmax(logits), sigmoid(logits) or sqrt(softplus(logits)), over all experts
//   ranked  by score + bias, best first; ties go to the lowest expert id
//   groups  with n_group > 1 only experts of the token's topk_group best groups are ranked; a group
//           is as good as the sum of its two best ranks' values
//   weight  = score, without bias; renormalised over the chosen (divided by their sum + epsilon);
//           times the scaling factor
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kvr::moe {

enum class Scoring : int64_t { kSoftmax, kSigmoid, kSqrtSoftplus };

struct Router {
  int64_t num_experts = 1, top_k = 1;
  Scoring scoring = Scoring::kSoftmax;
  bool renormalize = true;
  int64_t n_group = 1, topk_group = 1;
  double scaling_factor = 1;
  double epsilon = 0;
  const float* bias = nullptr;  // [num_experts]; null: none
};

struct Choice {
  std::vector<int32_t> experts;  // best first
  std::vector<double> weights;
};

std::vector<double> Scores(const Router& router, const float* logits);

// The experts that a token may take, best first: all, or those of its groups.
std::vector<int32_t> Ranked(const Router& router, std::span<const double> scores);

// Of `experts`, in their order.
std::vector<double> Weights(const Router& router, std::span<const double> scores,
                            std::span<const int32_t> experts);

// The first top_k.
Choice Route(const Router& router, const float* logits);

// How far the nearest decision is from falling otherwise, of all that a routing by ranks may take
// (Route; oea.h), as a share of the values it is made from: the least difference of
//
//   unequal neighbours in the order of all experts, in the token's groups or not
//   the last group kept and the first left out
//   the mass of the best n, n < top_k, as a share of all scores, and the thousandths a routing may
//   ask for
//
// Infinite where there is nothing to choose. Exact ties are no risk: every implementation sees the
// same ones.
double Margin(const Router& router, const float* logits);

}  // namespace kvr::moe
