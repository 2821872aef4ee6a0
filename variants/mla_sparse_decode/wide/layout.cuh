// SPDX-License-Identifier: Apache-2.0
//
// A block's warps and its shared memory.
#pragma once

#include <cuda_bf16.h>

#include <kvr/cluster.cuh>
#include <kvr/device.cuh>
#include <kvr/wgmma.cuh>

namespace mla {

inline constexpr int kCkvDim = 512;               // a latent row: key (with kpe) and value
inline constexpr int kKpeDim = 64;                // its rotary part: key only
inline constexpr int kQkDim = kCkvDim + kKpeDim;  // what a score is a product over

inline constexpr int kHeads = 64;  // of a block: the rows of a product
inline constexpr int kTile = 32;   // cache rows of a tile
inline constexpr int kStages = 4;  // tiles in shared memory

// Warpgroups by what they do: one scores, two add up values, 256 dims each, one gathers.
inline constexpr int kScoreWarps = 4, kValueWarps = 8, kGatherWarps = 4;
inline constexpr int kThreads = (kScoreWarps + kValueWarps + kGatherWarps) * kvr::kWarpLanes;
inline constexpr int kScoreThreads = kScoreWarps * kvr::kWarpLanes;
inline constexpr int kValueThreads = kValueWarps * kvr::kWarpLanes;
inline constexpr int kGatherThreads = kGatherWarps * kvr::kWarpLanes;

// Registers of a thread, by job: 128 on average.
inline constexpr int kGatherRegisters = 56, kScoreRegisters = 104, kValueRegisters = 176;
static_assert(kGatherRegisters + kScoreRegisters + 2 * kValueRegisters <= 4 * 128);

// Named barriers; 0 is __syncthreads.
enum Barrier { kScoreBarrier = 1, kValueBarrier = 2, kQueryBarrier = 3, kJoinBarrier = 4 };

inline constexpr int kMostSplits = 8;  // blocks of a cluster

// Rows of a tile in slices of 64 dims, 128 bytes: the eight of ckv, then kpe. In a slice, the 16
// bytes number i of row r lie at place i ^ (r % 8), as products want it (kvr/wgmma.cuh); so a slice
// serves as keys, K-major, and as values, which are not.
inline constexpr int kPiece = 8;  // elements of 16 bytes
inline constexpr int kSliceDims = 64;
inline constexpr int kSlicePieces = kSliceDims / kPiece;
inline constexpr int kCkvSlices = kCkvDim / kSliceDims, kSlices = kQkDim / kSliceDims;
inline constexpr int kSliceBytes = kTile * kSliceDims * 2;

struct Stage {
  alignas(1024) uint4 rows[kSlices][kTile][kSlicePieces];
};

// A unit of the merge is 64 dims of a head; parts of those that a block owns come from all blocks.
inline constexpr int kUnits = kHeads * kCkvSlices;

// A change of its size changes the manifest's smem.
struct Shared {
  Stage low[kStages / 2];
  alignas(1024) uint4 query[kSlices][kHeads][kSlicePieces];  // heads as rows of slices, too
  Stage high[kStages / 2];
  // A of a product over tokens: 8 heads x 8 tokens are 128 bytes in a row.
  alignas(128) uint32_t probabilities[kHeads / 8][kTile / 8][8][4];
  alignas(16) float mask[kStages][kTile];  // 0, or -infinity for padding
  float rescale[kHeads];                   // of the output so far
  float weight[kHeads];                    // of this block's output
  float2 sums[kMostSplits][kHeads];        // of each block: reference, sum
  uint64_t filled[kStages], emptied[kStages];
  uint64_t scored, taken;  // `probabilities`
  uint64_t weighed;        // `weight`
  uint64_t sums_received, parts_received;

  KVR_DEVICE Stage& StageAt(int i) { return i < kStages / 2 ? low[i] : high[i - kStages / 2]; }
};
static_assert(sizeof(Stage) == kTile * kQkDim * 2);
// The manifest's.
static_assert(sizeof(Shared) == (64 * 576 * 2 + kStages * (32 * 576 * 2 + 32 * 4) + 64 * 32 * 2 +
                                 2 * 64 * 4 + 8 * 64 * 8 + (2 * kStages + 5) * 8 + 1023) /
                                    1024 * 1024);

// Where a ring of kStages stands: the stage, and the parity of its phase.
struct Ring {
  int stage = 0, parity = 0;
  KVR_DEVICE void Next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

}  // namespace mla
