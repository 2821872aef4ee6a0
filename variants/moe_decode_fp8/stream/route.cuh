// SPDX-License-Identifier: Apache-2.0
//
// Which experts a token takes, by one warp, in registers: lane l holds experts l, l + 32, ...
// DeepSeek-V3's routing: sigmoid scores, chosen by score + bias within the best groups. Ranking
// needs only comparisons, so values become unsigned keys of the same order, and one instruction
// finds a warp's largest. Key 0: no expert, or one that is taken or out of its groups. Logits and
// biases are numbers: a NaN among them would rank first or last, by its sign.
#pragma once

#include <cuda_bf16.h>

#include <kvr/device.cuh>

namespace moe {

struct Router {
  const float* logits;        // [num_tokens, num_experts]
  const __nv_bfloat16* bias;  // [num_experts]
  int num_experts, top_k, n_group, topk_group;
  float scale;
};

// Lane j < top_k: the token's j-th expert and its weight.
struct Choice {
  int expert;
  float weight;
};

// Lane g: whether group g is among the topk_group best, by the sum of its two best values.
// values: [num_experts] in shared memory.
KVR_DEVICE bool GroupKept(const Router& router, const float* values) {
  const int lane = kvr::LaneIndex(), size = router.num_experts / router.n_group;
  uint32_t key = 0;
  if (lane < router.n_group) {
    float first = -kvr::kInfinity, second = -kvr::kInfinity;
    int i = lane % size;  // each lane begins elsewhere: groups of 32 would all be in one bank
#pragma unroll 4
    for (int seen = 0; seen < size; ++seen) {
      const float value = values[lane * size + i];
      if (++i == size) i = 0;
      second = fmaxf(second, fminf(first, value));
      first = fmaxf(first, value);
    }
    key = kvr::OrderedKey(first + second);
  }
  bool kept = false;
#pragma unroll 1
  for (int i = 0; i < router.topk_group; ++i) {
    const uint32_t best = __reduce_max_sync(kvr::kAllLanes, key);
    const int group = __ffs(__ballot_sync(kvr::kAllLanes, key == best)) - 1;
    if (group == lane) {
      kept = true;
      key = 0;
    }
  }
  return kept;
}

// Top-k routing of one token by a whole warp. values: [num_experts], shared memory of its own.
// kOwn: experts of a lane.
template <int kOwn>
KVR_DEVICE Choice Choose(const Router& router, int token, float* values) {
  const int lane = kvr::LaneIndex(), size = router.num_experts / router.n_group;
  const float* const logits = router.logits + int64_t{token} * router.num_experts;
  float scores[kOwn];
  uint32_t keys[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int e = lane + i * kvr::kWarpLanes;
    scores[i] = 0;
    keys[i] = 0;
    if (e >= router.num_experts) continue;
    scores[i] = 1 / (1 + kvr::Exp2(-logits[e] * kvr::kLog2E));
    const float value = scores[i] + __bfloat162float(router.bias[e]);
    keys[i] = kvr::OrderedKey(value);
    values[e] = value;
  }
  if (router.n_group > 1) {
    __syncwarp();
    const unsigned kept = __ballot_sync(kvr::kAllLanes, GroupKept(router, values));
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int e = lane + i * kvr::kWarpLanes;
      if (e < router.num_experts && (kept >> (e / size) & 1) == 0) keys[i] = 0;
    }
  }

  Choice choice{-1, 0};
  uint32_t own = 0;  // this lane's largest key, its place and score
  int place = 0;
  float score = 0;
  const auto look = [&] {
    own = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (keys[i] <= own) continue;
      own = keys[i];
      place = i;
      score = scores[i];
    }
  };
  look();
#pragma unroll 1
  for (int j = 0; j < router.top_k; ++j) {
    const uint32_t best = __reduce_max_sync(kvr::kAllLanes, own);
    const int expert = lane + place * kvr::kWarpLanes;
    const unsigned first = __reduce_min_sync(kvr::kAllLanes, own == best ? expert : ~0u);
    const int owner = static_cast<int>(first) % kvr::kWarpLanes;  // ties: the lowest expert
    const float chosen = __shfl_sync(kvr::kAllLanes, score, owner);
    if (lane == j) choice = {static_cast<int>(first), chosen};
    if (lane != owner) continue;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (place == i) keys[i] = 0;
    }
    look();
  }
  constexpr float kEpsilon = 1e-20f;  // the contract's: scores may all underflow
  choice.weight *= router.scale / (kvr::WarpSum(choice.weight) + kEpsilon);
  return choice;
}

}  // namespace moe
