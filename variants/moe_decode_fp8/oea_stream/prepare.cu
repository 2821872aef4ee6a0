// SPDX-License-Identifier: Apache-2.0
//
// moe_prepare with opportunistic expert activation. Block 0 routes (together.cuh) and clears what
// the blocks of moe_stream meet at; each other block meanwhile widens a token to bf16 (widen.cuh).
// moe_stream begins beside it.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <kvr/device.cuh>
#include <kvr/hopper.cuh>

#include "routing.cuh"
#include "together.cuh"
#include "widen.cuh"

// Arguments as in stream's prepare.cu.
// Grid: 1 + num_tokens blocks.
template <int kWarps, int kFirst, int kMost, int kMass, int kLastPlace, int kAcrossGroups>
__global__ void __launch_bounds__(kWarps* kvr::kWarpLanes)
    moe_prepare(const float* routing_logits, const __nv_bfloat16* routing_bias,
                const __nv_fp8_e4m3* hidden_states, const int* num_valid_tokens,
                float routed_scaling_factor, __nv_bfloat16* x, int* counters, int* pair_expert,
                float* pair_weight, int* expert_ids, float* expert_weights, int num_counters,
                int num_tokens, int num_experts, int top_k, int n_group, int topk_group,
                int hidden) {
  kvr::LaunchDependents();
  if (blockIdx.x > 0) {
    const int64_t token = blockIdx.x - 1;
    moe::WidenToken(hidden_states + token * hidden, x + token * hidden, hidden,
                    static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
    return;
  }
  extern __shared__ __align__(16) unsigned char shared_memory[];
  auto* const all_scores = reinterpret_cast<float*>(shared_memory);  // [kWarps][2][num_experts]
  auto* const base = reinterpret_cast<unsigned*>(all_scores + kWarps * 2 * num_experts);

  const int lane = kvr::LaneIndex(), warp = kvr::WarpIndex();
  const int threads = kWarps * kvr::kWarpLanes, thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < num_counters; i += threads) counters[i] = 0;
  for (int i = thread; i * kvr::kWarpLanes < num_experts; i += threads) base[i] = 0;
  __syncthreads();

  const moe::Router router{routing_bias, num_experts, top_k,
                           n_group,      topk_group,  routed_scaling_factor};
  float* const scores = all_scores + warp * 2 * num_experts;
  float* const values = scores + num_experts;
  const int valid = num_valid_tokens == nullptr ? num_tokens : min(num_valid_tokens[0], num_tokens);
  for (int token = warp; token < num_tokens; token += kWarps) {
    int expert = -1;
    if (token < valid) {
      expert = moe::TakeFirst<kFirst, kMass>(router, routing_logits + int64_t{token} * num_experts,
                                             scores, values, base);
    }
    if (lane < top_k) pair_expert[token * top_k + lane] = expert;
  }
  __syncthreads();

  const int most = kMost == 0 ? top_k : kMost;
  for (int token = warp; token < num_tokens; token += kWarps) {
    int expert = lane < top_k ? pair_expert[token * top_k + lane] : -1;  // by this lane
    float weight = 0;
    if (token < valid) {
      moe::Score(router, routing_logits + int64_t{token} * num_experts, scores, values);
      const int count = __popc(__ballot_sync(kvr::kAllLanes, expert >= 0));
      if (count < most) {
        const unsigned groups = moe::OfferBase<kAcrossGroups>(router, base, expert, values);
        moe::Ranking offered(values, num_experts);
        expert = moe::TakeOffered<kLastPlace>(router, scores, groups, offered, count, most, expert);
      }
      weight = moe::Weight(router, scores, expert);
      __syncwarp();  // the scores are free for the next token
    }
    if (lane < top_k) {
      pair_expert[token * top_k + lane] = expert;
      pair_weight[token * top_k + lane] = weight;
    }
    if (expert_ids != nullptr) expert_ids[token * kvr::kWarpLanes + lane] = expert;
    if (expert_weights != nullptr) expert_weights[token * kvr::kWarpLanes + lane] = weight;
  }
}
