// SPDX-License-Identifier: Apache-2.0
//
// moe_stream: both layers of all active experts of this rank in one launch, at the rate at which
// memory gives the weights. One block a multiprocessor, resident from the first byte to the last:
//
//   1. moe_prepare has routed. Every block sorts the batch by expert for itself (table.cuh): the
//      same microsecond everywhere costs less than one block that all wait for.
//   2. Tiles are dealt out by tickets, gate_up before down, which a warp of its own fetches ahead
//      (work.cuh). Weights come in pieces of 16 rows, each to the ring of the warp that will
//      multiply it (ring.cuh). The rings run on from tile to tile, and from gate_up to down:
//      second-layer weights are on their way while the hidden layer is still being made.
//   3. Multiplying warps (multiply.cuh) take weights as they arrive, widen them to bf16, tokens
//      from L2, and leave sums over their parts of the depth where finishing warps add them
//      (meeting.cuh).
//   4. A finished gate_up tile is counted for its segment; a warp that comes to a down tile waits
//      until all of the segment's are there.
//
// moe_sum adds up each token's experts, in the order of its slots: no sum depends on who came
// first.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <kvr/device.cuh>
#include <kvr/hopper.cuh>

#include "meeting.cuh"
#include "multiply.cuh"
#include "ring.cuh"
#include "table.cuh"
#include "widen.cuh"
#include "work.cuh"

// x                [num_tokens, hidden]: hidden_states as bf16 without x_scale, as widen.cuh has it
// x_scale          [hidden / 128, num_tokens]
// w1               [2 * num_local, inner, hidden]: an expert's up rows, then its gate rows
// w2               [num_local, hidden, inner]
// w1_scale, w2_scale  by blocks of 128 x 128
// alpha, beta, limit  [num_local] or null
// pair_expert      [num_tokens, top_k]: of all ranks; -1: none
// counters         [1 + num_local]: zeros; tickets taken, then turns done of each segment
// h                [pairs, inner]: hidden layer, by expert, then token, likewise
// partial          [pairs, hidden]: second layer, fp32
// pair_position    [num_tokens, top_k]: a pair's row of `partial`, or -1
// Grid: as many blocks as multiprocessors, at most.
template <int kWarps, int kFinishers, int kColumns, int kStages, int kSlots, int kRun>
__global__ void __launch_bounds__((kWarps + kFinishers + 1) * kvr::kWarpLanes, 1)
    moe_stream(const __nv_bfloat16* x, const float* x_scale, const __grid_constant__ CUtensorMap w1,
               const __grid_constant__ CUtensorMap w2, const float* w1_scale, const float* w2_scale,
               const float* alpha, const float* beta, const float* limit, const int* pair_expert,
               int* counters, __nv_bfloat16* h, float* partial, int* pair_position, int num_tokens,
               int top_k, int local_offset, int num_local, int hidden, int inner) {
  constexpr int kAhead = 1;  // tickets fetched beyond those that warps have asked for
  static_assert(kSlots % kFinishers == 0, "a finishing warp sees every turn of its slots");
  using Ring = moe::Ring<kColumns, kStages>;
  using Meeting = moe::Meeting<kWarps, kSlots>;
  using Tickets = moe::Tickets<kAhead>;
  extern __shared__ __align__(128) unsigned char shared_memory[];
  auto* const rings = reinterpret_cast<typename Ring::Storage*>(shared_memory);
  auto* const meetings = reinterpret_cast<typename Meeting::Storage*>(rings + kWarps);
  auto* const ticket_storage = reinterpret_cast<typename Tickets::Storage*>(meetings + 1);
  moe::Table table(ticket_storage + 1, num_tokens, num_local, top_k);
  const int warp = kvr::WarpIndex(), lane = kvr::LaneIndex();

  // 1. The table.
  if (warp < kWarps) {
    if (lane == 0) Ring::Init(rings[warp]);
  } else if (warp == kWarps) {
    if (lane == 0) Meeting::Init(*meetings);
  } else if (warp == kWarps + kFinishers && lane == 0) {
    Tickets::Init(*ticket_storage);
    kvr::PrefetchTensorMap(&w1);
    kvr::PrefetchTensorMap(&w2);
  }
  table.Clear();
  __syncthreads();
  kvr::WaitForPrimary();
  const bool fetches = warp == kWarps + kFinishers && lane == 0;
  const int first_ticket = fetches ? atomicAdd(counters, 1) : 0;  // on its way meanwhile
  table.Fill(pair_expert, local_offset);
  __syncthreads();
  if (warp == 0) table.MakeSegments();
  __syncthreads();
  table.PlacePairs(blockIdx.x == 0 ? pair_position : nullptr);
  __syncthreads();

  const moe::Tiles tiles(*table.segments, hidden, inner, kRun);
  const Tickets tickets{*ticket_storage};
  Meeting meeting{*meetings};
  if (warp == kWarps + kFinishers) {
    // 2.
    if (fetches) Tickets{*ticket_storage}.Fetch(tiles, first_ticket, counters);
  } else if (warp < kWarps) {
    // 2. and 3.
    Ring ring{rings[warp], &w1, &w2, table};
    moe::Walk<kWarps, Tickets> walk{table, tiles, tickets, (hidden + kColumns - 1) / kColumns,
                                    (inner + kColumns - 1) / kColumns};
    const moe::Layers layers{x, x_scale, h, w1_scale, w2_scale, num_tokens, hidden, inner};
    moe::Multiply<kWarps, kColumns>(layers, counters + 1, table, walk, ring, meeting, kStages,
                                    kFinishers);
  } else {
    // 4. A lane has rows g and g + 8 of a tile, and tokens 2t and 2t + 1.
    const int g = lane / 4, t = lane % 4;
#pragma unroll 1
    for (int turn = warp - kWarps;; turn += kFinishers) {
      const moe::Piece at = meeting.Await(turn);
      if (at.kind == moe::kEnd) break;
      const bool gate_up = at.kind == moe::kGateUp;
      const int first = table.segment_first[at.segment] + at.pass * moe::kTokenTile;
      const int tokens = min(moe::kTokenTile, table.segment_first[at.segment + 1] - first);
      const int expert = table.segment_expert[at.segment];
      const int pieces = ((gate_up ? hidden : inner) + kColumns - 1) / kColumns;
      const float a = alpha == nullptr ? 1 : alpha[expert];
      const float b = beta == nullptr ? 0 : beta[expert];
      const float most = limit == nullptr ? kvr::kInfinity : limit[expert];
      const float4 sum = meeting.Sum(turn, min(pieces, kWarps));
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int token = 2 * t + j;
        if (token >= tokens) continue;
        const int64_t pair = first + token;
        const float upper = j == 0 ? sum.x : sum.y;  // row g
        const float lower = j == 0 ? sum.z : sum.w;  // row g + 8
        if (!gate_up) {
          float* const to = partial + pair * hidden + at.row + g;
          to[0] = upper;
          to[8] = lower;
          continue;
        }
        const float up = fminf(fmaxf(upper, -most), most), gate = fminf(lower, most);
        const float silu = gate / (1 + kvr::Exp2(-a * gate * kvr::kLog2E));
        h[pair * inner + moe::Place(at.row + g)] = __float2bfloat16_rn(silu * (up + b));
      }
      if (gate_up) {
        __syncwarp();
        if (lane == 0) kvr::AddRelease(counters + 1 + at.segment, 1);
      }
    }
  }
  kvr::LaunchDependents();
}
