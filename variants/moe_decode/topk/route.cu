// SPDX-License-Identifier: Apache-2.0
//
// moe_route: scores, choice, weights, and the pairs sorted by expert, in one launch of one block:
// sorting needs the whole batch, and a batch of decode tokens is small.
//
//   1. A warp takes a token at a time. Scores go to shared memory, [num_experts] a warp; values to
//      choose by (score + bias, -infinity outside the token's groups) beside them.
//   2. top_k times: the warp finds the largest value, ties to the lowest expert, and takes it out.
//      Lane j keeps the j-th expert.
//   3. The token's bit is set in each chosen expert's mask. However the warps' turns fall, masks
//      say the same.
//   4. After a barrier one warp counts the masks' bits into segments (segments.cuh), and every pair
//      finds its position: where its expert's segment begins, plus the tokens before it.
#include <kvr/device.cuh>

namespace moe {

// The largest value and, of equal ones, the lowest index; the same in every lane.
struct Best {
  float value;
  int index;

  KVR_DEVICE void Take(float other, int other_index) {
    if (other > value || (other == value && other_index < index)) {
      value = other;
      index = other_index;
    }
  }
};

KVR_DEVICE Best WarpBest(Best best) {
#pragma unroll
  for (int lanes = kvr::kWarpLanes / 2; lanes > 0; lanes /= 2) {
    const float value = __shfl_xor_sync(kvr::kAllLanes, best.value, lanes);
    const int index = __shfl_xor_sync(kvr::kAllLanes, best.index, lanes);
    best.Take(value, index);
  }
  return best;
}

enum Scoring { kSoftmax, kSigmoid, kSqrtSoftplus };

struct Router {
  const float* bias;  // null: none
  int num_experts, top_k, scoring, n_group, topk_group;
  bool renormalize;
  float scale;
};

// scores[e] of one token, by one warp. Softmax is left unnormalised where only ratios matter.
KVR_DEVICE void Score(const Router& router, const float* logits, float* scores) {
  const int lane = kvr::LaneIndex();
  float largest = -kvr::kInfinity, sum = 0;
  if (router.scoring == kSoftmax) {
    for (int e = lane; e < router.num_experts; e += kvr::kWarpLanes) {
      largest = fmaxf(largest, logits[e]);
    }
    largest = kvr::WarpMax(largest);
  }
  for (int e = lane; e < router.num_experts; e += kvr::kWarpLanes) {
    const float logit = logits[e];
    float score;
    if (router.scoring == kSoftmax) {
      score = kvr::Exp2((logit - largest) * kvr::kLog2E);
      sum += score;
    } else if (router.scoring == kSigmoid) {
      score = 1 / (1 + kvr::Exp2(-logit * kvr::kLog2E));
    } else {
      const float tail = kvr::Log2(1 + kvr::Exp2(-fabsf(logit) * kvr::kLog2E)) / kvr::kLog2E;
      score = sqrtf(fmaxf(logit, 0) + tail);
    }
    scores[e] = score;
  }
  if (router.scoring != kSoftmax) return;
  sum = kvr::WarpSum(sum);
  for (int e = lane; e < router.num_experts; e += kvr::kWarpLanes) scores[e] /= sum;
}

// Lane g, g < n_group: is group g among the token's topk_group best?
KVR_DEVICE bool GroupKept(const Router& router, const float* values) {
  const int lane = kvr::LaneIndex(), size = router.num_experts / router.n_group;
  float first = -kvr::kInfinity, second = -kvr::kInfinity;
  if (lane < router.n_group) {
    for (int e = lane * size; e < (lane + 1) * size; ++e) {
      second = fmaxf(second, fminf(first, values[e]));
      first = fmaxf(first, values[e]);
    }
  }
  float value = first + second;
  bool kept = false;
  for (int i = 0; i < router.topk_group; ++i) {
    const Best best = WarpBest({value, lane});
    if (best.index == lane) {
      kept = true;
      value = -kvr::kInfinity;
    }
  }
  return kept;
}

// values[e]: what experts are chosen by. Takes what it chooses out of `values`.
// Lane j < top_k gets the j-th expert.
KVR_DEVICE int Choose(const Router& router, const float* scores, float* values) {
  const int lane = kvr::LaneIndex();
  for (int e = lane; e < router.num_experts; e += kvr::kWarpLanes) {
    values[e] = scores[e] + (router.bias == nullptr ? 0 : router.bias[e]);
  }
  __syncwarp();
  if (router.n_group > 1) {
    const unsigned kept = __ballot_sync(kvr::kAllLanes, GroupKept(router, values));
    const int size = router.num_experts / router.n_group;
    __syncwarp();
    for (int e = lane; e < router.num_experts; e += kvr::kWarpLanes) {
      if ((kept >> (e / size) & 1) == 0) values[e] = -kvr::kInfinity;
    }
    __syncwarp();
  }
  int chosen = -1;
  Best own{-kvr::kInfinity, router.num_experts};
  const auto scan = [&] {
    own = {-kvr::kInfinity, router.num_experts};
    for (int e = lane; e < router.num_experts; e += kvr::kWarpLanes) own.Take(values[e], e);
  };
  scan();
  for (int i = 0; i < router.top_k; ++i) {
    const Best best = WarpBest(own);
    if (lane == i) chosen = best.index;
    if (best.index % kvr::kWarpLanes == lane) {
      values[best.index] = -kvr::kInfinity;
      scan();
    }
  }
  return chosen;
}

}  // namespace moe

