// SPDX-License-Identifier: Apache-2.0
//
// moe_route: scores, choice, weights, and the pairs sorted by expert, in one launch of one block:
// sorting needs the whole batch, and a batch of decode tokens is small.
//
//   1. A warp takes a token at a time. Scores go to shared memory, [num_experts] a warp; what to
//      rank by (score + bias, -infinity outside the token's groups) beside them (routing.cuh).
//   2. The first top_k: lane j keeps the j-th expert and its weight, and leaves the token's mark.
//   3. After a barrier the pairs are sorted by expert (align.cuh).
#include <kvr/device.cuh>

#include "align.cuh"
#include "routing.cuh"

// router_logits  [num_tokens, num_experts]
// bias           [num_experts] or null
// segments       segments.cuh
// pair_token, pair_position   align.cuh
// expert_ids, expert_weights  [num_tokens, top_k]; -1 and 0 for padding
// Grid: one block.
template <int kWarps>
__global__ void __launch_bounds__(kWarps* kvr::kWarpLanes)
    moe_route(const float* router_logits, const float* bias, const int* num_valid_tokens,
              float routed_scaling_factor, int* segments, int* pair_token, int* pair_position,
              int* expert_ids, float* expert_weights, int num_tokens, int num_experts, int top_k,
              int scoring, int renormalize, int n_group, int topk_group) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  auto* const all_scores = reinterpret_cast<float*>(shared_memory);  // [kWarps][2][num_experts]
  const int words = moe::MaskWords(num_tokens);
  auto* const masks = reinterpret_cast<unsigned*>(all_scores + kWarps * 2 * num_experts);
  auto* const begins = reinterpret_cast<int*>(masks + num_experts * words);  // [num_experts]

  const int lane = kvr::LaneIndex(), warp = kvr::WarpIndex();
  const int threads = kWarps * kvr::kWarpLanes, thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < num_experts * words; i += threads) masks[i] = 0;
  __syncthreads();

  const moe::Router router{bias,
                           num_experts,
                           top_k,
                           scoring,
                           n_group,
                           topk_group,
                           renormalize != 0,
                           routed_scaling_factor};
  float* const scores = all_scores + warp * 2 * num_experts;
  float* const values = scores + num_experts;
  const int valid = num_valid_tokens[0];
  for (int token = warp; token < num_tokens; token += kWarps) {
    int expert = -1;
    float weight = 0;
    if (token < valid) {
      moe::Score(router, router_logits + int64_t{token} * num_experts, scores);
      const unsigned groups = moe::KeptGroups(router, scores);
      for (int e = lane; e < num_experts; e += kvr::kWarpLanes) {
        const bool allowed = moe::InGroups(router, groups, e);
        values[e] = allowed ? moe::Value(router, scores, e) : -kvr::kInfinity;
      }
      moe::Ranking ranking(values, num_experts);
      for (int i = 0; i < top_k; ++i) {
        const int next = ranking.Take();
        if (lane == i) expert = next;
      }
      weight = moe::Weight(router, scores, expert);
      if (expert >= 0) moe::MarkToken(masks, words, expert, token);
      __syncwarp();  // the scores are free for the next token
    }
    if (lane < top_k) {
      expert_ids[token * top_k + lane] = expert;
      expert_weights[token * top_k + lane] = weight;
    }
  }
  __syncthreads();
  moe::SortPairs(masks, expert_ids, num_tokens, num_experts, top_k, begins, segments, pair_token,
                 pair_position);
}
