// SPDX-License-Identifier: Apache-2.0
//
// moe_route with opportunistic expert activation, in one launch. Block 0 routes (together.cuh) and
// sorts the pairs of this rank by expert, as for any other choice (align.cuh); each other block
// meanwhile widens a token to bf16 (order.cuh).
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <kvr/device.cuh>

#include "align.cuh"
#include "order.cuh"
#include "routing.cuh"
#include "together.cuh"

// Arguments as in topk's route.cu.
// Grid: 1 + num_tokens blocks.
template <int kWarps, int kFirst, int kMost, int kMass, int kLastPlace, int kAcrossGroups>
__global__ void __launch_bounds__(kWarps* kvr::kWarpLanes)
    moe_route(const float* routing_logits, const __nv_bfloat16* routing_bias,
              const __nv_fp8_e4m3* hidden_states, const int* num_valid_tokens,
              float routed_scaling_factor, __nv_bfloat16* x, int* segments, int* pair_expert,
              float* pair_weight, int* pair_token, int* pair_position, int* expert_ids,
              float* expert_weights, int num_tokens, int num_experts, int top_k, int n_group,
              int topk_group, int local_offset, int num_local, int hidden) {
  if (blockIdx.x > 0) {
    const int64_t token = blockIdx.x - 1;
    moe::WidenToken(hidden_states + token * hidden, x + token * hidden, hidden);
    return;
  }
  extern __shared__ __align__(16) unsigned char shared_memory[];
  auto* const all_scores = reinterpret_cast<float*>(shared_memory);  // [kWarps][2][num_experts]
  const int words = moe::MaskWords(num_tokens);
  auto* const masks = reinterpret_cast<unsigned*>(all_scores + kWarps * 2 * num_experts);
  auto* const begins = reinterpret_cast<int*>(masks + num_local * words);  // [num_local]
  auto* const base = reinterpret_cast<unsigned*>(begins + num_local);      // a bit an expert

  const int lane = kvr::LaneIndex(), warp = kvr::WarpIndex();
  const int threads = kWarps * kvr::kWarpLanes, thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < num_local * words; i += threads) masks[i] = 0;
  for (int i = thread; i * kvr::kWarpLanes < num_experts; i += threads) base[i] = 0;
  __syncthreads();

  const moe::Router router{routing_bias, num_experts, top_k,
                           n_group,      topk_group,  routed_scaling_factor};
  const moe::Local here{local_offset, num_local};
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
    moe::MarkToken(here, masks, words, expert, token);
    if (lane < top_k) {
      pair_expert[token * top_k + lane] = expert;
      pair_weight[token * top_k + lane] = weight;
    }
    if (expert_ids != nullptr) expert_ids[token * kvr::kWarpLanes + lane] = expert;
    if (expert_weights != nullptr) expert_weights[token * kvr::kWarpLanes + lane] = weight;
  }
  __syncthreads();
  moe::SortPairs(here, masks, pair_expert, num_tokens, top_k, begins, segments, pair_token,
                 pair_position);
}
