// SPDX-License-Identifier: Apache-2.0
//
// A multiplying warp. Weights are the 16 rows of A, tokens the 8 columns of B: most experts have
// few tokens. A product's depth may be taken in any order, as long as A and B agree; so a lane
// takes 8 neighbouring values of its row and of its token, one 16-byte access each, for two
// fragments. Tokens come from L2, and stay in registers while the warp's next piece has them, too;
// those of another piece are asked for before the current one is multiplied.
//
// A hidden layer says of itself whether it is there: moe_prepare fills it with kAbsent, and it is
// written and read 16 bytes at a time. So nobody counts, and nobody waits for stores to arrive.
// Each 16 bytes are one access to their place, relaxed and of the GPU's scope (b128: the four parts
// of a vector would be four): they hold the flag and all that it stands for, so there is nothing to
// order, and who has seen them once sees them again. kAbsent is of this launch: moe_prepare begins
// after the launch before has ended, and no thread looks at the hidden layer before WaitForPrimary.
#pragma once

#include <cuda_bf16.h>

#include <kvr/device.cuh>
#include <kvr/hopper.cuh>

#include "meeting.cuh"
#include "ring.cuh"
#include "table.cuh"
#include "work.cuh"

namespace moe {

inline constexpr int kTokenTile = 8;   // tokens of a fragment: columns of B
inline constexpr int kDepthStep = 32;  // depth of two fragments
inline constexpr int kLaneDepth = 8;   // of them, in one lane

// In the first of the four words of 16 bytes of the hidden layer: they are not there yet. As
// numbers, two NaNs that arithmetic does not give.
inline constexpr uint32_t kAbsent = 0xffffffff;

KVR_DEVICE void Exchange(uint4 (&pair)[2]) {
  const uint4 first = pair[0];
  pair[0] = pair[1];
  pair[1] = first;
}

// x, h: as moe_stream has them. A lane is row g (and g + 8) of A and token g of B.
template <int kWarps, int kColumns, int kTokens, class Sink, class Meeting>
struct Multiplier {
  static constexpr int kTiles = kTokens / kTokenTile, kSteps = kColumns / kDepthStep;
  static constexpr int kSums = 4;  // chains of products, so that they need not wait for each other
  static_assert(kSteps % 2 == 0 && kTiles <= 2);

  const __nv_bfloat16* x;
  const __nv_bfloat16* h;  // written meanwhile, by all blocks
  const Table& table;
  int hidden, inner;
  Sink sink;
  Meeting& meeting;

  Piece at{};
  int key = 0;  // of its tokens
  float4 sums[kTiles];

  KVR_DEVICE void Run(int finishers) {
    uint4 one[kSteps], other[kSteps];
    at = sink.AwaitFirst();
    if (at.kind != kEnd) {
      key = Key(at);
      Load(at, 0, one);
#pragma unroll 1
      while (RunWith(one, other) && RunWith(other, one)) {
      }
    }
    meeting.LeaveEnd(at, finishers);
  }

 private:
  KVR_DEVICE int Tokens(const Piece& piece) const {
    const int first = table.segment_first[piece.segment] + piece.pass * kTokens;
    return min(kTokens, table.segment_first[piece.segment + 1] - first);
  }

  // Pieces of one key have the same tokens; below 0: no other has.
  KVR_DEVICE int Key(const Piece& piece) const {
    constexpr int kMostPieces = 1 << 12;  // of a tile; pairs are as many at most (variant.toml)
    if (piece.kind != kGateUp) return -1;
    return (table.segment_first[piece.segment] + piece.pass * kTokens) * kMostPieces + piece.piece;
  }

  KVR_DEVICE bool Same(int other) const { return other >= 0 && other == key; }

