// SPDX-License-Identifier: Apache-2.0
//
// A multiplying warp. Weights are the 16 rows of A, tokens the 8 columns of B: most experts have
// few tokens. A product's depth may be taken in any order, as long as A and B agree; so a lane
// takes 16 neighbouring codes of its row, one 16-byte access, widens them in registers (widen.cuh),
// and they meet 16 neighbouring bf16 values of its token in four fragments. Tokens come from L2.
//
// Scales stay outside: the product over one block of 128 columns, exact in fp32 but for its
// additions, is scaled by what its row and its token have.
#pragma once

#include <cuda_bf16.h>

#include <kvr/device.cuh>
#include <kvr/hopper.cuh>

#include "meeting.cuh"
#include "ring.cuh"
#include "table.cuh"
#include "widen.cuh"
#include "work.cuh"

namespace moe {

inline constexpr int kBlock = 128;     // columns, and rows, that share a scale
inline constexpr int kDepthStep = 64;  // depth of four fragments
inline constexpr int kLaneDepth = 16;  // of them, in one lane

// What the layers read beside the weights, in global memory.
struct Layers {
  const __nv_bfloat16* x;  // [num_tokens, hidden]
  const float* x_scale;    // [hidden / 128, num_tokens]
  const __nv_bfloat16* h;  // [pairs, inner]
  const float* w1_scale;   // [num_local, 2 * inner / 128, hidden / 128]: up rows, then gate rows
  const float* w2_scale;   // [num_local, hidden / 128, inner / 128]
  int num_tokens, hidden, inner;
};

// Which leading segments are known to have their hidden layer. Their values are ordinary stores of
// a finishing warp, __syncwarp, then one lane's AddRelease; here some lane loads the count with
// acquire, and __syncwarp makes what it saw known to the lanes that read. Counts are of this
// launch: moe_prepare clears them, after the launch before has ended.
struct Readiness {
  const int* done;  // [num_local]: gate_up turns of a segment that are done
  const Table& table;
  int tiles;  // of a segment
  int ready = 0;

  // A lane looks at one segment, so that one look tells of 32.
  KVR_DEVICE void WaitFor(int segment) {
#pragma unroll 1
    while (ready <= segment) {
      const int own = ready + kvr::LaneIndex();
      bool there = false;
      if (own < *table.segments) {
        const int count = table.segment_first[own + 1] - table.segment_first[own];
        there = kvr::LoadAcquire(done + own) == tiles * ((count + kTokenTile - 1) / kTokenTile);
      }
      const unsigned waiting = ~__ballot_sync(kvr::kAllLanes, there);
      ready += waiting == 0 ? kvr::kWarpLanes : __ffs(waiting) - 1;
    }
    __syncwarp();
  }
};

// What a lane multiplies a block of 128 columns with: its token's values, and the scales of its
// part of D: rows g and g + 8, tokens 2t and 2t + 1.
struct Operand {
  uint4 b[2][2];
  float upper, lower, even, odd;
};

// Where a piece's operand is.
struct Source {
  const __nv_bfloat16* values;         // of the lane's token
  const float *weight_scale, *x_even;  // of block 0; x_even null: tokens have no scale
  int lower_scale, x_odd, x_stride;    // beside weight_scale, x_even; from block to block
  int first_block, blocks;

  // A lane is row g (and g + 8) of A and token g of B. Tokens that there are not repeat the last:
  // their results are not used.
  KVR_DEVICE static Source Of(const Layers& layers, const Table& table, const Piece& at,
                              int piece_blocks) {
    const int lane = kvr::LaneIndex(), g = lane / 4, t = lane % 4;
    const int hidden_blocks = layers.hidden / kBlock, inner_blocks = layers.inner / kBlock;
    const int first = table.segment_first[at.segment] + at.pass * kTokenTile;
    const int last = min(first + kTokenTile, table.segment_first[at.segment + 1]) - 1;
    const int expert = table.segment_expert[at.segment], row_block = at.row / kBlock;
    Source source;
    source.first_block = at.piece * piece_blocks;
    if (at.kind == kGateUp) {
      source.blocks = hidden_blocks;
      source.values = layers.x + int64_t{table.pair_token[min(first + g, last)]} * layers.hidden;
      source.weight_scale =
          layers.w1_scale + (expert * 2 * inner_blocks + row_block) * hidden_blocks;
      source.lower_scale = inner_blocks * hidden_blocks;
      const int even = table.pair_token[min(first + 2 * t, last)];
      source.x_even = layers.x_scale + even;
      source.x_odd = table.pair_token[min(first + 2 * t + 1, last)] - even;
      source.x_stride = layers.num_tokens;
    } else {
      source.blocks = inner_blocks;
      source.values = layers.h + int64_t{min(first + g, last)} * layers.inner;
      source.weight_scale = layers.w2_scale + (expert * hidden_blocks + row_block) * inner_blocks;
      source.lower_scale = 0;
      source.x_even = nullptr;
      source.x_odd = source.x_stride = 0;
    }
    return source;
  }

