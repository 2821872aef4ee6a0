// SPDX-License-Identifier: Apache-2.0
//
// Opportunistic expert activation (arXiv 2511.02237): a token first takes its best experts, and
// then others that some token of the batch has taken: their weights are read anyway, by this rank
// or another. variants/common/moe/oea.h states the algorithm. One block routes, a warp a token:
//
//   1. Phase 1, TakeFirst: the first kFirst experts, or as few as reach kMass thousandths of the
//      scores' sum. Slots hold them, a bit each is in the base.
//   2. After a barrier the base is complete. Phase 2 adds nothing to it, so what the step reads is
//      fixed here.
//   3. Phase 2, OfferBase and TakeOffered: what is in the base and not yet taken, best first, until
//      the token has kMost experts or the ranks end. Then the weights, over all that it took.
//
// kMost 0: top_k. kMass 1000: kFirst alone counts. kLastPlace 0: the ranks' end.
//
// Everything here is called by a whole warp together. expert: that of this lane's slot, or -1.
// scores, values: [num_experts], shared memory of this warp (routing.cuh). base: a bit an expert,
// shared memory. oea and oea_stream each have this file; a test holds them equal.
#pragma once

#include <kvr/device.cuh>

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

// Phase 1. Gives the slot's expert. logits: [num_experts]; base: zeros, before a barrier.
template <int kFirst, int kMass>
KVR_DEVICE int TakeFirst(const Router& router, const float* logits, float* scores, float* values,
                         unsigned* base) {
  const int lane = kvr::LaneIndex();
  Score(router, logits, scores, values);
  const unsigned groups = KeptGroups(router, values);
  float total = 0;
  for (int e = lane; e < router.num_experts; e += kvr::kWarpLanes) {
    if (!InGroups(router, groups, e)) values[e] = -kvr::kInfinity;
    total += scores[e];
  }
  const float wanted = kMass / 1000.0f * kvr::WarpSum(total);
  Ranking ranking(values, router.num_experts);
  int expert = -1;
  float mass = 0;
  for (int i = 0; i < kFirst && (kMass == 1000 || mass < wanted); ++i) {
    const int next = ranking.Take();
    if (next < 0) break;
    if (lane == i) expert = next;
    mass += scores[next];
  }
  if (expert >= 0) atomicOr(&base[expert / kvr::kWarpLanes], 1u << expert % kvr::kWarpLanes);
  __syncwarp();  // the scores are free for the next token
  return expert;
}

// Phase 2 begins: leaves in `values`, which Score has filled, what is in the base, in the token's
// groups unless kAcrossGroups, and not yet taken. Gives those groups.
template <int kAcrossGroups>
KVR_DEVICE unsigned OfferBase(const Router& router, const unsigned* base, int expert,
                              float* values) {
  const int lane = kvr::LaneIndex();
  const bool all_groups = kAcrossGroups != 0 || router.n_group == 1;
  const unsigned groups = all_groups ? kvr::kAllLanes : KeptGroups(router, values);
  for (int e = lane; e < router.num_experts; e += kvr::kWarpLanes) {
    const bool allowed =
        (base[e / kvr::kWarpLanes] >> lane & 1) != 0 && InGroups(router, groups, e);
    if (!allowed) values[e] = -kvr::kInfinity;
  }
  __syncwarp();
  if (expert >= 0) values[expert] = -kvr::kInfinity;
  __syncwarp();
  return groups;
}

// Phase 2 goes on: takes from `offered` until the token, which has `count` experts, has `most`.
// Gives the slot's expert.
template <int kLastPlace>
KVR_DEVICE int TakeOffered(const Router& router, const float* scores, unsigned groups,
                           Ranking& offered, int count, int most, int expert) {
  for (; count < most; ++count) {
    const int next = offered.Take();
    if (next < 0) break;
    if (kLastPlace > 0 && RankOf(router, scores, groups, next) > kLastPlace) break;
    if (kvr::LaneIndex() == count) expert = next;
  }
  return expert;
}

}  // namespace moe
