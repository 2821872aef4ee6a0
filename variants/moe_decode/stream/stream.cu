// SPDX-License-Identifier: Apache-2.0
//
// moe_stream: both layers of all active experts in one launch, at the rate at which memory gives
// the weights. One block a multiprocessor, resident from the first byte to the last:
//
//   1. moe_prepare has routed; every block sorts the whole batch by expert for itself (table.cuh):
//      the same microsecond everywhere costs less than one block that all wait for.
//   2. One warp has weights come in pieces of 16 rows, each to the ring of the warp that will
//      multiply it (work.cuh, ring.cuh). The rings run on from tile to tile, and from gate_up to
//      down: w2 is on its way while the hidden layer is still being made.
//   3. Multiplying warps (multiply.cuh) take weights as they arrive, the tokens from L2, and leave
//      sums over their parts of the depth where finishing warps add them (meeting.cuh).
//   4. A finished gate_up tile goes to the hidden layer, where multiplying warps look for it.
//   5. A block has the same rows of the output for every segment, so what is left is its own:
//      it adds each token's slots in their order. No sum depends on who came first.
#include <cuda_bf16.h>

#include <kvr/cluster.cuh>
#include <kvr/device.cuh>
#include <kvr/hopper.cuh>

#include "meeting.cuh"
#include "multiply.cuh"
#include "ring.cuh"
#include "table.cuh"
#include "work.cuh"

namespace moe {

KVR_DEVICE float Silu(float value) { return value / (1 + kvr::Exp2(-value * kvr::kLog2E)); }

}  // namespace moe

