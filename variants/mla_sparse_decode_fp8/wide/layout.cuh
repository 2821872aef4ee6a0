// SPDX-License-Identifier: Apache-2.0
//
// A block's warps, its shared memory, and what its parts share.
#pragma once

#include <cuda_bf16.h>

#include <kvr/device.cuh>

#include "products.cuh"
#include "row.cuh"

namespace mla {

inline constexpr int kHeads = 64;  // of a block
inline constexpr int kTile = 64;   // cache rows

// Warpgroups by what they do: one scores, two add up values, 256 dims each, one gathers and widens.
inline constexpr int kScoreWarps = 4, kValueWarps = 8, kGatherWarps = 4;
inline constexpr int kScoreThreads = kScoreWarps * kvr::kWarpLanes;
inline constexpr int kValueThreads = kValueWarps * kvr::kWarpLanes;
inline constexpr int kGatherThreads = kGatherWarps * kvr::kWarpLanes;
inline constexpr int kThreads = kScoreThreads + kValueThreads + kGatherThreads;

// Named barriers; 0 is __syncthreads.
enum Barrier { kValueBarrier = 1, kScoreValueBarrier = 2 };

// [rows, 64 dims], bf16, as products.cuh has it. The dims of a group with codes are in an order of
// their own, here and in the query: of each 16, chunk ChunkOf(..., 0) has the even ones, and
// ChunkOf(..., 1) the odd ones. Groups differ in which comes first, so that lanes which store
// chunks of two groups use all banks.
template <int kRows>
struct Block {
  alignas(kBlockRowChunks* kBlockRowBytes) uint8_t bytes[kRows * kBlockRowBytes];
};
KVR_DEVICE int ChunkOf(int group, int sixteen, int odd) { return 2 * sixteen + (odd ^ group % 2); }

using Tile = Block<kTile>[kGroups];
inline constexpr int kTiles = 2;

// A warp's share of half a tile, as it lies in the cache.
inline constexpr int kHalfTile = kTile / 2, kBatchRows = kHalfTile / kGatherWarps;
struct Batch {
  struct Row {
    alignas(16) uint8_t codes[kRopeGroup * kGroupDims];
    uint8_t scales[kScaleBytes];
    uint8_t pad[56];  // rows a power of two apart
  } rows[kBatchRows];
  uint8_t rope[kBatchRows][kGroupDims * 2];
};
inline constexpr int kAhead = 2;  // batches on their way, of a warp

// The query: the first groups in registers of the score warps, as many as there is room for, the
// rest in shared memory.
inline constexpr int kHeldGroups = 3, kStoredGroups = kGroups - kHeldGroups;

struct Shared {
  union {
    struct {
      Tile tiles[kTiles];
      Block<kHeads> query[kStoredGroups];
    };
    struct {  // merge.cuh; [heads][512], 16 bits, in all: each block's share of units together
      uint8_t staged[kHeads * kDim * 2];
      uint8_t parts[(kHeads * kGroups + 4 * (kMostSplits - 1)) * kGroupDims * 2];
      float part_scales[kMostSplits][kHeads * kGroups];  // of each block's units
    };
  };
  Block<kHeads> probabilities;  // [heads, tokens of a tile]
  Batch batches[kAhead][kGatherWarps];
  float2 sums[kMostSplits][kHeads];  // of each block: reference, sum; later weight, -
  const uint8_t* rows[kGatherWarps][kvr::kWarpLanes];  // addresses of rows that are next
  alignas(16) float mask[kTiles][kTile];               // 0, or -infinity for padding
  float rescale[kHeads];                               // of the output so far, if `moved`
  int moved[kScoreWarps];

  uint64_t widened[kTiles], emptied[kTiles][2];  // a tile; each half of it
  uint64_t scored, taken;                        // `probabilities`
  uint64_t weighed, sums_received, parts_received;
};
// The manifest's: tile_bytes, query_bytes, probability_bytes, batch_bytes, merge_bytes,
// other_bytes, barrier_bytes.
static_assert(sizeof(Shared) ==
              (2 * 8 * 64 * 128 + 5 * 64 * 128 + 64 * 128 + 2 * 4 * 8 * (512 + 128) + 16 * 64 * 8 +
               4 * 32 * 8 + 2 * 64 * 4 + 64 * 4 + 16 + 11 * 8 + 1023) /
                  1024 * 1024);

}  // namespace mla