  // Tokens and columns that there are not repeat the last: the results of those are not used, and
  // the weights of these are zeros.
  KVR_DEVICE void Load(const Piece& piece, int tile, uint4 (&tokens)[kSteps]) const {
    const int lane = kvr::LaneIndex(), g = lane / 4, t = lane % 4;
    const int first = table.segment_first[piece.segment] + piece.pass * kTokens;
    const int last_pair = table.segment_first[piece.segment + 1] - 1;
    const int pair = min(first + tile * kTokenTile + g, last_pair);
    const int column = piece.piece * kColumns + t * kLaneDepth;
    if (piece.kind == kGateUp) {
      const __nv_bfloat16* const values = x + int64_t{table.pair_token[pair]} * hidden;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        tokens[step] =
            kvr::Load<uint4>(values + min(column + step * kDepthStep, hidden - kLaneDepth));
      }
    } else {
      const __nv_bfloat16* const values = h + int64_t{pair} * inner;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        tokens[step] =
            kvr::LoadRelaxed(values + min(column + step * kDepthStep, inner - kLaneDepth));
      }
    }
  }

  // Until all of the current piece's tokens are there.
  KVR_DEVICE void Await(int tile, uint4 (&tokens)[kSteps]) const {
    if (at.kind == kGateUp) return;
    while (true) {
      bool absent = false;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) absent |= tokens[step].x == kAbsent;
      if (!__any_sync(kvr::kAllLanes, absent)) return;
      Load(at, tile, tokens);
    }
  }

  // The current piece times 8 tokens. Rows lie a multiple of 128 bytes apart, and the eight lanes
  // whose reads share an access of shared memory have two neighbouring rows; odd ones read the
  // halves of 128 bytes in the other order, or both rows would be in the same banks.
  KVR_DEVICE void Product(const uint4 (&tokens)[kSteps], float4& sum) const {
    const int lane = kvr::LaneIndex(), g = lane / 4, t = lane % 4;
    const bool swapped = g % 2 != 0;
    float parts[kSums][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; step += 2) {
      const int column = step * kDepthStep + t * kLaneDepth;
      const int near = column + (swapped ? kDepthStep : 0);
      const int far = column + (swapped ? 0 : kDepthStep);
      uint4 upper[2] = {sink.Values(g, near), sink.Values(g, far)};
      uint4 lower[2] = {sink.Values(g + 8, near), sink.Values(g + 8, far)};
      if (swapped) {
        Exchange(upper);
        Exchange(lower);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4 &u = upper[i], &l = lower[i], &values = tokens[step + i];
        const uint32_t a[2][4] = {{u.x, l.x, u.y, l.y}, {u.z, l.z, u.w, l.w}};
        kvr::MmaBf16(parts[2 * i], a[0], values.x, values.y);
        kvr::MmaBf16(parts[2 * i + 1], a[1], values.z, values.w);
      }
    }
    if (at.piece < kWarps) sum = float4{};  // the warp's first piece of the turn
    sum.x += (parts[0][0] + parts[1][0]) + (parts[2][0] + parts[3][0]);
    sum.y += (parts[0][1] + parts[1][1]) + (parts[2][1] + parts[3][1]);
    sum.z += (parts[0][2] + parts[1][2]) + (parts[2][2] + parts[3][2]);
    sum.w += (parts[0][3] + parts[1][3]) + (parts[2][3] + parts[3][3]);
  }

  // Pieces whose tokens are in `own`; true: the next one's are in `next`; false: there is none.
  KVR_DEVICE bool RunWith(uint4 (&own)[kSteps], uint4 (&next)[kSteps]) {
#pragma unroll 1
    while (true) {
      const bool second = kTiles > 1 && Tokens(at) > kTokenTile;
      Piece after{};
      int after_key = 0;
      bool posted = sink.NextIsPosted(), fetched = false;
      if (second) {
        Load(at, 1, next);
      } else if (posted) {
        after = sink.Next();
        if (after.kind != kEnd) {
          after_key = Key(after);
          if (!Same(after_key)) {
            Load(after, 0, next);
            fetched = true;
          }
        }
      }
      Await(0, own);
      sink.Wait();
      Product(own, sums[0]);
      if (second) {
        Await(1, next);
        __syncwarp();  // reads the weights again: not worth 64 registers
        Product(next, sums[kTiles - 1]);
      }
      sink.Release();
      const int pieces = ((at.kind == kGateUp ? hidden : inner) + kColumns - 1) / kColumns;
      if (at.piece + kWarps >= pieces) meeting.Leave(at, min(pieces, kWarps), sums);
      while (!posted) posted = sink.NextIsPosted();
      after = sink.Next();
      sink.Advance();
      at = after;
      if (at.kind == kEnd) return false;
      if (!fetched) {
        after_key = Key(at);
        if (!Same(after_key)) {
          Load(at, 0, next);
          fetched = true;
        }
      }
      if (!fetched) continue;
      key = after_key;
      return true;
    }
  }
};

}  // namespace moe
