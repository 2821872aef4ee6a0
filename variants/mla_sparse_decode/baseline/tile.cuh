// SPDX-License-Identifier: Apache-2.0
//
// The shape of a block's work, its shared memory, and the gather that fills it.
#pragma once

#include <cuda_bf16.h>

#include <kvr/device.cuh>

namespace mla {

inline constexpr int kCkvDim = 512;               // a latent row: key (with kpe) and value
inline constexpr int kKpeDim = 64;                // its rotary part: key only
inline constexpr int kQkDim = kCkvDim + kKpeDim;  // what a score is a product over

// Tensor-core fragments (kvr/matrix.cuh): 16 heads x 8 tokens (or dims), 16 deep.
inline constexpr int kFragmentM = 16, kFragmentN = 8, kFragmentK = 16;

// One copy moves 16 bytes. A row in shared memory is padded by one copy: 1168 bytes are 4 banks
// more than a multiple of 32, so the 8 rows of an ldmatrix tile touch each bank once.
inline constexpr int kCopy = 8;  // elements
inline constexpr int kRowStride = kQkDim + kCopy;

// A block scores kBlockH heads against kBlockT tokens at a time, with kWarps warps, while up to
// kStages - 1 further tiles are on their way.
//
// Scores: every warp takes all heads and tokens of the tile, but only every kWarps-th 16-deep step
// of the 576 dims; the warps' partial sums are added through shared memory. So a key is read from
// shared memory once, whatever kWarps is.
// Output: every warp takes all heads and tokens, and 512 / kWarps of the dims.
template <int kBlockH_, int kBlockT_, int kWarps_, int kStages_>
struct Tile {
  static constexpr int kBlockH = kBlockH_, kBlockT = kBlockT_, kWarps = kWarps_, kStages = kStages_;
  static constexpr int kThreads = kWarps * kvr::kWarpLanes;

  static constexpr int kHeadTiles = kBlockH / kFragmentM;
  static constexpr int kTokenTiles = kBlockT / kFragmentN;
  static constexpr int kTokenSteps = kBlockT / kFragmentK;

  static constexpr int kQkSteps = kQkDim / kFragmentK;                   // 36
  static constexpr int kWarpQkSteps = (kQkSteps + kWarps - 1) / kWarps;  // at most, of one warp

  static constexpr int kWarpDims = kCkvDim / kWarps;
  static constexpr int kDimTiles = kWarpDims / kFragmentN;

  // Query and output together take 25 * kBlockH / kWarps registers of a thread. Beyond 100 the
  // query moves to shared memory.
  static constexpr bool kQueryInRegisters = kBlockH <= 4 * kWarps;

  static_assert(kBlockH % kFragmentM == 0 && kBlockT % kFragmentK == 0);
  static_assert(kStages >= 2, "one stage is computed on while another is filled");
  static_assert(kThreads % kBlockT == 0 && kWarpDims % (2 * kFragmentN) == 0);
  static_assert(kCkvDim / kCopy % (kThreads / kBlockT) == 0, "threads share a row's copies evenly");

  // Where the query does not fit into registers its fragments follow this struct: uint4
  // [kQkSteps][kHeadTiles][32 lanes], 1152 bytes a head. A change here changes the manifest's smem.
  struct Shared {
    __nv_bfloat16 rows[kStages][kBlockT][kRowStride];  // ckv 512 | kpe 64 | pad 8
    float4 partial_scores[kWarps][kHeadTiles][kTokenTiles][kvr::kWarpLanes];  // as fragments
    int kept[kStages][kBlockT];                                               // 0: a padding slot
  };
  static_assert(sizeof(Shared) ==
                kStages * kBlockT * (kRowStride * 2 + 4) + kWarps * kBlockH * kBlockT * 4);
};

// Copies the KV rows that sparse_indices names into a stage of shared memory. kThreadsPerRow
// neighbouring threads share a row; the index of a tile is read one tile ahead of its copies, so
// that its latency is not added to theirs.
template <class Tile>
struct Gather {
  static constexpr int kThreadsPerRow = Tile::kThreads / Tile::kBlockT;

  const __nv_bfloat16* ckv_cache;  // [slots, 512]
  const __nv_bfloat16* kpe_cache;  // [slots, 64]
  const int* indices;              // [topk], of this token
  int topk;
  int next_index;  // of this thread's row in the next tile to copy

  KVR_DEVICE static int Row() { return static_cast<int>(threadIdx.x) / kThreadsPerRow; }

  // Slots past the end of the list are padding too.
  KVR_DEVICE int Index(int tile) const {
    const int position = tile * Tile::kBlockT + Row();
    return position < topk ? kvr::LoadReadOnly<int>(indices + position) : -1;
  }

  KVR_DEVICE void Start(int tile) { next_index = Index(tile); }

  // Starts the copies of `tile` into `stage`, without committing them. A padding row is filled
  // with zeros: 0 * NaN would survive a score of -infinity.
  KVR_DEVICE void Copy(typename Tile::Shared& shared, int stage, int tile) {
    const int row = Row(), first = static_cast<int>(threadIdx.x) % kThreadsPerRow;
    const bool keep = next_index >= 0;
    const int64_t slot = keep ? next_index : 0;
    const __nv_bfloat16* ckv = ckv_cache + slot * kCkvDim;
    const __nv_bfloat16* kpe = kpe_cache + slot * kKpeDim;
    __nv_bfloat16* to = shared.rows[stage][row];
#pragma unroll
    for (int i = 0; i < kCkvDim / kCopy; i += kThreadsPerRow) {
      const int at = (i + first) * kCopy;
      kvr::CopyAsync16(to + at, ckv + at, keep);
    }
#pragma unroll
    for (int i = 0; i < kKpeDim / kCopy; i += kThreadsPerRow) {
      const int at = (i + first) * kCopy;
      if (at < kKpeDim) kvr::CopyAsync16(to + kCkvDim + at, kpe + at, keep);
    }
    if (first == 0) shared.kept[stage][row] = keep;
    next_index = Index(tile + 1);
  }
};

}  // namespace mla
