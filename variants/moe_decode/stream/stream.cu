// SPDX-License-Identifier: Apache-2.0
//
// moe_stream: both layers of all active experts in one launch, at the rate at which memory gives
// the weights. One block a multiprocessor, resident from the first byte to the last:
//
//   1. Every block routes the whole batch for itself (route.cuh) and sorts it by expert
//      (table.cuh): the same microsecond everywhere costs less than one block that all wait for.
//      Without kRoute moe_prepare has routed, and blocks only sort.
//   2. Weights come in pieces of 16 rows, each to the ring of the warp that will multiply it
//      (work.cuh, ring.cuh). The rings run on from tile to tile, and from gate_up to down: w2 is on
//      its way while the hidden layer is still being made.
//   3. Multiplying warps (multiply.cuh) take weights as they arrive, the tokens from L2, and leave
//      sums over their parts of the depth where finishing warps add them (meeting.cuh).
//   4. A finished gate_up tile is counted for its segment; a warp that comes to a down tile waits
//      until all of the segment's are there.
//   5. A block has the same rows of the output for every segment, so what is left is its own:
//      it adds each token's slots in their order. No sum depends on who came first.
#include <cuda_bf16.h>

#include <kvr/device.cuh>
#include <kvr/hopper.cuh>
#include <type_traits>

#include "meeting.cuh"
#include "multiply.cuh"
#include "ring.cuh"
#include "route.cuh"
#include "table.cuh"
#include "work.cuh"

namespace moe {

// Routes the batch into the table, a warp a token; block 0 reports it. The next token's logits are
// on their way meanwhile. The table is clear after the barrier.
template <int kOwn>
KVR_DEVICE void RouteBatch(const Router& router, int num_tokens, int warps,
                           const int* num_valid_tokens, float* scratch, Chosen* chosen,
                           Table& table, int* expert_ids, float* expert_weights) {
  const int lane = kvr::LaneIndex();
  int token = kvr::WarpIndex();
  float next[kOwn];
  int valid = 0;
  if (token < num_tokens) {
    LoadLogits(router, token, next);
    valid = num_valid_tokens[0];
  }
  __syncthreads();
#pragma unroll 1
  for (; token < num_tokens; token += warps) {
    float logits[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) logits[i] = next[i];
    if (token + warps < num_tokens) LoadLogits(router, token + warps, next);
    Choice choice{-1, 0};
    if (token < valid) choice = Choose(router, logits, scratch, chosen);
    if (lane >= router.top_k) continue;
    table.Add(token, lane, choice.expert, choice.weight);
    if (blockIdx.x != 0) continue;
    expert_ids[token * router.top_k + lane] = choice.expert;
    expert_weights[token * router.top_k + lane] = choice.weight;
  }
}

KVR_DEVICE float Silu(float value) { return value / (1 + kvr::Exp2(-value * kvr::kLog2E)); }

}  // namespace moe

// x                [num_tokens, hidden]
// router_logits    [num_tokens, num_experts]
// w13              [2 * num_experts, inner, hidden]: an expert's gate rows, then its up rows
// w2               [num_experts, hidden, inner]
// bias             [num_experts] or null
// counters         [1 + num_experts]: zeros; shares taken, then turns done of each segment
// h                [pairs, inner]: hidden layer, by expert, then token
// partial          [blocks][pairs, rows of a block], fp32, where shared memory has no room for it
// out              [num_tokens, hidden]
// expert_ids, expert_weights  [num_tokens, top_k]
// Grid: one block for each `rows` rows of the output, no more than multiprocessors.
template <int kRoute, int kWarps, int kFinishers, int kColumns, int kStages, int kSlots,
          int kTokens, int kRun, int kHalves>
