// SPDX-License-Identifier: Apache-2.0
//
// Scores of a tile: Q K^T over all dims of a key, shared out to the warps by dims. Products of
// codes are added up over the dims that share a scale, then multiplied by it.
#pragma once

#include "tile.cuh"

namespace mla {

// The query as fragments: a lane keeps its own, in registers where they fit and else in shared
// memory, where no other lane reads them, so no barrier is needed.
template <class Tile>
struct Query {
  static constexpr int kSlots = Tile::kQueryInRegisters ? Tile::kWarpQkSteps : 1;
  uint32_t fragments[kSlots][Tile::kHeadTiles][4];
  uint4* stored;  // [kQkSteps][kHeadTiles][32 lanes]

  // The step that this warp takes in its turn `i`; it takes none if Takes says so.
  KVR_DEVICE static int Step(int i) { return i * Tile::kWarps + kvr::WarpIndex(); }
  KVR_DEVICE static bool Takes(int i) {
    return Tile::kQkSteps % Tile::kWarps == 0 || Step(i) < Tile::kQkSteps;
  }

  // Reads heads [head, head + kBlockH) of one token, zeros from num_qo_heads on.
  // q: [num_qo_heads, kKeyDims], of that token.
  KVR_DEVICE void Load(const __nv_bfloat16* q, int head, int num_qo_heads, void* shared_memory) {
    stored = static_cast<uint4*>(shared_memory);
    const int g = kvr::LaneIndex() / 4, t = kvr::LaneIndex() % 4;
#pragma unroll
    for (int i = 0; i < Tile::kWarpQkSteps; ++i) {
      if (!Takes(i)) break;
#pragma unroll
      for (int m = 0; m < Tile::kHeadTiles; ++m) {
        uint32_t a[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const int row = head + m * kFragmentM + g + (r % 2) * 8, column = 2 * t + (r / 2) * 8;
          const __nv_bfloat16* pair = q + row * kKeyDims + Step(i) * kFragmentK + column;
          a[r] = row < num_qo_heads ? kvr::LoadReadOnly<uint32_t>(pair) : 0;
        }
        if constexpr (Tile::kQueryInRegisters) {
#pragma unroll
          for (int r = 0; r < 4; ++r) fragments[i][m][r] = a[r];
        } else {
          *Stored(i, m) = make_uint4(a[0], a[1], a[2], a[3]);
        }
      }
    }
  }

  KVR_DEVICE void Fragment(int i, int m, uint32_t (&a)[4]) const {
    if constexpr (Tile::kQueryInRegisters) {
#pragma unroll
      for (int r = 0; r < 4; ++r) a[r] = fragments[i][m][r];
    } else {
      const uint4 four = *Stored(i, m);
      a[0] = four.x, a[1] = four.y, a[2] = four.z, a[3] = four.w;
    }
  }

  KVR_DEVICE uint4* Stored(int i, int m) const {
    return stored + (Step(i) * Tile::kHeadTiles + m) * kvr::kWarpLanes + kvr::LaneIndex();
  }
};

// A score fragment per 16 heads x 8 tokens of the tile (layout of D, kvr/matrix.cuh).
template <class Tile>
using Scores = float[Tile::kHeadTiles][Tile::kTokenTiles][4];

// sum += scale * products, a scale per token: column 2t and 2t + 1 of each tile.
template <class Tile>
KVR_DEVICE void AddScaled(const Scores<Tile>& products, const float* scales, Scores<Tile>& sum) {
  const int t = kvr::LaneIndex() % 4;
#pragma unroll
  for (int n = 0; n < Tile::kTokenTiles; ++n) {
    const float2 scale = kvr::Load<float2>(scales + n * kFragmentN + 2 * t);
#pragma unroll
    for (int m = 0; m < Tile::kHeadTiles; ++m) {
      sum[m][n][0] += scale.x * products[m][n][0];
      sum[m][n][1] += scale.y * products[m][n][1];
      sum[m][n][2] += scale.x * products[m][n][2];
      sum[m][n][3] += scale.y * products[m][n][3];
    }
  }
}

// This warp's part of every score of `tile`, left in shared memory. A barrier, then SumScores.
template <class Tile>
KVR_DEVICE void PartialScores(const Query<Tile>& query, const typename Tile::Widened& tile,
                              typename Tile::Shared& shared) {
  // The four 8x8 tiles of an ldmatrix: tokens 0...7 and 8...15, dims 0...7 and 8...15 of each.
  const int lane = kvr::LaneIndex();
  const int token = (lane / 16) * 8 + lane % 8, dim = (lane / 8 % 2) * 8;

  Scores<Tile> partial = {};
#pragma unroll
  for (int first = 0; first < Tile::kWarpQkSteps; first += Tile::kWarpGroupSteps) {
    if (!query.Takes(first)) break;
    Scores<Tile> products = {};
#pragma unroll
    for (int i = first; i < first + Tile::kWarpGroupSteps && i < Tile::kWarpQkSteps; ++i) {
      if (!query.Takes(i)) break;
      uint32_t q[Tile::kHeadTiles][4];
#pragma unroll
      for (int m = 0; m < Tile::kHeadTiles; ++m) query.Fragment(i, m, q[m]);
#pragma unroll
      for (int n = 0; n < Tile::kTokenTiles; n += 2) {
        uint32_t k[4];
        kvr::LoadMatrixX4(k, &tile.rows[n * kFragmentN + token][query.Step(i) * kFragmentK + dim]);
#pragma unroll
        for (int m = 0; m < Tile::kHeadTiles; ++m) {
          kvr::MmaBf16(products[m][n], q[m], k[0], k[1]);
          kvr::MmaBf16(products[m][n + 1], q[m], k[2], k[3]);
        }
      }
    }
    AddScaled<Tile>(products, tile.scales[query.Step(first) / Tile::kGroupSteps], partial);
  }
#pragma unroll
  for (int m = 0; m < Tile::kHeadTiles; ++m) {
#pragma unroll
    for (int n = 0; n < Tile::kTokenTiles; ++n) {
      const float(&d)[4] = partial[m][n];
      shared.partial_scores[kvr::WarpIndex()][m][n][lane] = make_float4(d[0], d[1], d[2], d[3]);
    }
  }
}

// Every warp adds the parts for itself, in the same order: all hold the same bits afterwards, and
// none has to wait for another's softmax.
template <class Tile>
KVR_DEVICE void SumScores(const typename Tile::Shared& shared, Scores<Tile>& scores) {
#pragma unroll
  for (int m = 0; m < Tile::kHeadTiles; ++m) {
#pragma unroll
    for (int n = 0; n < Tile::kTokenTiles; ++n) {
      float4 sum = shared.partial_scores[0][m][n][kvr::LaneIndex()];
#pragma unroll
      for (int warp = 1; warp < Tile::kWarps; ++warp) {
        const float4 part = shared.partial_scores[warp][m][n][kvr::LaneIndex()];
        sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
      }
      scores[m][n][0] = sum.x, scores[m][n][1] = sum.y;
      scores[m][n][2] = sum.z, scores[m][n][3] = sum.w;
    }
  }
}

}  // namespace mla
