// SPDX-License-Identifier: Apache-2.0
//
// Which experts a token takes, by one warp, in registers: lane l holds experts l, l + 32, ...
// Ranking needs only comparisons, so values become unsigned keys of the same order, and one
// instruction finds a warp's largest. Key 0: no expert, or one that is taken or out of its groups.
// Logits and biases are numbers: a NaN among them would rank first or last, by its sign.
#pragma once

#include <kvr/device.cuh>

namespace moe {

enum Scoring { kSoftmax, kSigmoid, kSqrtSoftplus };

struct Router {
  const float* logits;  // [num_tokens, num_experts]
  const float* bias;    // [num_experts]; null: none
  int num_experts, top_k, scoring, n_group, topk_group;
  bool renormalize;
  float scale;
};

// Lane j < top_k: the token's j-th expert and its weight.
struct Choice {
  int expert;
  float weight;
};

// Where a warp leaves what it chooses, in shared memory.
struct Chosen {
  int expert;
  float score;
};
inline constexpr int kMostChosen = kvr::kWarpLanes;

// Experts l, l + 32, ... of a token; those that there are not stay -infinity.
template <int kOwn>
KVR_DEVICE void LoadLogits(const Router& router, int token, float (&logits)[kOwn]) {
  const float* row = router.logits + int64_t{token} * router.num_experts;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int e = kvr::LaneIndex() + i * kvr::kWarpLanes;
    logits[i] = e < router.num_experts ? row[e] : -kvr::kInfinity;
  }
}

// Logits become scores.
template <int kOwn>
KVR_DEVICE void Score(const Router& router, float (&values)[kOwn]) {
  if (router.scoring == kSoftmax) {
    float largest = values[0], sum = 0;
#pragma unroll
    for (int i = 1; i < kOwn; ++i) largest = fmaxf(largest, values[i]);
    largest = kvr::WarpMax(largest);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      values[i] = kvr::Exp2((values[i] - largest) * kvr::kLog2E);
      sum += values[i];
    }
    sum = kvr::WarpSum(sum);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) values[i] *= 1 / sum;
    return;
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const float logit = values[i];
    if (router.scoring == kSigmoid) {
      values[i] = 1 / (1 + kvr::Exp2(-logit * kvr::kLog2E));
    } else {
      const float tail = kvr::Log2(1 + kvr::Exp2(-fabsf(logit) * kvr::kLog2E)) / kvr::kLog2E;
      values[i] = sqrtf(fmaxf(logit, 0) + tail);
    }
  }
}

// Lane g: whether group g is among the topk_group best, by the sum of its two best values.
// values: [num_experts] in shared memory.
KVR_DEVICE bool GroupKept(const Router& router, const float* values) {
  const int lane = kvr::LaneIndex(), size = router.num_experts / router.n_group;
  uint32_t key = 0;
  if (lane < router.n_group) {
    float first = -kvr::kInfinity, second = -kvr::kInfinity;
#pragma unroll 1
    for (int e = lane * size; e < (lane + 1) * size; ++e) {
      second = fmaxf(second, fminf(first, values[e]));
      first = fmaxf(first, values[e]);
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

// keys: what experts are chosen by. scratch: [num_experts] floats of this warp in shared memory,
// used where there are groups.
template <int kOwn>
KVR_DEVICE void Keys(const Router& router, const float (&scores)[kOwn], float* scratch,
                     uint32_t (&keys)[kOwn]) {
  const int lane = kvr::LaneIndex();
  float values[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int e = lane + i * kvr::kWarpLanes;
    const bool there = e < router.num_experts;
    values[i] = scores[i] + (there && router.bias != nullptr ? router.bias[e] : 0);
    keys[i] = there ? kvr::OrderedKey(values[i]) : 0;
  }
  if (router.n_group == 1) return;
  const int size = router.num_experts / router.n_group;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int e = lane + i * kvr::kWarpLanes;
    if (e < router.num_experts) scratch[e] = values[i];
  }
  __syncwarp();
  const unsigned kept = __ballot_sync(kvr::kAllLanes, GroupKept(router, scratch));
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int e = lane + i * kvr::kWarpLanes;
    if (e < router.num_experts && (kept >> (e / size) & 1) == 0) keys[i] = 0;
  }
  __syncwarp();
}

// The best `count` keys to chosen[0 ... count), best first, ties to the lowest expert. Takes them
// out of `keys`.
template <int kOwn>
KVR_DEVICE void TakeBest(uint32_t (&keys)[kOwn], const float (&scores)[kOwn], int count,
                         Chosen* chosen) {
  const int lane = kvr::LaneIndex();
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
  for (int j = 0; j < count; ++j) {
    const uint32_t best = __reduce_max_sync(kvr::kAllLanes, own);
    const unsigned expert = lane + place * kvr::kWarpLanes;
    bool mine = own == best;
    const unsigned lanes = __ballot_sync(kvr::kAllLanes, mine);
    if ((lanes & (lanes - 1)) != 0) {
      mine &= expert == __reduce_min_sync(kvr::kAllLanes, mine ? expert : ~0u);
    }
    if (!mine) continue;
    chosen[j] = {static_cast<int>(expert), score};
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (place == i) keys[i] = 0;
    }
    look();
  }
  __syncwarp();
}

// Top-k routing of one token, from its logits; they are used up. `chosen`: kMostChosen of this
// warp.
template <int kOwn>
KVR_DEVICE Choice Choose(const Router& router, float (&logits)[kOwn], float* scratch,
                         Chosen* chosen) {
  Score(router, logits);
  uint32_t keys[kOwn];
  Keys(router, logits, scratch, keys);
  TakeBest(keys, logits, router.top_k, chosen);
  const int lane = kvr::LaneIndex();
  const Chosen own = lane < router.top_k ? chosen[lane] : Chosen{-1, 0};
  __syncwarp();  // `chosen` is free for the next token
  if (!router.renormalize) return {own.expert, own.score * router.scale};
  return {own.expert, own.score * (router.scale / kvr::WarpSum(own.score))};
}

}  // namespace moe
