// SPDX-License-Identifier: Apache-2.0
//
// The shape of a block's work, its shared memory, and how KV rows get there: gathered as they are,
// then widened to bf16.
//
// Codes are widened without their scales: a code is exact in bf16, times a scale it need not be.
// The scales multiply sums of products instead, in fp32 (scores.cuh), and the probabilities
// (softmax.cuh).
#pragma once

#include <cuda_bf16.h>

#include <kvr/device.cuh>

#include "layout.cuh"

namespace mla {

// Tensor-core fragments (kvr/matrix.cuh): 16 heads x 8 tokens (or dims), 16 deep.
inline constexpr int kFragmentM = 16, kFragmentN = 8, kFragmentK = 16;

// Elements between rows of widened keys. The pad of 16 bytes leaves 4 banks more than a multiple of
// 32, so the 8 rows of an ldmatrix tile touch each bank once.
inline constexpr int kRowStride = kKeyDims + 8;

// A block scores kBlockH heads against kBlockT tokens at a time, with kWarps warps. Two tiles are
// widened, one in use and the next in the making; up to kStages further ones are on their way.
//
// Scores: every warp takes all heads and tokens of the tile, but only every kWarps-th 16-deep step
// of the dims; the warps' partial sums are added through shared memory.
// Output: every warp takes all heads and tokens, and 512 / kWarps of the dims.
template <int kBlockH_, int kBlockT_, int kWarps_, int kStages_>
struct Tile {
  static constexpr int kBlockH = kBlockH_, kBlockT = kBlockT_, kWarps = kWarps_, kStages = kStages_;
  static constexpr int kThreads = kWarps * kvr::kWarpLanes;

  static constexpr int kHeadTiles = kBlockH / kFragmentM;
  static constexpr int kTokenTiles = kBlockT / kFragmentN;
  static constexpr int kTokenSteps = kBlockT / kFragmentK;

  static constexpr int kQkSteps = kKeyDims / kFragmentK;
  static constexpr int kWarpQkSteps = (kQkSteps + kWarps - 1) / kWarps;  // at most, of one warp
  // Steps of a warp that share a scale: they follow each other.
  static constexpr int kGroupSteps = kGroupDims / kFragmentK;
  static constexpr int kWarpGroupSteps = kGroupSteps > kWarps ? kGroupSteps / kWarps : 1;

  static constexpr int kWarpDims = kValueDims / kWarps;
  static constexpr int kDimTiles = kWarpDims / kFragmentN;
  // Groups of a warp's dims, and output tiles of each.
  static constexpr int kWarpGroups = kWarpDims > kGroupDims ? kWarpDims / kGroupDims : 1;
  static constexpr int kGroupDimTiles = kDimTiles / kWarpGroups;

  static constexpr int kThreadsPerRow = kThreads / kBlockT;
  static constexpr int kThreadPieces = (kPieces + kThreadsPerRow - 1) / kThreadsPerRow;

  // Query and output together take about 25 * kBlockH / kWarps registers of a thread. Beyond 100
  // the query moves to shared memory.
  static constexpr bool kQueryInRegisters = kBlockH <= 4 * kWarps;

  static_assert(kBlockH % kFragmentM == 0 && kBlockT % kFragmentK == 0);
  static_assert(kThreads % kBlockT == 0 && kWarpDims % (2 * kFragmentN) == 0);
  static_assert(kGroupSteps % kWarps == 0 || kWarps % kGroupSteps == 0);
  static_assert(kWarpDims % kGroupDims == 0 || kGroupDims % kWarpDims == 0);

  // A tile as it is computed on.
  struct Widened {
    __nv_bfloat16 rows[kBlockT][kRowStride];  // codes | RoPE | pad
    float scales[kGroups][kBlockT];
    int kept[kBlockT];  // 0: padding
  };
  // Where the query does not fit into registers its fragments follow this struct: uint4
  // [kQkSteps][kHeadTiles][32 lanes], 2 * kKeyDims bytes a head. A change here changes the
  // manifest's smem.
  struct Shared {
    Widened tiles[2];
    uint4 raw[kStages][kThreadPieces][kThreads];  // each thread's own pieces
    float4 partial_scores[kWarps][kHeadTiles][kTokenTiles][kvr::kWarpLanes];  // as fragments
  };
  static_assert(sizeof(Widened) == kBlockT * (kRowStride * 2 + kGroups * 4 + 4));
  static_assert(sizeof(Shared) == 2 * sizeof(Widened) + kStages * kThreadPieces * kThreads * 16 +
                                      kWarps * kBlockH * kBlockT * 4);
};

// One of the two caches, with a token's list of its slots.
struct List {
  const unsigned char* kv_cache;
  const int* indices;  // of this token
  int page_size;
  int length;  // entries that count

