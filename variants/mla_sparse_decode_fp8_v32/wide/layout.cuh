// SPDX-License-Identifier: Apache-2.0
//
// A block's warps, its shared memory, and what its parts share.
#pragma once

#include <cuda_bf16.h>

#include <kvr/device.cuh>
#include <kvr/wgmma.cuh>

#include "row.cuh"

namespace mla {

inline constexpr int kHeads = 64;  // of a block

// Warpgroups by what they do: one scores, two add up values, 256 dims each, one gathers.
inline constexpr int kScoreWarps = 4, kValueWarps = 8, kGatherWarps = 4;
inline constexpr int kThreads = (kScoreWarps + kValueWarps + kGatherWarps) * kvr::kWarpLanes;
inline constexpr int kScoreThreads = kScoreWarps * kvr::kWarpLanes;
inline constexpr int kValueThreads = kValueWarps * kvr::kWarpLanes;

// Named barriers; 0 is __syncthreads.
enum Barrier { kScoreBarrier = 1, kQueryBarrier = 2 };

// kStages tiles of 64 cache rows fit into shared memory, of which kInFlight may be on their way:
// more would only wait for each other in the memory system, the first one too.
template <int kStages_, int kInFlight_>
struct Shape {
  static constexpr int kTile = 64, kStages = kStages_, kInFlight = kInFlight_;
  static_assert(kInFlight >= 1 && kInFlight <= kStages);

  struct Stage : Rows<kTile> {
    alignas(16) float mask[kTile];  // 0, or -infinity for padding
  };

  // What the value warps need of a tile's scores.
  struct Probabilities {
    // f16, B of a product over tokens: 8 tokens x 8 heads are 128 bytes in a row.
    alignas(128) uint32_t f16[kTile / 8][kHeads / 8][8][4];
    alignas(16) float rescale[kHeads];  // of the output so far, if `moved`
    alignas(16) int moved;
  };

  struct Shared {
    union {
      // B of a product over dims, 16 deep: a step is 8 heads x 8 dims, 128 bytes in a row, for both
      // halves of its dims and each 8 heads. f16; of the last four, RoPE, bf16.
      alignas(128) uint32_t query[kKeyDims / 16][kHeads / 8][2][8][4];
      float split_weight[kHeads][kMostSplits];  // merge: the last tile is scored
    };
    union {
      Stage stages[kStages];
      // Merge: [splits][share][8]: of each owned unit, each block's part.
      uint4 parts[kHeads * kGroups * 8];
    };
    Probabilities probabilities[2];                        // [tile % 2]
    alignas(16) uint32_t factors[kValueWarps][kTile / 2];  // a group's scales, f16 (values.cuh)
    alignas(16) float table[kScoreWarps][kHeads];          // maxima and sums of score warps

    alignas(16) float reference[kHeads];  // scores.cuh

    // Merge (merge.cuh).
    alignas(16) float2 sums[kMostSplits][kHeads];  // of each block: reference, sum
    int exponents[kMostSplits][kGroups];
    float weight[kHeads];  // of this block's values

    uint64_t filled[kStages], emptied[kStages];
    uint64_t scored[2], taken[2];  // of `probabilities`
    uint64_t weighed[2];           // `weight`; `split_weight`
    uint64_t sums_received, parts_received;
  };
  // The manifest's: query_bytes, stage_bytes, probability_bytes, score_bytes, merge_bytes,
  // barrier_bytes.
  static_assert(sizeof(Shared) ==
                (64 * kKeyDims * 2 + kStages * 64 * (kRowStride + kScaleBytes + 4) + 2 * 8576 +
                 8 * 32 * 4 + 4 * 64 * 4 + 64 * 4 + 16 * 64 * 8 + 16 * 8 * 4 + 64 * 4 +
                 (2 * kStages + 8) * 8 + 127) /
                    128 * 128);
};

// f16 keeps 2^-14 ... 2^15: scales are taken relative to the largest, times 2^kHeadroom, so that no
// code times a scale exceeds 448 * 2^7, and one 2^-21 of the largest is the last that counts.
inline constexpr int kHeadroom = 7;

}  // namespace mla
