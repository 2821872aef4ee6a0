// SPDX-License-Identifier: Apache-2.0
//
// moe_route with opportunistic expert activation (arXiv 2511.02237), in one launch of one block. A
// token first takes its best experts, and then others that some token of the batch has taken: their
// weights are read anyway. variants/common/moe/oea.h states the algorithm.
//
//   1. Phase 1, a warp a token: scores, ranks, and the first kFirst experts, or as few as reach
//      kMass thousandths of the scores' sum. Slots hold them, masks their marks (align.cuh).
//   2. After a barrier every expert with a mark is in the base, a bit each. Phase 2 marks no
//      others, so the base, and with it what the step reads, is fixed here.
//   3. Phase 2, a warp a token: what is in the base and not yet taken, best first, until the token
//      has kMost experts or the ranks end. Then the weights, over all that it took.
//   4. After a barrier the pairs are sorted by expert, as for any other choice.
//
// A warp that has one token alone keeps its scores; of several it computes them again.
#include <kvr/device.cuh>

#include "align.cuh"
#include "routing.cuh"

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

// router_logits  [num_tokens, num_experts]
// bias           [num_experts] or null
// segments       segments.cuh
// pair_token, pair_position   align.cuh
// expert_ids, expert_weights  [num_tokens, top_k]; -1 and 0 in slots that are not used
// kMost 0: top_k. kMass 1000: kFirst alone counts. kLastPlace 0: the ranks' end.
// Grid: one block.
template <int kWarps, int kFirst, int kMost, int kMass, int kLastPlace, int kAcrossGroups>
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
  auto* const base = reinterpret_cast<unsigned*>(begins + num_experts);      // a bit an expert

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
  const int valid = min(num_valid_tokens[0], num_tokens);
  for (int token = warp; token < num_tokens; token += kWarps) {
    int expert = -1;
    if (token < valid) {
      moe::Score(router, router_logits + int64_t{token} * num_experts, scores);
      const unsigned groups = moe::KeptGroups(router, scores);
      float total = 0;
      for (int e = lane; e < num_experts; e += kvr::kWarpLanes) {
        const bool allowed = moe::InGroups(router, groups, e);
        values[e] = allowed ? moe::Value(router, scores, e) : -kvr::kInfinity;
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
      if (expert >= 0) moe::MarkToken(masks, words, expert, token);
      __syncwarp();  // the scores are free for the next token
    }
    if (lane < top_k) {
      expert_ids[token * top_k + lane] = expert;
      expert_weights[token * top_k + lane] = 0;
    }
  }
  __syncthreads();

  for (int word = warp; word * kvr::kWarpLanes < num_experts; word += kWarps) {
    const int expert = word * kvr::kWarpLanes + lane;
    unsigned tokens = 0;
    for (int i = 0; i < words && expert < num_experts; ++i) tokens |= masks[expert * words + i];
    const unsigned taken = __ballot_sync(kvr::kAllLanes, tokens != 0);
    if (lane == 0) base[word] = taken;
  }
  __syncthreads();

  const int most = kMost == 0 ? top_k : kMost;
  for (int token = warp; token < valid; token += kWarps) {
    const int slot = token * top_k + lane;
    if (num_tokens > kWarps) {
      moe::Score(router, router_logits + int64_t{token} * num_experts, scores);
    }
    int expert = lane < top_k ? expert_ids[slot] : -1;  // by this lane
    int count = __popc(__ballot_sync(kvr::kAllLanes, expert >= 0));
    if (count < most) {
      const bool all_groups = kAcrossGroups != 0 || n_group == 1;
      const unsigned groups = all_groups ? kvr::kAllLanes : moe::KeptGroups(router, scores);
      for (int e = lane; e < num_experts; e += kvr::kWarpLanes) {
        const bool allowed =
            (base[e / kvr::kWarpLanes] >> lane & 1) != 0 && moe::InGroups(router, groups, e);
        values[e] = allowed ? moe::Value(router, scores, e) : -kvr::kInfinity;
      }
      __syncwarp();
      if (expert >= 0) values[expert] = -kvr::kInfinity;
      __syncwarp();
      moe::Ranking ranking(values, num_experts);
      for (; count < most; ++count) {
        const int next = ranking.Take();
        if (next < 0) break;
        if (kLastPlace > 0 && moe::RankOf(router, scores, groups, next) > kLastPlace) break;
        if (lane == count) {
          expert = next;
          moe::MarkToken(masks, words, next, token);
        }
      }
    }
    const float weight = moe::Weight(router, scores, expert);
    if (lane < top_k) {
      expert_ids[slot] = expert;
      expert_weights[slot] = weight;
    }
    __syncwarp();  // the scores are free for the next token
  }
  __syncthreads();
  moe::SortPairs(masks, expert_ids, num_tokens, num_experts, top_k, begins, segments, pair_token,
                 pair_position);
}