  // Columns that there are not repeat the last block: their weights are zeros.
  KVR_DEVICE void Load(int block, Operand& to) const {
    const int at = min(first_block + block, blocks - 1);
    const __nv_bfloat16* const from = values + at * kBlock + kvr::LaneIndex() % 4 * kLaneDepth;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      to.b[half][0] = kvr::Load<uint4>(from + half * kDepthStep);
      to.b[half][1] = kvr::Load<uint4>(from + half * kDepthStep + 8);
    }
    to.upper = weight_scale[at];
    to.lower = weight_scale[at + lower_scale];
    to.even = x_even == nullptr ? 1 : x_even[at * x_stride];
    to.odd = x_even == nullptr ? 1 : x_even[at * x_stride + x_odd];
  }
};

// Operands are loaded two blocks ahead of their use, over the borders of pieces: they take L2's
// latency, which would otherwise pass between any two pieces.
template <int kWarps, int kColumns, class Walk, class Ring, class Meeting>
KVR_DEVICE void Multiply(const Layers& layers, const int* done, const Table& table, Walk& walk,
                         Ring& ring, Meeting& meeting, int stages, int finishers) {
  constexpr int kBlocks = kColumns / kBlock, kAhead = 2;
  static_assert(kBlocks % kAhead == 0);
  const int lane = kvr::LaneIndex(), g = lane / 4, t = lane % 4;
  Readiness readiness{done, table, walk.tiles.up_tiles};
#pragma unroll 1
  for (int filled = 0; filled < stages; ++filled) {
    walk.Next();
    ring.Fill(walk.At());
  }
  Operand operands[kAhead];
  Source source;
  bool loaded = false;  // the operands of the current piece's first blocks, and its source
  float4 sum{};
#pragma unroll 1
  while (true) {
    const Piece at = ring.Current();
    if (at.kind == kEnd) break;
    walk.Next();
    if (!loaded) {
      if (at.kind == kDown) readiness.WaitFor(at.segment);
      source = Source::Of(layers, table, at, kBlocks);
#pragma unroll
      for (int block = 0; block < kAhead; ++block) source.Load(block, operands[block]);
    }
    loaded = true;
    ring.Wait();
    if (at.piece < kWarps) sum = float4{};  // the warp's first piece of the turn
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      if (block + kAhead == kBlocks) {  // from here on, the next piece's operands are loaded
        const Piece next = ring.Next();
        // Waiting for a hidden layer here might be waiting for this very warp.
        loaded = next.kind == kGateUp || (next.kind == kDown && next.segment < readiness.ready);
        if (loaded) source = Source::Of(layers, table, next, kBlocks);
      }
      Operand& operand = operands[block % kAhead];
      float product[2][4] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = block * kBlock + half * kDepthStep + t * kLaneDepth;
        const uint4 upper = ring.Codes(g, column), lower = ring.Codes(g + 8, column);
        const uint32_t upper_codes[4] = {upper.x, upper.y, upper.z, upper.w};
        const uint32_t lower_codes[4] = {lower.x, lower.y, lower.z, lower.w};
        const uint4 &b0 = operand.b[half][0], &b1 = operand.b[half][1];
        const uint32_t columns[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          uint32_t a[4];
          Widen(upper_codes[i], a[0], a[2]);
          Widen(lower_codes[i], a[1], a[3]);
          kvr::MmaBf16(product[i % 2], a, columns[2 * i], columns[2 * i + 1]);
        }
      }
      const float upper = operand.upper, lower = operand.lower;
      const float even = operand.even, odd = operand.odd;
      if (loaded) source.Load((block + kAhead) % kBlocks, operand);
      sum.x += (product[0][0] + product[1][0]) * (upper * even);
      sum.y += (product[0][1] + product[1][1]) * (upper * odd);
      sum.z += (product[0][2] + product[1][2]) * (lower * even);
      sum.w += (product[0][3] + product[1][3]) * (lower * odd);
    }
    ring.Fill(walk.At());
    const int pieces = walk.Pieces(at.kind);
    if (at.piece + kWarps >= pieces) meeting.Leave(at, min(pieces, kWarps), sum);
  }
  meeting.LeaveEnd(ring.Current(), finishers);
}

}  // namespace moe
