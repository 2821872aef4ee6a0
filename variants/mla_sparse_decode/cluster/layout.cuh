// SPDX-License-Identifier: Apache-2.0
//
// A block's warps and its shared memory.
#pragma once

#include <cuda_bf16.h>

#include <kvr/cluster.cuh>
#include <kvr/device.cuh>

namespace mla {

inline constexpr int kCkvDim = 512;               // a latent row: key (with kpe) and value
inline constexpr int kKpeDim = 64;                // its rotary part: key only
inline constexpr int kQkDim = kCkvDim + kKpeDim;  // what a score is a product over

inline constexpr int kHeads = 16;  // of a block: the rows of a fragment
inline constexpr int kTile = 32;   // cache rows of a tile

// Warps by what they do.
inline constexpr int kScoreWarps = 8, kValueWarps = 8, kGatherWarps = 4;
inline constexpr int kThreads = (kScoreWarps + kValueWarps + kGatherWarps) * kvr::kWarpLanes;
inline constexpr int kScoreThreads = kScoreWarps * kvr::kWarpLanes;
inline constexpr int kValueThreads = kValueWarps * kvr::kWarpLanes;
inline constexpr int kGatherThreads = kGatherWarps * kvr::kWarpLanes;

// Named barriers; 0 is __syncthreads.
enum Barrier { kScoreBarrier = 1, kValueBarrier = 2 };

inline constexpr int kMostSplits = 16;  // blocks of a cluster

// Tensor-core fragments (kvr/matrix.cuh): 16 heads x 8 tokens (or dims), 16 deep.
inline constexpr int kFragmentM = 16, kFragmentN = 8, kFragmentK = 16;

// One copy moves 16 bytes. A row in shared memory is padded by one copy: 1168 bytes are 4 banks
// more than a multiple of 32, so the 8 rows of an ldmatrix tile touch each bank once.
inline constexpr int kPiece = 8;  // elements
inline constexpr int kRowStride = kQkDim + kPiece;
using Row = __nv_bfloat16[kRowStride];  // ckv 512 | kpe 64 | pad 8

// Scores: warps share a tile out by dims, kParts ways, and by rows; the parts are added through
// shared memory. Values: each warp has kWarpDims of the 512 dims.
inline constexpr int kParts = 4, kWarpRows = kTile * kParts / kScoreWarps;
inline constexpr int kWarpSteps = kQkDim / kFragmentK / kParts, kWarpDims = kCkvDim / kValueWarps;
static_assert(kParts * kWarpSteps * kFragmentK == kQkDim && kWarpRows == 2 * kFragmentN);

// Tokens of a head in the tables of scores and probabilities; the pads spread heads over the banks.
inline constexpr int kScoreStride = kTile + 8;  // fp32
inline constexpr int kProbStride = kTile + 8;   // bf16

// A unit of the merge is 64 dims of a head. A block owns `share` of the 128, and gets one from each
// of `splits` blocks: 140 at most (14 blocks, 10 units each).
inline constexpr int kUnitDims = kWarpDims, kUnits = kHeads * kValueWarps, kMostUnits = 140;

// kStages tiles fit into shared memory. A change of its size changes the manifest's smem.
template <int kStages>
struct Shared {
  alignas(16) Row rows[kStages][kTile];
  alignas(16) float mask[kStages][kTile];  // 0, or -infinity for padding
  union {
    alignas(16) float partial_scores[2][kParts][kHeads][kScoreStride];  // [tile % 2]
    alignas(16) Row query[kHeads];                                      // until the first scores
  };
  struct {
    alignas(16) __nv_bfloat16 p[kHeads][kProbStride];
    float rescale[kHeads];  // of the output so far
  } probabilities[2];       // [tile % 2]

  // Merge (merge.cuh).
  alignas(16) float2 sums[kMostSplits][kHeads];  // of each block: reference, sum
  float weight[kMostSplits][kHeads];             // of each block's values
  alignas(16) float parts[kMostUnits][kUnitDims];

  uint64_t filled[kStages], emptied[kStages];
  uint64_t scored[2], taken[2];  // of `probabilities`
  uint64_t weighed;              // `weight`, and this block's own parts
  uint64_t sums_received, parts_received;
};
// The manifest's.
static_assert(sizeof(Shared<4>) == 4 * 32 * (1168 + 4) + 2 * 4 * 16 * 40 * 4 +
                                       2 * (16 * 40 * 2 + 64) + 16 * 16 * 12 + 140 * 256 +
                                       (2 * 4 + 7) * 8 + 8);

// Where a ring of kStages stands: the stage, and the parity of its phase.
template <int kStages>
struct Ring {
  int stage = 0, parity = 0;
  KVR_DEVICE void Next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

}  // namespace mla
