// SPDX-License-Identifier: Apache-2.0
//
// A multiplying warp. Weights are the 16 rows of A, tokens the 8 columns of B: most experts have
// few tokens. A product's depth may be taken in any order, as long as A and B agree; so a lane
// takes 8 neighbouring values of its row and of its token, one 16-byte access each, for two
// fragments. Tokens come from L2, and stay in registers while the warp's next tile has them, too.
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

// Which leading segments are known to have their hidden layer.
struct Readiness {
  const int* done;  // [num_experts]: gate_up turns of a segment that are done
  const Table& table;
  int tiles;   // of a segment
  int tokens;  // of a pass
  int ready = 0;

  // A lane looks at one segment, so that one look tells of 32.
  KVR_DEVICE void WaitFor(int segment) {
#pragma unroll 1
    while (ready <= segment) {
      const int own = ready + kvr::LaneIndex();
      bool there = false;
      if (own < *table.segments) {
        const int count = table.segment_first[own + 1] - table.segment_first[own];
        there = kvr::LoadAcquire(done + own) == tiles * ((count + tokens - 1) / tokens);
      }
      const unsigned waiting = ~__ballot_sync(kvr::kAllLanes, there);
      ready += waiting == 0 ? kvr::kWarpLanes : __ffs(waiting) - 1;
    }
    __syncwarp();
  }
};

KVR_DEVICE void Exchange(uint4 (&pair)[2]) {
  const uint4 first = pair[0];
  pair[0] = pair[1];
  pair[1] = first;
}

// x, h, done: as moe_stream has them. A lane is row g (and g + 8) of A and token g of B.
// kHalves: rows lie a multiple of 128 bytes apart, and the eight lanes whose reads share an access
// of shared memory have two neighbouring rows; unless odd ones read the halves of 128 bytes in the
// other order, both rows are in the same banks.
template <int kWarps, int kColumns, int kStages, int kTokens, int kHalves, class Walk, class Ring,
          class Meeting>
KVR_DEVICE void Multiply(const __nv_bfloat16* x, const __nv_bfloat16* h, const int* done,
                         const Table& table, Walk& walk, Ring& ring, Meeting& meeting,
                         int finishers) {
  constexpr int kTiles = kTokens / kTokenTile, kSteps = kColumns / kDepthStep;
  static_assert(kSteps % 2 == 0);
  const int lane = kvr::LaneIndex(), g = lane / 4, t = lane % 4;
  const bool swapped = kHalves != 0 && g % 2 != 0;
  Readiness readiness{done, table, (walk.inner + kTileInner - 1) / kTileInner, kTokens};
  float4 sums[kTiles];
  uint4 b[kSteps];
  int held = -1;  // what is in b: first pair and piece, of gate_up
#pragma unroll 1
  for (int filled = 0;; ++filled) {
    const bool full = filled >= kStages;     // until then, there is nothing to multiply
    if (filled == kStages) __syncthreads();  // pairs are in their places
    walk.Next();
    Piece at{};
    if (full) {
      at = ring.Current();
      if (at.kind == kEnd) break;
      const bool gate_up = at.kind == kGateUp;
      const int first = table.segment_first[at.segment] + at.pass * kTokens;
      const int tokens = min(kTokens, table.segment_first[at.segment + 1] - first);
      if (!gate_up) readiness.WaitFor(at.segment);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (tile > 0 && tile * kTokenTile >= tokens) break;
        if (tile > 0) __syncwarp();  // reads the weights again: not worth 64 registers
        constexpr int kMostPieces = 1 << 12;
        const int key = gate_up && tokens <= kTokenTile ? first * kMostPieces + at.piece : -1;
        if (key < 0 || key != held) {
          held = key;
          // Tokens and columns that there are not repeat the last: the results of those are not
          // used, and the weights of these are zeros.
          const int pair = first + min(tile * kTokenTile + g, tokens - 1);
          const int depth = gate_up ? walk.hidden : walk.inner;
          const int column = at.piece * kColumns + t * kLaneDepth, last = depth - kLaneDepth;
          const __nv_bfloat16* const values =
              gate_up ? x + int64_t{table.pair_token[pair]} * depth : h + int64_t{pair} * depth;
#pragma unroll
          for (int step = 0; step < kSteps; ++step) {
            b[step] = kvr::Load<uint4>(values + min(column + step * kDepthStep, last));
          }
        }
        if (tile == 0) ring.Wait();
        float even[4] = {}, odd[4] = {};  // of a lane's lower and higher values
#pragma unroll
        for (int step = 0; step < kSteps; step += 2) {
          const int column = step * kDepthStep + t * kLaneDepth;
          const int near = column + (swapped ? kDepthStep : 0);
          const int far = column + (swapped ? 0 : kDepthStep);
          uint4 upper[2] = {ring.Values(g, near), ring.Values(g, far)};
          uint4 lower[2] = {ring.Values(g + 8, near), ring.Values(g + 8, far)};
          if (swapped) {
            Exchange(upper);
            Exchange(lower);
          }
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const uint4 &u = upper[i], &l = lower[i], &values = b[step + i];
            const uint32_t a[2][4] = {{u.x, l.x, u.y, l.y}, {u.z, l.z, u.w, l.w}};
            kvr::MmaBf16(even, a[0], values.x, values.y);
            kvr::MmaBf16(odd, a[1], values.z, values.w);
          }
        }
        float4& sum = sums[tile];
        if (at.piece < kWarps) sum = float4{};  // the warp's first piece of the turn
        sum.x += even[0] + odd[0];
        sum.y += even[1] + odd[1];
        sum.z += even[2] + odd[2];
        sum.w += even[3] + odd[3];
      }
    }
    ring.Fill(walk.At());
    if (!full) continue;
    const int pieces = walk.Pieces(at.kind);
    if (at.piece + kWarps >= pieces) meeting.Leave(at, min(pieces, kWarps), sums);
  }
  meeting.LeaveEnd(ring.Current(), finishers);
}

}  // namespace moe