// x                [num_tokens, hidden]
// w13              [2 * num_experts, inner, hidden]: an expert's gate rows, then its up rows
// w2               [num_experts, hidden, inner]
// ticket           [1]: zero; shares taken
// h                [pairs, inner]: hidden layer, by expert, then token; kAbsent everywhere
// partial          [blocks][pairs, rows of a block], fp32, where shared memory has no room for it
// out              [num_tokens, hidden]
// expert_ids, expert_weights  [num_tokens, top_k]: from moe_prepare; -1: no expert, in any slot
// Grid: one block for each `rows` rows of the output, no more than multiprocessors.
template <int kWarps, int kFinishers, int kColumns, int kStages, int kSlots, int kTokens, int kRun>
__global__ void __launch_bounds__((kWarps + 1 + kFinishers) * kvr::kWarpLanes, 1)
    moe_stream(const __nv_bfloat16* x, const __grid_constant__ CUtensorMap w13,
               const __grid_constant__ CUtensorMap w2, int* ticket, __nv_bfloat16* h,
               float* partial, __nv_bfloat16* out, int* expert_ids, float* expert_weights,
               int num_tokens, int num_experts, int top_k, int hidden, int inner, int rows,
               int partial_in_shared) {
  // Warps: kWarps multiply, one fills rings, kFinishers finish.
  constexpr int kFilling = kWarps, kFinishing = kWarps + 1, kAllWarps = kFinishing + kFinishers;
  constexpr int kThreads = kAllWarps * kvr::kWarpLanes;
  constexpr int kPlacing = kThreads - kvr::kWarpLanes;  // threads that place pairs
  constexpr int kTiles = kTokens / moe::kTokenTile;
  static_assert(kSlots % kFinishers == 0, "a finishing warp sees every turn of its slots");
  using Ring = moe::Ring<kColumns, kStages>;
  using Meeting = moe::Meeting<kWarps, kTiles, kSlots>;
  using Walk = moe::Walk<kWarps, kRun, kTokens, kColumns>;
  extern __shared__ __align__(128) unsigned char shared_memory[];
  auto* const rings = reinterpret_cast<typename Ring::Storage*>(shared_memory);
  auto* const meetings = reinterpret_cast<typename Meeting::Storage*>(rings + kWarps);
  moe::Table table(meetings + 1, num_tokens, num_experts, top_k);
  const int warp = kvr::WarpIndex(), lane = kvr::LaneIndex();
  const int thread = static_cast<int>(threadIdx.x);
  const int first_row = static_cast<int>(blockIdx.x) * rows;

  // 1. The table.
  if (warp < kWarps) {
    if (lane == 0) Ring::Init(rings[warp]);
  } else if (warp >= kFinishing) {
    const int own = thread - kFinishing * kvr::kWarpLanes, threads = kFinishers * kvr::kWarpLanes;
    table.Clear(own, threads);
    if (own == 0) Meeting::Init(*meetings);
    if (own == kvr::kWarpLanes) {
      kvr::PrefetchTensorMap(&w13);
      kvr::PrefetchTensorMap(&w2);
    }
    // Tokens to L2 before weights fill memory's queues.
    constexpr int kLine = 64;  // values of 128 bytes
#pragma unroll 1
    for (int i = (own * static_cast<int>(gridDim.x) + blockIdx.x) * kLine; i < num_tokens * hidden;
         i += threads * static_cast<int>(gridDim.x) * kLine) {
      kvr::PrefetchL2(x + i);
    }
  }
  int share = 0;
  __syncthreads();
  kvr::WaitForPrimary();
  if (warp == kFilling) share = Walk::Take(ticket);
#pragma unroll 1
  for (int pair = thread; pair < num_tokens * top_k; pair += kThreads) {
    table.Add(pair / top_k, pair % top_k, expert_ids[pair], expert_weights[pair]);
  }
  __syncthreads();
  table.MakeSegments();
  __syncthreads();

  if (partial_in_shared) {
    partial = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(table.End()) + 15) / 16 * 16);
  } else {
    partial += int64_t{blockIdx.x} * num_tokens * top_k * rows;
  }
  Meeting meeting{*meetings};
  if (warp == kFilling) {
    // 2. Lane w fills the ring of warp w.
    Walk walk{table, ticket,    static_cast<int>(gridDim.x),   hidden,
              inner, first_row, min(first_row + rows, hidden), share};
    typename Ring::Source source{rings[min(lane, kWarps - 1)], &w13, &w2};
    do {
      walk.Next();
      const bool end = walk.kind == moe::kEnd;
      const int expert = end ? 0 : table.segment_expert[walk.segment];
      // The end is a piece for every warp.
      const int pieces = end ? kWarps : walk.pieces;
      const int first = (lane - walk.first_warp + kWarps) % kWarps;
#pragma unroll 1
      for (int of_all = 0; of_all < pieces; of_all += kWarps) {
        const int piece = of_all + first;
        bool left = lane < kWarps && piece < pieces;
        while (__any_sync(kvr::kAllLanes, left)) {
          if (!left || !source.HasRoom()) continue;
          source.Fill({walk.kind, static_cast<int16_t>(walk.pass), static_cast<int16_t>(piece),
                       static_cast<int16_t>(walk.segment), walk.row, walk.turn},
                      expert);
          left = false;
        }
      }
    } while (walk.kind != moe::kEnd);
  } else if (warp < kWarps) {
    // 3.
    table.PlacePairs(thread, kPlacing);
    kvr::SyncWarps<kPlacing>(1);
    moe::Multiplier<kWarps, kColumns, kTokens, typename Ring::Sink, Meeting> multiplier{
        x, h, table, hidden, inner, {rings[warp]}, meeting};
    multiplier.Run(kFinishers);
  } else {
    table.PlacePairs(thread - kvr::kWarpLanes, kPlacing);
    kvr::SyncWarps<kPlacing>(1);
    // 4. A lane has rows g and g + 8 of a tile, and tokens 2t and 2t + 1 of each 8.
    const int g = lane / 4, t = lane % 4;
    constexpr uint32_t kOtherNan = 0x7fff7fff;  // of two values
#pragma unroll 1
    for (int turn = warp - kFinishing;; turn += kFinishers) {
      const moe::Piece at = meeting.Await(turn);
      if (at.kind == moe::kEnd) break;
      const bool gate_up = at.kind == moe::kGateUp;
      const int first = table.segment_first[at.segment] + at.pass * kTokens;
      const int tokens = min(kTokens, table.segment_first[at.segment + 1] - first);
      const int pieces = ((gate_up ? hidden : inner) + kColumns - 1) / kColumns;
      float4 sums[kTiles];
      meeting.Sum(turn, min(pieces, kWarps), (tokens + moe::kTokenTile - 1) / moe::kTokenTile,
                  sums);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (tile * moe::kTokenTile >= tokens) break;
        const float4& sum = sums[tile];
        if (gate_up) {
          // The rows of token 2t (0x5410: low halves) to lane (0, t), those of token 2t + 1
          // (0x7632: high halves) to lane (1, t).
          const uint32_t both = kvr::PackBf16x2(moe::Silu(sum.x) * sum.z, moe::Silu(sum.y) * sum.w);
          uint32_t words[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const uint32_t even = __shfl_sync(kvr::kAllLanes, both, 8 * i + t);
            const uint32_t odd = __shfl_sync(kvr::kAllLanes, both, 8 * i + 4 + t);
            words[i] = __byte_perm(even, odd, g == 0 ? 0x5410 : 0x7632);
          }
          if (words[0] == moe::kAbsent) words[0] = kOtherNan;
          const int token = tile * moe::kTokenTile + 2 * t + g;
          if (g < 2 && token < tokens) {
            kvr::StoreRelaxed(h + int64_t{first + token} * inner + at.row,
                              uint4{words[0], words[1], words[2], words[3]});
          }
          continue;
        }
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int token = tile * moe::kTokenTile + 2 * t + j;
          if (token >= tokens) continue;
          float* const to = partial + int64_t{first + token} * rows + at.row - first_row + g;
          to[0] = j == 0 ? sum.x : sum.y;
          to[8] = j == 0 ? sum.z : sum.w;
        }
      }
    }
  }
  __syncthreads();  // partial sums are there, whichever memory they are in

  // 5. The block's rows of the output.
#pragma unroll 1
  for (int i = thread; i < num_tokens * rows; i += kThreads) {
    const int token = i / rows, row = i % rows;
    if (first_row + row >= hidden) continue;
    float sum = 0;
#pragma unroll 8
    for (int pair = token * top_k; pair < (token + 1) * top_k; ++pair) {
      if (table.experts[pair] == moe::Table::kNone) continue;
      sum += table.weights[pair] * partial[int64_t{table.positions[pair]} * rows + row];
    }
    out[int64_t{token} * hidden + first_row + row] = __float2bfloat16_rn(sum);
  }
}
