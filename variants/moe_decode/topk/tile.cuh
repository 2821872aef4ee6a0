// SPDX-License-Identifier: Apache-2.0
//
// The product that both expert layers are: D[16 tokens, kRows weight rows], summed over the depth,
// with weights streamed through shared memory in kStages tiles of kDepth columns.
//
// Weights are read once and are nearly all of the bytes, so a block keeps (kStages - 1) tiles on
// their way; the tokens' rows are a few percent beside them, from L2. A fragment (kvr/matrix.cuh)
// has tokens as the 16 rows of A and 8 weight rows as the columns of B. Every warp takes pairs of
// such 8-row tiles, over the whole depth: sums are in the order of the depth, whatever the config.
#pragma once

#include <cuda_bf16.h>

#include <kvr/device.cuh>

namespace moe {

inline constexpr int kTokens = 16;  // of a tile: rows of A
inline constexpr int kRowTile = 8;  // weight rows of a fragment: columns of B
inline constexpr int kStep = 16;    // depth of a fragment
inline constexpr int kCopy = 8;     // values that one copy moves

template <int kRows_, int kDepth_, int kWarps_, int kStages_>
struct Tile {
  static constexpr int kRows = kRows_, kDepth = kDepth_, kWarps = kWarps_, kStages = kStages_;
  static constexpr int kThreads = kWarps * kvr::kWarpLanes;
  static constexpr int kPairs = kRows / (2 * kRowTile) / kWarps;  // of a warp
  // A pad of one copy: 8 rows of an ldmatrix tile then touch each bank once (72 or 136 values are
  // 4 banks more than a multiple of 32).
  static constexpr int kStride = kDepth + kCopy;
  static constexpr int kPieces = kDepth / kCopy;                          // copies of a row
  static constexpr int kCopies = (kTokens + kRows) * kPieces / kThreads;  // of a thread and tile

  static_assert(kRows % (2 * kRowTile * kWarps) == 0 && kDepth % kStep == 0 && kStages >= 2);
  static_assert((kTokens + kRows) * kPieces % kThreads == 0, "threads share the copies evenly");

  struct Stage {
    __nv_bfloat16 rows[kTokens + kRows][kStride];  // tokens, then weights
  };
};

// One per pair of 8-row tiles: [.][half] holds D of one of the two, layout of kvr/matrix.cuh.
template <class Tile>
using Sums = float[Tile::kPairs][2][4];

// sums += A B over `depth` columns. row(r): where row r of a stage begins in global memory, null
// for one that is not there (zeros). `first(pair, half)`: the weight row a fragment starts at.
// Leaves all copies done and no thread in shared memory.
template <class Tile, class Row, class First>
KVR_DEVICE void Multiply(typename Tile::Stage* stages, const Row& row, const First& first,
                         int depth, Sums<Tile>& sums) {
  const __nv_bfloat16* from[Tile::kCopies];
  const int thread = static_cast<int>(threadIdx.x);
  const int column = thread % Tile::kPieces * kCopy;  // the same in every copy of this thread
  static_assert(Tile::kThreads % Tile::kPieces == 0);
  constexpr int kRowsApart = Tile::kThreads / Tile::kPieces;
  const int first_row = thread / Tile::kPieces;
#pragma unroll
  for (int i = 0; i < Tile::kCopies; ++i) from[i] = row(first_row + i * kRowsApart);

  const int tiles = (depth + Tile::kDepth - 1) / Tile::kDepth;
  const auto copy = [&](int tile, int stage) {
    const int at = tile * Tile::kDepth + column;
#pragma unroll
    for (int i = 0; i < Tile::kCopies; ++i) {
      const bool valid = from[i] != nullptr && at < depth;
      kvr::CopyAsync16(&stages[stage].rows[first_row + i * kRowsApart][column],
                       valid ? from[i] + at : nullptr, valid);
    }
  };
#pragma unroll
  for (int ahead = 0; ahead < Tile::kStages - 1; ++ahead) {
    if (ahead < tiles) copy(ahead, ahead);
    kvr::CommitCopies();
  }

  const int lane = kvr::LaneIndex();
  int stage = 0, filling = Tile::kStages - 1;
  for (int tile = 0; tile < tiles; ++tile) {
    kvr::WaitForCopies<Tile::kStages - 2>();
    __syncthreads();  // the tile has arrived, and everybody is done with the one before
    if (tile + Tile::kStages - 1 < tiles) copy(tile + Tile::kStages - 1, filling);
    kvr::CommitCopies();  // perhaps empty: the count of groups must not depend on the tile

    const auto& rows = stages[stage].rows;
#pragma unroll
    for (int k = 0; k < Tile::kDepth; k += kStep) {
      uint32_t a[4];
      kvr::LoadMatrixX4(a, &rows[lane % 16][k + lane / 16 * 8]);
#pragma unroll
      for (int pair = 0; pair < Tile::kPairs; ++pair) {
        uint32_t b[4];
        const int weight_row = kTokens + first(pair, lane / 16) + lane % 8;
        kvr::LoadMatrixX4(b, &rows[weight_row][k + lane / 8 % 2 * 8]);
        kvr::MmaBf16(sums[pair][0], a, b[0], b[1]);
        kvr::MmaBf16(sums[pair][1], a, b[2], b[3]);
      }
    }
    filling = stage;
    stage = stage + 1 == Tile::kStages ? 0 : stage + 1;
  }
  kvr::WaitForCopies<0>();
  __syncthreads();
}

}  // namespace moe
