// SPDX-License-Identifier: Apache-2.0
//
// moe_gate_up: h = silu(x w_gate^T) * (x w_up^T) of one expert's tokens, for kUpRows of its inner
// rows. A block owns (block of inner rows, segment); an expert with more than 16 tokens reads its
// weights again, from L2. A warp holds a gate tile and the up tile of the same rows, so the product
// of the two stays in registers.
#include <cuda_bf16.h>

#include <kvr/device.cuh>

#include "segments.cuh"
#include "tile.cuh"

// x           [num_tokens, hidden]
// w13         [num_experts, 2 * inner, hidden]: gate rows, then up rows
// pair_token  [pairs]
// h           [pairs, inner]
// Grid: ceil(inner / kUpRows) x most active experts.
template <int kUpRows, int kDepth, int kWarps, int kStages>
__global__ void __launch_bounds__(kWarps* kvr::kWarpLanes)
    moe_gate_up(const __nv_bfloat16* x, const __nv_bfloat16* w13, const int* segments,
                const int* pair_token, __nv_bfloat16* h, int num_experts, int hidden, int inner) {
  using Tile = moe::Tile<2 * kUpRows, kDepth, kWarps, kStages>;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  auto* const stages = reinterpret_cast<typename Tile::Stage*>(shared_memory);

  const moe::Segment segment = moe::LoadSegment(segments, num_experts, blockIdx.y);
  const int first_inner = blockIdx.x * kUpRows;
  const __nv_bfloat16* weights = w13 + int64_t{2} * segment.expert * inner * hidden;

  for (int done = 0; done < segment.count; done += moe::kTokens) {
    const int pair = segment.first + done;
    const int tokens = min(moe::kTokens, segment.count - done);
    const auto row = [&](int r) -> const __nv_bfloat16* {
      if (r < moe::kTokens) {
        return r < tokens ? x + int64_t{pair_token[pair + r]} * hidden : nullptr;
      }
      r -= moe::kTokens;
      const int i = first_inner + r % kUpRows;
      return i < inner ? weights + (int64_t{r / kUpRows} * inner + i) * hidden : nullptr;
    };
    const auto inner_tile = [](int warp_pair) {
      return (kvr::WarpIndex() * Tile::kPairs + warp_pair) * moe::kRowTile;
    };
    const auto first = [&](int warp_pair, int half) {
      return half * kUpRows + inner_tile(warp_pair);
    };
    moe::Sums<Tile> sums = {};
    moe::Multiply<Tile>(stages, row, first, hidden, sums);

    const int g = kvr::LaneIndex() / 4, t = kvr::LaneIndex() % 4;
#pragma unroll
    for (int warp_pair = 0; warp_pair < Tile::kPairs; ++warp_pair) {
      const int i = first_inner + inner_tile(warp_pair) + 2 * t;
      const float(&gate)[4] = sums[warp_pair][0];
      const float(&up)[4] = sums[warp_pair][1];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int token = g + half * 8;
        if (token >= tokens || i >= inner) continue;  // inner is even
        float product[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const float value = gate[2 * half + j];
          product[j] = value / (1 + kvr::Exp2(-value * kvr::kLog2E)) * up[2 * half + j];
        }
        kvr::Store<uint32_t>(h + int64_t{pair + token} * inner + i,
                             kvr::PackBf16x2(product[0], product[1]));
      }
    }
  }
}