  KVR_DEVICE List(const unsigned char* cache, const int* all_indices, const int* lengths,
                  int slots_per_page, int topk, int64_t token)
      : kv_cache(cache), indices(all_indices + token * topk), page_size(slots_per_page) {
    length = lengths == nullptr ? topk : min(kvr::LoadReadOnly<int>(lengths + token), topk);
  }
  template <class Tile>
  KVR_DEVICE int Tiles() const {
    return (max(length, 0) + Tile::kBlockT - 1) / Tile::kBlockT;
  }
};

// Brings the rows that the lists name into shared memory, those of the second list in tiles after
// the first one's. kThreadsPerRow neighbouring threads share a row. A thread widens what it has
// copied itself, so raw rows need no barrier; the index of a tile is read one tile ahead of its
// copies, so that its latency is not added to theirs.
template <class Tile>
struct Gather {
  List first_list, second_list;
  int first_tiles;  // of the first list
  int states;       // two bits per stage: is there a row, and is its slot odd
  int next_slot;    // of this thread's row in the next tile to copy

  KVR_DEVICE Gather(const List& first, const List& second)
      : first_list(first),
        second_list(second),
        first_tiles(first.template Tiles<Tile>()),
        states(0),
        next_slot(-1) {}

  KVR_DEVICE static int Row() { return static_cast<int>(threadIdx.x) / Tile::kThreadsPerRow; }
  // This thread's piece of its row in its turn `i`; there may be none so high.
  KVR_DEVICE static int Piece(int i) {
    return i * Tile::kThreadsPerRow + static_cast<int>(threadIdx.x) % Tile::kThreadsPerRow;
  }

  // A copy: which of two references it is would have to be decided in memory.
  KVR_DEVICE List ListOf(int tile) const {
    List list = first_list;
    if (tile >= first_tiles) list = second_list;
    return list;
  }

  // Of this thread's row; negative where there is none. What lies beyond a length is not read.
  KVR_DEVICE int Slot(int tile) const {
    const List list = ListOf(tile);
    const int place = (tile < first_tiles ? tile : tile - first_tiles) * Tile::kBlockT + Row();
    return place < list.length ? kvr::LoadReadOnly<int>(list.indices + place) : -1;
  }

  KVR_DEVICE void Start(int tile) { next_slot = Slot(tile); }

  // Starts the copies of `tile` into `stage`, without committing them. A padding row is filled
  // with zeros: 0 * NaN would survive a score of -infinity.
  KVR_DEVICE void Copy(typename Tile::Shared& shared, int stage, int tile) {
    const List list = ListOf(tile);
    const bool keep = next_slot >= 0;
    const int slot = keep ? next_slot : 0;
    const RowAddress row(list.kv_cache, keep ? list.page_size : 1, slot);
#pragma unroll 2  // all of them would take registers that spill
    for (int i = 0; i < Tile::kThreadPieces; ++i) {
      if (Piece(i) < kPieces) {
        kvr::CopyAsync16(&shared.raw[stage][i][threadIdx.x], row.Piece(Piece(i)), keep);
      }
    }
    const int state = static_cast<int>(keep) + slot % 2 * 2;
    states = (states & ~(3 << 2 * stage)) | state << 2 * stage;
    next_slot = Slot(tile + 1);
  }

  // Widens this thread's pieces, whose copies have been waited for, from `stage` into `to`.
  KVR_DEVICE void Widen(const typename Tile::Shared& shared, int stage,
                        typename Tile::Widened& to) const {
#pragma unroll
    for (int i = 0; i < Tile::kThreadPieces; ++i) {
      const int piece = Piece(i);
      const uint4* raw = &shared.raw[stage][i][threadIdx.x];
      if (piece < kCodePieces) {
        // Neighbours write 32 bytes apart: were all to begin with their lower half, 8 lanes would
        // meet in 16 of the 32 banks.
        const bool high_first = Tile::kThreadsPerRow >= 8 && piece / 4 % 2 == 1;
        const uint4 codes = *raw;
        __nv_bfloat16* dims = &to.rows[Row()][piece * kPiece];
#pragma unroll
        for (int turn = 0; turn < 2; ++turn) {
          const int half = turn ^ static_cast<int>(high_first);
          uint32_t low[2], high[2];
          kvr::E4m3x4ToBf16(half == 0 ? codes.x : codes.z, low);
          kvr::E4m3x4ToBf16(half == 0 ? codes.y : codes.w, high);
          kvr::Store<uint4>(dims + half * (kPiece / 2),
                            make_uint4(low[0], low[1], high[0], high[1]));
        }
      } else if (piece < kCodePieces + kRopePieces) {
        kvr::Store<uint4>(&to.rows[Row()][kCodes + (piece - kCodePieces) * (kPiece / 2)], *raw);
      } else if (piece < kPieces) {
        const RowScales scales(raw, states >> (2 * stage + 1) & 1);
#pragma unroll
        for (int group = 0; group < kGroups - 1; ++group) to.scales[group][Row()] = scales[group];
        to.scales[kGroups - 1][Row()] = 1;
        to.kept[Row()] = states >> 2 * stage & 1;
      }
    }
  }
};

}  // namespace mla
