// SPDX-License-Identifier: Apache-2.0
//
// moe_prepare with opportunistic expert activation (arXiv 2511.02237): a token first takes its best
// experts, and then others that some token of the batch has taken: their weights are read anyway,
// by this rank or another. variants/common/moe/oea.h states the algorithm.
//
// Block 0 routes and clears what the blocks of moe_stream meet at; each other block meanwhile
// widens a token to bf16. moe_stream begins beside it.
//
//   1. Phase 1, a warp a token: scores, ranks, and the first kFirst experts, or as few as reach
//      kMass thousandths of the scores' sum. Slots hold them, a bit each is in the base.
//   2. After a barrier the base is complete. Phase 2 adds nothing to it, so what the step reads is
//      fixed here.
//   3. Phase 2, a warp a token: what is in the base and not yet taken, best first, until the token
//      has kMost experts or the ranks end. Then the weights, over all that it took.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <kvr/device.cuh>
#include <kvr/hopper.cuh>

#include "routing.cuh"
#include "widen.cuh"

namespace moe {

// The place of an expert among those of `groups`, from 1.
KVR_DEVICE int RankOf(const Router& router, const float* scores, unsigned groups, int expert) {
  const float own = Value(router, scores, expert);
  int better = 0;
  for (int e = kvr::LaneIndex(); e < router.num_experts; e += kvr::kWarpLanes) {
    const float value = Value(router, scores, e);
    const bool before = value > own || (value == own && e < expert);
    better += before && InGroups(router, groups, e) ? 1 : 0;
  }
  return 1 + static_cast<int>(__reduce_add_sync(kvr::kAllLanes, static_cast<unsigned>(better)));
}

}  // namespace moe

// Arguments as in stream's prepare.cu.
// kMost 0: top_k. kMass 1000: kFirst alone counts. kLastPlace 0: the ranks' end.
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
      moe::Score(router, routing_logits + int64_t{token} * num_experts, scores, values);
      const unsigned groups = moe::KeptGroups(router, values);
      float total = 0;
      for (int e = lane; e < num_experts; e += kvr::kWarpLanes) {
        if (!moe::InGroups(router, groups, e)) values[e] = -kvr::kInfinity;
        total += scores[e];
      }
      const float wanted = kMass / 1000.0f * kvr::WarpSum(total);
      moe::Ranking ranking(values, num_experts);
      float mass = 0;
      for (int i = 0; i < kFirst && (kMass == 1000 || mass < wanted); ++i) {
        const int next = ranking.Take();
        if (next < 0) break;
        if (lane == i) expert = next;
        mass += scores[next];
      }
      if (expert >= 0) atomicOr(&base[expert / 32], 1u << expert % 32);
      __syncwarp();  // the scores are free for the next token
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
      int count = __popc(__ballot_sync(kvr::kAllLanes, expert >= 0));
      if (count < most) {
        const bool all_groups = kAcrossGroups != 0 || n_group == 1;
        const unsigned groups = all_groups ? kvr::kAllLanes : moe::KeptGroups(router, values);
        for (int e = lane; e < num_experts; e += kvr::kWarpLanes) {
          const bool allowed =
              (base[e / kvr::kWarpLanes] >> lane & 1) != 0 && moe::InGroups(router, groups, e);
          if (!allowed) values[e] = -kvr::kInfinity;
        }
        __syncwarp();
        if (expert >= 0) values[expert] = -kvr::kInfinity;
        __syncwarp();
        moe::Ranking ranking(values, num_experts);
        for (; count < most; ++count) {
          const int next = ranking.Take();
          if (next < 0) break;
          if (kLastPlace > 0 && moe::RankOf(router, scores, groups, next) > kLastPlace) break;
          if (lane == count) expert = next;
        }
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
