// SPDX-License-Identifier: Apache-2.0
//
// The experts of one decode step in float64, whoever chose them, and what a correct bf16 kernel may
// differ from that.
//
// Per element of out the bound is 2^-7 (|out| + sum |terms|), over the terms weight * h * w2: a
// kernel rounds h to bf16 (2^-9 of each term, and as much again through the gate), and the result
// once more. Experts must be the same; weights are right to 1e-5 of the token's largest.
//
// Threading: a pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "kvr_plugin.h"
#include "variants/moe_decode/route.h"

namespace kvr::moe_decode {

// choices[token], of up to top_k experts each, in the order of their slots: slots beyond hold -1
// and weight 0. A token without any, padding, gives zeros. `outputs` are the op's, preset to 0.
void ComputeExperts(const int64_t* axes, const kvr_tensor* inputs,
                    const std::vector<Choice>& choices, int threads, kvr_expected* outputs);

}  // namespace kvr::moe_decode