// router_logits  [num_tokens, num_experts]
// bias           [num_experts] or null
// segments       segments.cuh
// pair_token     [pairs]: by expert, then token
// pair_position  [num_tokens, top_k]: a pair's place in pair_token; -1 for padding
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
  const int words = (num_tokens + 31) / 32;
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
  const int valid = num_valid_tokens[0];
  for (int token = warp; token < num_tokens; token += kWarps) {
    const int at = token * top_k + lane;
    if (token >= valid) {
      if (lane < top_k) {
        expert_ids[at] = -1;
        expert_weights[at] = 0;
        pair_position[at] = -1;
      }
      continue;
    }
    moe::Score(router, router_logits + int64_t{token} * num_experts, scores);
    __syncwarp();
    const int expert = moe::Choose(router, scores, scores + num_experts);
    const float score = lane < top_k ? scores[expert] : 0;
    const float sum = kvr::WarpSum(score);
    if (lane < top_k) {
      expert_ids[at] = expert;
      expert_weights[at] = score * (router.renormalize ? router.scale / sum : router.scale);
      atomicOr(&masks[expert * words + token / 32], 1u << token % 32);
    }
    __syncwarp();  // the scores are free for the next token
  }
  __syncthreads();

  if (warp == 0) {
    int active = 0, pairs = 0;
    for (int base = 0; base < num_experts; base += kvr::kWarpLanes) {
      const int expert = base + lane;
      int count = 0;
      for (int word = 0; word < words && expert < num_experts; ++word) {
        count += __popc(masks[expert * words + word]);
      }
      int through = count;  // of this lane and those before
      for (int lanes = 1; lanes < kvr::kWarpLanes; lanes *= 2) {
        const int before = __shfl_up_sync(kvr::kAllLanes, through, lanes);
        if (lane >= lanes) through += before;
      }
      const unsigned busy = __ballot_sync(kvr::kAllLanes, count > 0);
      if (expert < num_experts) begins[expert] = pairs + through - count;
      if (count > 0) {
        const int segment = active + __popc(busy & ((1u << lane) - 1));
        segments[1 + segment] = expert;
        segments[1 + num_experts + segment] = pairs + through - count;
      }
      active += __popc(busy);
      pairs += __shfl_sync(kvr::kAllLanes, through, kvr::kWarpLanes - 1);
    }
    if (lane == 0) {
      segments[0] = active;
      segments[1 + num_experts + active] = pairs;
    }
  }
  __syncthreads();

  const int valid_pairs = min(valid, num_tokens) * top_k;
  for (int pair = thread; pair < valid_pairs; pair += threads) {
    const int token = pair / top_k, expert = expert_ids[pair];
    const unsigned* mask = masks + expert * words;
    int position = begins[expert] + __popc(mask[token / 32] & ((1u << token % 32) - 1));
    for (int word = 0; word < token / 32; ++word) position += __popc(mask[word]);
    pair_position[pair] = position;
    pair_token[position] = token;
  }
}
