// SPDX-License-Identifier: Apache-2.0
//
// The product that both expert layers are: D[kRows weight rows, kTokens], summed over the depth,
// with weights streamed through shared memory in kStages tiles of kDepth columns.
//
// Weights are read once and are nearly all of the bytes, so a block keeps (kStages - 1) tiles on
// their way; tokens' rows come from L2. Weights stay e4m3 in shared memory. An ldmatrix takes 16
// rows of 32 codes, which a warp widens to two fragments A (kvr/matrix.cuh) in registers; tokens,
// bf16 in the order of order.cuh, are the 8 columns of B.
//
// Scales stay outside: codes of one block of 128 columns are multiplied as they are, and the
// block's sum, exact in fp32 but for its additions, is scaled by what its row and its token have.
// Sums are in the order of the depth, whatever the config.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <kvr/device.cuh>

#include "order.cuh"

namespace moe {

inline constexpr int kBlock = 128;    // columns, and rows, that share a scale
inline constexpr int kTokenTile = 8;  // columns of B
inline constexpr int kRowTile = 16;   // rows of A
inline constexpr int kStep = 32;      // depth of two fragments
inline constexpr int kCopyBytes = 16;

template <int kRows_, int kTokens_, int kDepth_, int kWarps_, int kStages_>
struct Tile {
  static constexpr int kRows = kRows_, kTokens = kTokens_, kDepth = kDepth_;
  static constexpr int kWarps = kWarps_, kStages = kStages_;
  static constexpr int kThreads = kWarps * kvr::kWarpLanes;
  static constexpr int kRowTiles = kRows / kRowTile / kWarps;  // of a warp
  static constexpr int kTokenTiles = kTokens / kTokenTile;
  // Copies of a row, and of a thread and tile.
  static constexpr int kWeightPieces = kDepth / kCopyBytes, kTokenPieces = 2 * kWeightPieces;
  static constexpr int kWeightCopies = kRows * kWeightPieces / kThreads;
  static constexpr int kTokenCopies = kTokens * kTokenPieces / kThreads;

  static_assert(kRows % (kRowTile * kWarps) == 0 && kDepth % kBlock == 0 && kStages >= 2);
  static_assert(kRows * kWeightPieces % kThreads == 0 && kTokens * kTokenPieces % kThreads == 0 &&
                    kThreads % kTokenPieces == 0,
                "threads share the copies evenly");

  // A pad of one copy: the 8 rows of an ldmatrix then touch each bank once (144 or 272 bytes, 272
  // or 528, are 4 banks more than a multiple of 32).
  struct Stage {
    unsigned char weights[kRows][kDepth + kCopyBytes];
    unsigned char tokens[kTokens][2 * kDepth + kCopyBytes];
  };
};

// Of a weight that nobody reads a second time: the first to leave L2.
KVR_DEVICE void CopyOnce(void* shared, const void* global, bool valid) {
#if defined(KVR_HOST)
  kvr::CopyAsync16(shared, global, valid);
#else
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;\n" : "=l"(policy));
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;\n" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
               "l"(global), "r"(valid ? kCopyBytes : 0), "l"(policy)
               : "memory");
#endif
}

// [tile of rows][tile of tokens]: D, layout of kvr/matrix.cuh, rows by tokens.
template <class Tile>
using Sums = float[Tile::kRowTiles][Tile::kTokenTiles][4];

