// SPDX-License-Identifier: Apache-2.0
//
// A block's warps, its shared memory, and what its parts share.
#pragma once

#include <cuda_bf16.h>

#include <kvr/device.cuh>

#include "row.cuh"

namespace mla {

inline constexpr int kHeads = 16;  // of a block

// Warps by what they do: two warpgroups score, two add up values, one gathers.
inline constexpr int kScoreWarps = 8, kValueWarps = 8, kGatherWarps = 4;
inline constexpr int kThreads = (kScoreWarps + kValueWarps + kGatherWarps) * kvr::kWarpLanes;
inline constexpr int kRegisters = 96;  // of a thread, before they are shared out: 65536 / kThreads

// kTile cache rows make a tile; kStages tiles fit into shared memory, of which kInFlight may be on
// their way: more would only wait for each other in the memory system, the first one too.
template <int kTile_, int kScoreRows_, int kStages_, int kInFlight_>
struct Shape {
  static constexpr int kTile = kTile_, kScoreRows = kScoreRows_;
  static constexpr int kStages = kStages_, kInFlight = kInFlight_;
  static_assert(kTile == 32 || kTile == 64);

  // Scores: a warp takes kScoreRows of the rows and a part of the dims. With more rows it has fewer
  // dims, so less of the query to keep, and the value warps can have those registers.
  static constexpr int kParts = kScoreWarps * kScoreRows / kTile, kPartGroups = kGroups / kParts;
  static constexpr int kGatherRegisters = 32;
  static constexpr int kScoreRegisters = kPartGroups == 4 ? 144 : 112;
  static constexpr int kValueRegisters = kPartGroups == 4 ? 80 : 112;
  static_assert(4 * kGatherRegisters + 8 * kScoreRegisters + 8 * kValueRegisters <=
                20 * kRegisters);

  // Tokens of a head in the tables of scores and probabilities; the pads spread heads over the
  // banks.
  static constexpr int kScoreStride = kTile + 4;  // fp32
  static constexpr int kProbStride = kTile + 8;   // 16 bits

  // Partial scores of a tile.
  using Scores = float[kParts][kHeads][kScoreStride];

  struct Stage : Rows<kTile> {
    alignas(16) float mask[kTile];  // 0, or -infinity for padding
  };

  // What the value warps need of a tile's scores.
  struct Probabilities {
    alignas(16) uint16_t tables[1 + kRopeIsValue][kHeads][kProbStride];  // f16; for RoPE, bf16
    alignas(16) float rescale[kHeads];                                   // of the output so far
  };

  // A change of its size changes the manifest's smem.
  struct Shared {
    Stage stages[kStages];
    alignas(16) Scores scores[2];                          // [tile % 2]
    Probabilities probabilities[2];                        // [tile % 2]
    alignas(16) uint32_t factors[kValueWarps][kTile / 2];  // a group's scales, f16 (values.cuh)

    // Merge (merge.cuh).
    alignas(16) float2 sums[kMostSplits][kHeads];  // of each block: reference, sum
    int exponents[kMostSplits][kGroups];
    float split_weight[kHeads][kMostSplits];
    float weight[kHeads];  // of this block's values

    uint64_t filled[kStages], emptied[kStages];
    uint64_t scored[2], taken[2];  // of `probabilities`
    uint64_t weighed[2];           // `weight`; `split_weight`
    uint64_t sums_received, parts_received;
    alignas(16) uint4 parts[1];  // [splits][share][8]: of each owned unit, each block's part
  };
  // The manifest's: stage_bytes, score_bytes, probability_bytes, merge_bytes, barrier_bytes.
  static_assert(sizeof(Shared) == kStages * kTile * (kRowStride + kScaleBytes + 4) +
                                      2 * kParts * kHeads * (kTile + 4) * 4 +
                                      2 * ((1 + kRopeIsValue) * kHeads * (kTile + 8) * 2 + 64) +
                                      16 * kTile + 16 * 16 * 8 + 16 * 8 * 4 + 16 * 16 * 4 + 64 +
                                      (2 * kStages + 8) * 8 + 16);
};

// The largest of the warp's floats, through integers that order as they do.
KVR_DEVICE int OrderedBits(int bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }
KVR_DEVICE float WarpMaximum(float x) {
  return __int_as_float(
      OrderedBits(__reduce_max_sync(kvr::kAllLanes, OrderedBits(__float_as_int(x)))));
}

}  // namespace mla
