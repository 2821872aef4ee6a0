// SPDX-License-Identifier: Apache-2.0
//
// DeepSeek-V3's routing of one token by one warp, in float32: its scores, its groups, and its
// experts in the order of their ranks. What is chosen of them, and by how many tokens at once, is
// route.cu's.
//
// Everything here is called by a whole warp together, and gives every lane the same unless it says
// otherwise. Of an array by expert in shared memory, lane l writes the elements e = l mod 32.
#pragma once

#include <cuda_bf16.h>

#include <kvr/device.cuh>

namespace moe {

// The largest value and, of equal ones, the lowest index.
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

struct Router {
  const __nv_bfloat16* bias;  // [num_experts]
  int num_experts, top_k, n_group, topk_group;
  float scale;
};

// scores[e] of one token, in shared memory.
KVR_DEVICE void Score(const Router& router, const float* logits, float* scores) {
  for (int e = kvr::LaneIndex(); e < router.num_experts; e += kvr::kWarpLanes) {
    scores[e] = 1 / (1 + kvr::Exp2(-logits[e] * kvr::kLog2E));
  }
  __syncwarp();
}

// What an expert is ranked by. A NaN is never taken.
KVR_DEVICE float Value(const Router& router, const float* scores, int expert) {
  return fmaxf(scores[expert] + __bfloat162float(router.bias[expert]), -kvr::kInfinity);
}

// Bit g: group g is among the token's topk_group best. A lane adds up a group's best two.
KVR_DEVICE unsigned KeptGroups(const Router& router, const float* scores) {
  if (router.n_group == 1) return 1;
  const int lane = kvr::LaneIndex(), size = router.num_experts / router.n_group;
  float first = -kvr::kInfinity, second = -kvr::kInfinity;
  if (lane < router.n_group) {
    // Each lane begins elsewhere in its group: groups of 32 would all be in one bank.
    for (int i = 0; i < size; ++i) {
      const float value = Value(router, scores, lane * size + (i + lane) % size);
      second = fmaxf(second, fminf(first, value));
      first = fmaxf(first, value);
    }
  }
  float value = first + second;
  unsigned kept = 0;
  for (int i = 0; i < router.topk_group; ++i) {
    const Best best = WarpBest({value, lane});
    kept |= 1u << best.index;
    if (best.index == lane) value = -kvr::kInfinity;
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
    const Best best = WarpBest(own_);
    if (best.value == -kvr::kInfinity) return -1;
    if (best.index % kvr::kWarpLanes == kvr::LaneIndex()) {
      values_[best.index] = -kvr::kInfinity;
      Scan();
    }
    return best.index;
  }

 private:
  KVR_DEVICE void Scan() {
    own_ = {-kvr::kInfinity, num_experts_};
    for (int e = kvr::LaneIndex(); e < num_experts_; e += kvr::kWarpLanes) {
      own_.Take(values_[e], e);
    }
  }

  float* values_;
  int num_experts_;
  Best own_;  // of this lane's experts
};

// The weight of `expert`, lane j's being slot j's; -1, an unused slot, weighs 0.
KVR_DEVICE float Weight(const Router& router, const float* scores, int expert) {
  constexpr float kEpsilon = 1e-20f;  // the contract's: scores may all underflow
  const float score = expert < 0 ? 0 : scores[expert];
  return score / (kvr::WarpSum(score) + kEpsilon) * router.scale;
}

}  // namespace moe
