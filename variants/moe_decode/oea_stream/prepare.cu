// SPDX-License-Identifier: Apache-2.0
//
// moe_prepare with opportunistic expert activation (arXiv 2511.02237). A token first takes its best
// experts, and then others that some token of the batch has taken: their weights are read anyway.
// variants/common/moe/oea.h states the algorithm.
//
//   1. Phase 1, a warp a token: scores, and the first kFirst experts, or as few as reach kMass
//      thousandths of the scores' sum. Each is a bit of the base, in shared memory.
//   2. After a barrier the base is what all tokens have taken; phase 2 adds nothing to it, so what
//      the step reads is fixed here.
//   3. Phase 2, a warp a token: what is in the base and not yet taken, best first, until the token
//      has kMost experts or the ranks end. Then the weights, over all that it took.
//
// One block routes, which is what the base needs. The others mark the hidden layer as absent; one
// that has no others does both. moe_stream begins beside it.
#include <kvr/device.cuh>
#include <kvr/hopper.cuh>
#include <type_traits>

#include "multiply.cuh"
#include "route.cuh"

namespace moe {

struct Opportunism {
  int first, most, mass, last_place;
  bool across_groups;
};

// Takes the best key out of `keys`, ties to the lowest expert. Its expert, in all lanes; -1: none
// is left.
template <int kOwn>
KVR_DEVICE int Take(uint32_t (&keys)[kOwn]) {
  uint32_t own = 0;
  int place = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (keys[i] <= own) continue;
    own = keys[i];
    place = i;
  }
  const uint32_t best = __reduce_max_sync(kvr::kAllLanes, own);
  if (best == 0) return -1;
  const unsigned expert = kvr::LaneIndex() + place * kvr::kWarpLanes;
  const unsigned taken = __reduce_min_sync(kvr::kAllLanes, own == best ? expert : ~0u);
  if (taken == expert) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (place == i) keys[i] = 0;
    }
  }
  return static_cast<int>(taken);
}

// The place of an expert among `keys`, from 1. `own`: its key, in all lanes.
template <int kOwn>
KVR_DEVICE int Place(const uint32_t (&keys)[kOwn], int expert, uint32_t own) {
  int better = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int e = kvr::LaneIndex() + i * kvr::kWarpLanes;
    better += keys[i] > own || (keys[i] == own && e < expert) ? 1 : 0;
  }
  return 1 + static_cast<int>(__reduce_add_sync(kvr::kAllLanes, static_cast<unsigned>(better)));
}

// An expert's value of those that lanes hold, in all lanes.
template <int kOwn, class T>
KVR_DEVICE T ValueOf(const T (&values)[kOwn], int expert) {
  T own{};
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (expert / kvr::kWarpLanes == i) own = values[i];
  }
  return __shfl_sync(kvr::kAllLanes, own, expert % kvr::kWarpLanes);
}

// Both phases, by all warps of a block. scratch: [num_experts] floats of this warp; base: a bit an
// expert, clear; expert_ids and expert_weights as moe_prepare has them.
template <int kOwn>
KVR_DEVICE void RouteTogether(const Router& router, const Opportunism& opportunism, int num_tokens,
                              int valid, float* scratch, unsigned* base, int* expert_ids,
                              float* expert_weights) {
  const int lane = kvr::LaneIndex(), warps = static_cast<int>(blockDim.x) / kvr::kWarpLanes;
#pragma unroll 1
  for (int token = kvr::WarpIndex(); token < num_tokens; token += warps) {
    int expert = -1;  // of this lane's slot
    if (token < valid) {
      float scores[kOwn];
      LoadLogits(router, token, scores);
      Score(router, scores);
      uint32_t keys[kOwn];
      Keys(router, scores, scratch, keys);
      float total = 0, mass = 0;
#pragma unroll
      for (int i = 0; i < kOwn; ++i) total += scores[i];
      const float wanted = opportunism.mass / 1000.0f * kvr::WarpSum(total);
#pragma unroll 1
      for (int i = 0; i < opportunism.first; ++i) {
        if (opportunism.mass < 1000 && mass >= wanted) break;
        const int next = Take(keys);
        if (next < 0) break;
        if (lane == i) expert = next;
        mass += ValueOf(scores, next);
      }
      if (expert >= 0) atomicOr(&base[expert / kvr::kWarpLanes], 1u << expert % kvr::kWarpLanes);
    }
    if (lane >= router.top_k) continue;
    expert_ids[token * router.top_k + lane] = expert;
    expert_weights[token * router.top_k + lane] = 0;
  }
  __syncthreads();

  Router ranks = router;  // whose ranks phase 2 goes through
  if (opportunism.across_groups) ranks.n_group = ranks.topk_group = 1;
#pragma unroll 1
  for (int token = kvr::WarpIndex(); token < min(valid, num_tokens); token += warps) {
    const int slot = token * router.top_k + lane;
    int expert = lane < router.top_k ? expert_ids[slot] : -1;  // this lane wrote it
    int count = __popc(__ballot_sync(kvr::kAllLanes, expert >= 0));
    float scores[kOwn];
    LoadLogits(router, token, scores);
    Score(router, scores);
    if (count < opportunism.most) {
      uint32_t keys[kOwn], left[kOwn];
      Keys(ranks, scores, scratch, keys);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const bool there = lane + i * kvr::kWarpLanes < router.num_experts;
        left[i] = there && (base[i] >> lane & 1) != 0 ? keys[i] : 0;
      }
#pragma unroll 1
      for (int j = 0; j < count; ++j) {
        const int taken = __shfl_sync(kvr::kAllLanes, expert, j);
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
          if (lane + i * kvr::kWarpLanes == taken) left[i] = 0;
        }
      }
#pragma unroll 1
      for (; count < opportunism.most; ++count) {
        const int next = Take(left);
        if (next < 0) break;
        if (opportunism.last_place > 0 &&
            Place(keys, next, ValueOf(keys, next)) > opportunism.last_place) {
          break;
        }
        if (lane == count) expert = next;
      }
    }
    float score = 0;  // of this lane's expert