// sums += A B over `depth` columns, a multiple of 128.
//
// weight(r), token(r): where row r of a stage begins in global memory; token null: there is none
// (zeros). begin(): called once the first copies are on their way; whatever it writes to shared
// memory is there for scales. scales[half]: [depth / 128][kTokens], in shared memory, of the first
// and the last 8 rows of each tile of 16. Leaves all copies done and no thread in shared memory.
template <class Tile, class Weight, class Token, class Begin>
KVR_DEVICE void Multiply(typename Tile::Stage* stages, const Weight& weight, const Token& token,
                         const Begin& begin, const float* const (&scales)[2], int depth,
                         Sums<Tile>& sums) {
  constexpr int kThreads = Tile::kThreads;
  const int thread = static_cast<int>(threadIdx.x);
  const unsigned char* weight_from[Tile::kWeightCopies];
  const unsigned char* token_from[Tile::kTokenCopies];
  // A thread's copies are of one column each, in rows that are so far apart.
  constexpr int kWeightsApart = kThreads / Tile::kWeightPieces;
  constexpr int kTokensApart = kThreads / Tile::kTokenPieces;
  const int weight_row = thread / Tile::kWeightPieces, token_row = thread / Tile::kTokenPieces;
  const int weight_byte = thread % Tile::kWeightPieces * kCopyBytes;
  const int token_byte = thread % Tile::kTokenPieces * kCopyBytes;
#pragma unroll
  for (int i = 0; i < Tile::kWeightCopies; ++i) {
    weight_from[i] =
        reinterpret_cast<const unsigned char*>(weight(weight_row + i * kWeightsApart)) +
        weight_byte;
  }
#pragma unroll
  for (int i = 0; i < Tile::kTokenCopies; ++i) {
    token_from[i] = reinterpret_cast<const unsigned char*>(token(token_row + i * kTokensApart));
  }

  const int tiles = (depth + Tile::kDepth - 1) / Tile::kDepth;
  const auto copy = [&](int tile, int stage) {
    const int at = tile * Tile::kDepth;
    const bool inside = at + weight_byte < depth;
#pragma unroll
    for (int i = 0; i < Tile::kWeightCopies; ++i) {
      CopyOnce(&stages[stage].weights[weight_row + i * kWeightsApart][weight_byte],
               inside ? weight_from[i] + at : nullptr, inside);
    }
#pragma unroll
    for (int i = 0; i < Tile::kTokenCopies; ++i) {
      const bool valid = token_from[i] != nullptr && 2 * at + token_byte < 2 * depth;
      kvr::CopyAsync16(&stages[stage].tokens[token_row + i * kTokensApart][token_byte],
                       valid ? token_from[i] + 2 * at + token_byte : nullptr, valid);
    }
  };
#pragma unroll
  for (int ahead = 0; ahead < Tile::kStages - 1; ++ahead) {
    if (ahead < tiles) copy(ahead, ahead);
    kvr::CommitCopies();
  }
  begin();

  const int lane = kvr::LaneIndex(), first_row = kvr::WarpIndex() * Tile::kRowTiles * kRowTile;
  int stage = 0, filling = Tile::kStages - 1;
  for (int tile = 0; tile < tiles; ++tile) {
    kvr::WaitForCopies<Tile::kStages - 2>();
    __syncthreads();  // the tile has arrived, and everybody is done with the one before
    if (tile + Tile::kStages - 1 < tiles) copy(tile + Tile::kStages - 1, filling);
    kvr::CommitCopies();  // perhaps empty: the count of groups must not depend on the tile

    const auto& here = stages[stage];
#pragma unroll 1
    for (int first = 0; first < Tile::kDepth; first += kBlock) {
      const int block = (tile * Tile::kDepth + first) / kBlock;
      if (block * kBlock >= depth) break;
      Sums<Tile> products = {};
#pragma unroll
      for (int k = first; k < first + kBlock; k += kStep) {
        uint32_t b[Tile::kTokenTiles][4];  // of two fragments
#pragma unroll
        for (int tokens = 0; tokens < Tile::kTokenTiles; ++tokens) {
          kvr::LoadMatrixX4(
              b[tokens],
              &here.tokens[tokens * kTokenTile + lane % 8][2 * k + lane / 8 * kCopyBytes]);
        }
#pragma unroll
        for (int rows = 0; rows < Tile::kRowTiles; ++rows) {
          uint32_t codes[4];  // first and last 8 rows of 16 columns, and of the next 16
          kvr::LoadMatrixX4(
              codes,
              &here.weights[first_row + rows * kRowTile + lane % 16][k + lane / 16 * kCopyBytes]);
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            uint32_t a[4];
            Widen(codes[2 * i], a[0], a[2]);
            Widen(codes[2 * i + 1], a[1], a[3]);
#pragma unroll
            for (int tokens = 0; tokens < Tile::kTokenTiles; ++tokens) {
              kvr::MmaBf16(products[rows][tokens], a, b[tokens][2 * i], b[tokens][2 * i + 1]);
            }
          }
        }
      }
#pragma unroll
      for (int tokens = 0; tokens < Tile::kTokenTiles; ++tokens) {
        const int at = block * Tile::kTokens + tokens * kTokenTile + lane % 4 * 2;
        const float2 upper = kvr::Load<float2>(scales[0] + at);
        const float2 lower = kvr::Load<float2>(scales[1] + at);
#pragma unroll
        for (int rows = 0; rows < Tile::kRowTiles; ++rows) {
          float(&sum)[4] = sums[rows][tokens];
          const float(&product)[4] = products[rows][tokens];
          sum[0] += product[0] * upper.x;
          sum[1] += product[1] * upper.y;
          sum[2] += product[2] * lower.x;
          sum[3] += product[3] * lower.y;
        }
      }
    }
    filling = stage;
    stage = stage + 1 == Tile::kStages ? 0 : stage + 1;
  }
  kvr::WaitForCopies<0>();
  __syncthreads();
}

}  // namespace moe