__global__ void __launch_bounds__((kWarps + kFinishers) * kvr::kWarpLanes, 1)
    moe_stream(const __nv_bfloat16* x, const float* router_logits,
               const __grid_constant__ CUtensorMap w13, const __grid_constant__ CUtensorMap w2,
               const int* num_valid_tokens, const float* bias, float routed_scaling_factor,
               int* counters, __nv_bfloat16* h, float* partial, __nv_bfloat16* out, int* expert_ids,
               float* expert_weights, int num_tokens, int num_experts, int top_k, int hidden,
               int inner, int scoring, int renormalize, int n_group, int topk_group, int rows,
               int partial_in_shared) {
  constexpr int kAllWarps = kWarps + kFinishers, kThreads = kAllWarps * kvr::kWarpLanes;
  constexpr int kTiles = kTokens / moe::kTokenTile;
  static_assert(kSlots % kFinishers == 0, "a finishing warp sees every turn of its slots");
  using Ring = moe::Ring<kColumns, kStages>;
  using Meeting = moe::Meeting<kWarps, kTiles, kSlots>;
  extern __shared__ __align__(128) unsigned char shared_memory[];
  auto* const rings = reinterpret_cast<typename Ring::Storage*>(shared_memory);
  auto* const meetings = reinterpret_cast<typename Meeting::Storage*>(rings + kWarps);
  auto* const taken = reinterpret_cast<int*>(meetings + 1);  // [blocks + 1]
  moe::Table table(taken + gridDim.x + 1, num_tokens, num_experts, top_k);
  const int warp = kvr::WarpIndex(), lane = kvr::LaneIndex();
  const int thread = static_cast<int>(threadIdx.x);
  const int first_row = static_cast<int>(blockIdx.x) * rows;

  // 1. The table. Warps that finish later prepare the rest; the others, which have the first
  // tokens, route as soon as logits arrive.
  const moe::Shares shares{taken, counters, static_cast<int>(gridDim.x)};
  if (warp < kWarps) {
    if (lane == 0) Ring::Init(rings[warp]);
  } else {
    const int own = thread - kWarps * kvr::kWarpLanes, threads = kFinishers * kvr::kWarpLanes;
    table.Clear(own, threads);
#pragma unroll 1
    for (int i = own; i < shares.count + 1; i += threads) taken[i] = 0;
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
  if constexpr (kRoute != 0) {
    const moe::Router router{router_logits,
                             bias,
                             num_experts,
                             top_k,
                             scoring,
                             n_group,
                             topk_group,
                             renormalize != 0,
                             routed_scaling_factor};
    constexpr int kMostExperts = 512;
    auto* const scratch =
        reinterpret_cast<float*>(rings[warp % kWarps].rows) + warp / kWarps * kMostExperts;
    static_assert(sizeof(moe::Chosen) * moe::kMostChosen * kAllWarps <= sizeof(meetings->cells));
    auto* const chosen = reinterpret_cast<moe::Chosen*>(meetings->cells) + warp * moe::kMostChosen;
    const auto route = [&](auto own) {
      moe::RouteBatch<own.value>(router, num_tokens, kAllWarps, num_valid_tokens, scratch, chosen,
                                 table, expert_ids, expert_weights);
    };
    if (num_experts <= 128) {
      route(std::integral_constant<int, 4>());
    } else if (num_experts <= 256) {
      route(std::integral_constant<int, 8>());
    } else {
      route(std::integral_constant<int, 16>());
    }
    if (warp == kAllWarps - 1) {
      kvr::WaitForPrimary();
      shares.Take(0);
    }
    kvr::FenceAsyncProxy();  // the scratch is where the rings are
  } else {
    __syncthreads();
    kvr::WaitForPrimary();
    if (warp == kAllWarps - 1) shares.Take(0);
#pragma unroll 1
    for (int pair = thread; pair < num_tokens * top_k; pair += kThreads) {
      table.Add(pair / top_k, pair % top_k, expert_ids[pair], expert_weights[pair]);
    }
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
  if (warp < kWarps) {
    // 2. and 3.
    Ring ring{rings[warp], &w13, &w2, table};
    moe::Walk<kWarps, kRun, kTokens, kColumns> walk{
        table, shares, hidden, inner, first_row, min(first_row + rows, hidden)};
    moe::Multiply<kWarps, kColumns, kStages, kTokens, kHalves>(x, h, counters + 1, table, walk,
                                                               ring, meeting, kFinishers);
  } else {
    table.PlacePairs(thread - kWarps * kvr::kWarpLanes, kFinishers * kvr::kWarpLanes);
    __syncthreads();  // Multiply has the other half
    // 4. A lane has rows g and g + 8 of a tile, and tokens 2t and 2t + 1 of each 8.
    const int g = lane / 4, t = lane % 4;
#pragma unroll 1
    for (int turn = warp - kWarps;; turn += kFinishers) {
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
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int token = tile * moe::kTokenTile + 2 * t + j;
          if (token >= tokens) continue;
          const int64_t pair = first + token;
          const float upper = j == 0 ? sums[tile].x : sums[tile].y;  // row g
          const float lower = j == 0 ? sums[tile].z : sums[tile].w;  // row g + 8
          if (!gate_up) {
            float* const to = partial + pair * rows + at.row - first_row + g;
            to[0] = upper;
            to[8] = lower;
          } else if (at.row + g < inner) {
            h[pair * inner + at.row + g] = __float2bfloat16_rn(moe::Silu(upper) * lower);
          }
        }
      }
      if (gate_up) {
        __syncwarp();
        if (lane == 0) kvr::AddRelease(counters + 1 + at.segment, 1);
      }
    }
  }
  __syncthreads();

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
