// SPDX-License-Identifier: Apache-2.0
//
// Opportunistic expert activation in float64 (arXiv 2511.02237): which experts the tokens of one
// batch take together. A decode step is as slow as the experts' weights that it reads, and once one
// token has an expert read, the others may use it for nothing.
//
//   ranks    e_1, e_2, ...: a token's experts, best first, as in route.h
//   phase 1  a token takes e_1 ... e_n: n = k0, or as few as reach the mass p of all its scores.
//            The base is what the tokens have taken by then, together.
//   phase 2  a token goes on through its ranks, up to place max_place, and takes what is in the
//            base, until it has k_max experts
//   weights  as in route.h, over what the token has taken
//
// So the base is all that is ever active. With one token it is that token's k0 best; with k0 = k
// nothing is left for phase 2. Padding takes no part.
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "variants/common/moe/route.h"

namespace kvr::moe {

struct Opportunism {
  int64_t k0 = 1;         // 1 to k_max
  int64_t k_max = 0;      // 0: top_k
  int64_t mass = 1000;    // p, in thousandths; 1000: no bound but k0
  int64_t max_place = 0;  // 0: the last
  // Phase 2 goes through the ranks of all groups, not of the token's alone.
  bool across_groups = false;
};

// The choices of `num_tokens` tokens, none of them padding; logits[num_tokens][num_experts]. Those
// of phase 1 first, of either phase best first.
std::vector<Choice> RouteTogether(const Router& router, const Opportunism& opportunism,
                                  const float* logits, int64_t num_tokens);

}  // namespace kvr::moe
