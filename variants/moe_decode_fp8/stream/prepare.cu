// SPDX-License-Identifier: Apache-2.0
//
// moe_prepare: what comes before the weights, a block a token. Its first warp routes the token
// (route.cuh), the others widen it to bf16; block 0 clears what the blocks of moe_stream meet at.
// moe_stream begins beside it.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <kvr/device.cuh>
#include <kvr/hopper.cuh>

#include "route.cuh"
#include "widen.cuh"

// routing_logits    [num_tokens, num_experts]
// routing_bias      [num_experts]
// hidden_states, x  [num_tokens, hidden]; x in the order of widen.cuh, scales left for the products
// num_valid_tokens  [1] or null: all
// counters          [num_counters]
// pair_expert, pair_weight    [num_tokens, top_k]; -1 and 0 for padding
// expert_ids, expert_weights  [num_tokens, 32] or null; -1 and 0 beyond top_k and for padding
// Grid: num_tokens.
__global__ void moe_prepare(const float* routing_logits, const __nv_bfloat16* routing_bias,
                            const __nv_fp8_e4m3* hidden_states, const int* num_valid_tokens,
                            float routed_scaling_factor, __nv_bfloat16* x, int* counters,
                            int* pair_expert, float* pair_weight, int* expert_ids,
                            float* expert_weights, int num_counters, int num_tokens,
                            int num_experts, int top_k, int n_group, int topk_group, int hidden) {
  kvr::LaunchDependents();
  constexpr int kMostExperts = 512;  // definition.json's limit
  __shared__ float values[kMostExperts];
  const int token = static_cast<int>(blockIdx.x), lane = kvr::LaneIndex();
  if (kvr::WarpIndex() > 0) {
    const int thread = static_cast<int>(threadIdx.x) - kvr::kWarpLanes;
    const int threads = static_cast<int>(blockDim.x) - kvr::kWarpLanes;
    if (blockIdx.x == 0) {
      for (int i = thread; i < num_counters; i += threads) counters[i] = 0;
    }
    moe::WidenToken(hidden_states + int64_t{token} * hidden, x + int64_t{token} * hidden, hidden,
                    thread, threads);
    return;
  }
  moe::Choice choice{-1, 0};
  if (num_valid_tokens == nullptr || token < num_valid_tokens[0]) {
    const moe::Router router{routing_logits, routing_bias, num_experts,          top_k,
                             n_group,        topk_group,   routed_scaling_factor};
    if (num_experts <= 128) {
      choice = moe::Choose<4>(router, token, values);
    } else if (num_experts <= 256) {
      choice = moe::Choose<8>(router, token, values);
    } else {
      choice = moe::Choose<16>(router, token, values);
    }
  }
  if (lane < top_k) {
    pair_expert[token * top_k + lane] = choice.expert;
    pair_weight[token * top_k + lane] = choice.weight;
  }
  if (expert_ids != nullptr) expert_ids[token * kvr::kWarpLanes + lane] = choice.expert;
  if (expert_weights != nullptr) expert_weights[token * kvr::kWarpLanes + lane] = choice.weight;
}
