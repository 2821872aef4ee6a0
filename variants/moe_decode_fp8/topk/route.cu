// SPDX-License-Identifier: Apache-2.0
//
// moe_route: one launch before the experts. Block 0 routes: scores, choice, weights, and the pairs
// sorted by expert, in one block, since sorting needs the whole batch and a batch of decode tokens
// is small. Each other block meanwhile widens a token to bf16 (order.cuh).
//
//   1. A warp takes a token at a time. Scores go to shared memory, [num_experts] a warp; what to
//      rank by (score + bias, -infinity outside the token's groups) beside them (routing.cuh).
//   2. The first top_k: lane j keeps the j-th expert and its weight, and leaves the token's mark
//      where that expert is this rank's.
//   3. After a barrier the pairs of this rank are sorted by expert (align.cuh).
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <kvr/device.cuh>

#include "align.cuh"
#include "order.cuh"
#include "routing.cuh"

// routing_logits    [num_tokens, num_experts]
// routing_bias      [num_experts]
// hidden_states     [num_tokens, hidden]; x likewise, in the order of order.cuh
// num_valid_tokens  [1] or null: all
// segments          segments.cuh, experts counted from local_offset
// pair_*            align.cuh; pair_weight [num_tokens, top_k]
// expert_ids, expert_weights  [num_tokens, 32] or null; -1 and 0 beyond top_k and for padding
// Grid: 1 + num_tokens blocks.
template <int kWarps>
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

  const int lane = kvr::LaneIndex(), warp = kvr::WarpIndex();
  const int threads = kWarps * kvr::kWarpLanes, thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < num_local * words; i += threads) masks[i] = 0;
  __syncthreads();

  const moe::Router router{routing_bias, num_experts, top_k,
                           n_group,      topk_group,  routed_scaling_factor};
  const moe::Local here{local_offset, num_local};
  float* const scores = all_scores + warp * 2 * num_experts;
  float* const values = scores + num_experts;
  const int valid = num_valid_tokens == nullptr ? num_tokens : num_valid_tokens[0];
  for (int token = warp; token < num_tokens; token += kWarps) {
    int expert = -1;
    float weight = 0;
    if (token < valid) {
      moe::Score(router, routing_logits + int64_t{token} * num_experts, scores, values);
      const unsigned groups = moe::KeptGroups(router, values);
      for (int e = lane; e < num_experts; e += kvr::kWarpLanes) {
        if (!moe::InGroups(router, groups, e)) values[e] = -kvr::kInfinity;
      }
      moe::Ranking ranking(values, num_experts);
      for (int i = 0; i < top_k; ++i) {
        const int next = ranking.Take();
        if (lane == i) expert = next;
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
