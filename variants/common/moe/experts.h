// SPDX-License-Identifier: Apache-2.0
//
// The experts of one decode step in float64, whoever chose them and however their weights are
// stored, and what a correct kernel may differ from that. A token's experts e each compute
//
//   h = activate(x . gate[e], x . up[e])     out = sum weight_e * (h . down[e])
//
// Per element of out the bound is 2^-7 (|out| + sum |terms|), over the terms weight * h * down: a
// kernel rounds h to bf16 (by at most 2^-8 of each term, and as much again through the gate), and
// the result once more. Experts must be the same; weights are right to 1e-5 of the token's largest.
//
// Threading: pure functions, if those of Experts are.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "kvr_plugin.h"
#include "variants/common/moe/route.h"

namespace kvr::moe {

struct Experts {
  int64_t num_tokens = 0, hidden = 0, inner = 0;
  int64_t first = 0, count = 0;  // ids of those that are computed; others' tokens get nothing here

  // Each writes one row, widened: `hidden` values of a token, `hidden` of a row of gate or up,
  // `inner` of a row of down. Experts by id.
  std::function<void(int64_t token, double* values)> token;
  std::function<void(int64_t expert, int64_t row, double*values)> gate, up, down;

  std::function<double(int64_t expert, double gate, double up)> activate;
};

inline double Silu(double x) { return x / (1 + std::exp(-x)); }

// out[num_tokens, hidden], preset to 0. choices[token] in the order of its slots; a token without
// any, padding, gives zeros.
void ComputeExperts(const Experts& experts, const std::vector<Choice>& choices, int threads,
                    kvr_expected* out);

// ids and weights [choices, slots]: those beyond a token's choice hold -1 and 0.
void ExpectChoices(const std::vector<Choice>& choices, int64_t slots, kvr_expected* ids,
                   kvr_expected* weights);

}  // namespace kvr::moe
