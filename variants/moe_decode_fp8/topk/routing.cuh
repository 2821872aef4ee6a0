// SPDX-License-Identifier: Apache-2.0
//
// DeepSeek-V3's routing of one token by one warp, in float32: its scores, its groups, and its
// experts in the order of their ranks. What is chosen of them, and by how many tokens at once, is
// up to the kernels: topk, oea and oea_stream. topk and oea_stream each have this file; a test
// holds them equal.
//
// Everything here is called by a whole warp together, and gives every lane the same unless it says
// otherwise. Of an array by expert in shared memory, lane l writes the elements e = l mod 32.
#pragma once

#include <cuda_bf16.h>

#include <kvr/device.cuh>

namespace moe {

struct Router {
  const __nv_bfloat16* bias;  // [num_experts]
  int num_experts, top_k, n_group, topk_group;
  float scale;
};

// What an expert is ranked by. A NaN is never taken.
KVR_DEVICE float Value(const Router& router, const float* scores, int expert) {
  return fmaxf(scores[expert] + __bfloat162float(router.bias[expert]), -kvr::kInfinity);
}

// scores[e] of one token, and what it is ranked by, values[e]; in shared memory.
KVR_DEVICE void Score(const Router& router, const float* logits, float* scores, float* values) {
#pragma unroll 4
  for (int e = kvr::LaneIndex(); e < router.num_experts; e += kvr::kWarpLanes) {
    scores[e] = 1 / (1 + kvr::Exp2(-logits[e] * kvr::kLog2E));
    values[e] = Value(router, scores, e);
  }
  __syncwarp();
}

// Bit g: group g is among the token's topk_group best. A lane adds up a group's best two.
KVR_DEVICE unsigned KeptGroups(const Router& router, const float* values) {
  if (router.n_group == 1) return 1;
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
  unsigned kept = 0;
  for (int i = 0; i < router.topk_group; ++i) {
    const uint32_t best = __reduce_max_sync(kvr::kAllLanes, key);
    const int group = __ffs(__ballot_sync(kvr::kAllLanes, key == best)) - 1;
    kept |= 1u << group;
    if (group == lane) key = 0;
  }
  return kept;
}

KVR_DEVICE bool InGroups(const Router& router, unsigned groups, int expert) {
  return router.n_group == 1 || (groups >> (expert / (router.num_experts / router.n_group)) & 1);
}

// Takes experts one by one, best first, ties to the lowest. values[e], in shared memory and written
// by lane e mod 32: what e is ranked by, -infinity where it is not to be taken; a taken one becomes
// that.
class Ranking {
 public:
  KVR_DEVICE Ranking(float* values, int num_experts) : values_(values), num_experts_(num_experts) {
    Scan();
  }

  // -1: there is none left.
  KVR_DEVICE int Take() {
    const uint32_t best = __reduce_max_sync(kvr::kAllLanes, key_);
    if (best <= kvr::OrderedKey(-kvr::kInfinity)) return -1;
    const unsigned own = key_ == best ? static_cast<unsigned>(place_) : ~0u;
    const int expert = static_cast<int>(__reduce_min_sync(kvr::kAllLanes, own));
    if (expert % kvr::kWarpLanes == kvr::LaneIndex()) {
      values_[expert] = -kvr::kInfinity;
      Scan();
    }
    return expert;
  }

 private:
  KVR_DEVICE void Scan() {
    key_ = 0;
    place_ = 0;
#pragma unroll 4
    for (int e = kvr::LaneIndex(); e < num_experts_; e += kvr::kWarpLanes) {
      const uint32_t key = kvr::OrderedKey(values_[e]);
      if (key <= key_) continue;
      key_ = key;
      place_ = e;
    }
  }

  float* values_;
  int num_experts_;
  uint32_t key_ = 0;  // of this lane's experts the best, and where it is
  int place_ = 0;
};

// The weight of `expert`, lane j's being slot j's; -1, an unused slot, weighs 0.
KVR_DEVICE float Weight(const Router& router, const float* scores, int expert) {
  constexpr float kEpsilon = 1e-20f;  // the contract's: scores may all underflow
  const float score = expert < 0 ? 0 : scores[expert];
  return score / (kvr::WarpSum(score) + kEpsilon) * router.scale;
}

}  // namespace moe