#pragma unroll 1
    for (int j = 0; j < count; ++j) {
      const float value = ValueOf(scores, __shfl_sync(kvr::kAllLanes, expert, j));
      if (lane == j) score = value;
    }
    const float sum = router.renormalize ? kvr::WarpSum(score) : 1;
    if (expert < 0) continue;
    expert_ids[slot] = expert;
    expert_weights[slot] = score * (router.scale / sum);
  }
}

}  // namespace moe

// router_logits  [num_tokens, num_experts]
// bias           [num_experts] or null
// ticket         [1]
// h              [h_vectors, 8]
// expert_ids, expert_weights  [num_tokens, top_k]; -1 and 0 in slots that are not used
// kMost 0: top_k. kMass 1000: kFirst alone counts. kLastPlace 0: the ranks' end.
// Grid: any; the first block routes.
template <int kFirst, int kMost, int kMass, int kLastPlace, int kAcrossGroups>
__global__ void moe_prepare(const float* router_logits, const float* bias,
                            const int* num_valid_tokens, float routed_scaling_factor, int* ticket,
                            __nv_bfloat16* h, int* expert_ids, float* expert_weights, int h_vectors,
                            int num_tokens, int num_experts, int top_k, int scoring,
                            int renormalize, int n_group, int topk_group) {
  kvr::LaunchDependents();
  extern __shared__ __align__(16) unsigned char shared_memory[];
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  if (block > 0 || blocks == 1) {
    const int markers = max(blocks - 1, 1), marker = max(block - 1, 0);
    for (int i = marker * threads + thread; i < h_vectors; i += markers * threads) {
      reinterpret_cast<uint4*>(h)[i] = {moe::kAbsent, moe::kAbsent, moe::kAbsent, moe::kAbsent};
    }
  }
  if (block > 0) return;
  if (thread == 0) *ticket = 0;
  const moe::Router router{router_logits,
                           bias,
                           num_experts,
                           top_k,
                           scoring,
                           n_group,
                           topk_group,
                           renormalize != 0,
                           routed_scaling_factor};
  const moe::Opportunism opportunism{kFirst, kMost == 0 ? top_k : kMost, kMass, kLastPlace,
                                     kAcrossGroups != 0};
  // [kMostWords], then [warps][num_experts].
  constexpr int kMostWords = 16;  // a bit for each of 512 experts, definition.json's limit
  auto* const base = reinterpret_cast<unsigned*>(shared_memory);
  float* const scratch =
      reinterpret_cast<float*>(base + kMostWords) + kvr::WarpIndex() * num_experts;
  if (thread < kMostWords) base[thread] = 0;
  __syncthreads();
  const int valid = num_valid_tokens[0];
  const auto route = [&](auto own) {
    moe::RouteTogether<own.value>(router, opportunism, num_tokens, valid, scratch, base, expert_ids,
                                  expert_weights);
  };
  if (num_experts <= 128) {
    route(std::integral_constant<int, 4>());
  } else if (num_experts <= 256) {
    route(std::integral_constant<int, 8>());
  } else {
    route(std::integral_constant<int, 16>());
  }
}
