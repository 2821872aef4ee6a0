// SPDX-License-Identifier: Apache-2.0
//
// moe_gate_up: h = SwiGLU(x w1^T) of one expert's tokens, for kUpRows of its inner rows. A block
// owns (block of inner rows, segment); an expert with more than kTokens tokens reads its weights
// again, from L2. A tile of 16 rows has 8 of up and the same 8 of gate, so that the product of the
// two stays in a lane.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <kvr/device.cuh>

#include "order.cuh"
#include "segments.cuh"
#include "tile.cuh"

// x                  [num_tokens, hidden], in the order of order.cuh
// x_scale            [hidden / 128, num_tokens]
// w1                 [num_local, 2 * inner, hidden]: up rows, then gate rows
// w1_scale           by blocks of 128 x 128
// alpha, beta, limit [num_local] or null
// pair_token         [pairs]
// h                  [pairs, inner], in the order of order.cuh
// Grid: inner / kUpRows x most active experts.
template <int kUpRows, int kTokens, int kDepth, int kWarps, int kStages>
__global__ void __launch_bounds__(kWarps* kvr::kWarpLanes)
    moe_gate_up(const __nv_bfloat16* x, const float* x_scale, const __nv_fp8_e4m3* w1,
                const float* w1_scale, const float* alpha, const float* beta, const float* limit,
                const int* segments, const int* pair_token, __nv_bfloat16* h, int num_tokens,
                int num_local, int hidden, int inner) {
  using Tile = moe::Tile<2 * kUpRows, kTokens, kDepth, kWarps, kStages>;
  static_assert(moe::kBlock % kUpRows == 0, "a block's up rows share their scales, gate likewise");
  constexpr int kHalf = moe::kRowTile / 2;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  auto* const stages = reinterpret_cast<typename Tile::Stage*>(shared_memory);
  auto* const scales = reinterpret_cast<float*>(stages + kStages);  // [2][hidden_blocks][kTokens]

  const moe::Segment segment = moe::LoadSegment(segments, num_local, blockIdx.y);
  const int first_inner = static_cast<int>(blockIdx.x) * kUpRows;
  const int hidden_blocks = hidden / moe::kBlock, inner_blocks = inner / moe::kBlock;
  const __nv_fp8_e4m3* const weights = w1 + int64_t{2} * segment.expert * inner * hidden;
  const float* const weight_scales =
      w1_scale + int64_t{2} * segment.expert * inner_blocks * hidden_blocks;

  for (int done = 0; done < segment.count; done += kTokens) {
    const int pair = segment.first + done;
    const int tokens = min(kTokens, segment.count - done);
    const auto weight = [&](int r) {
      const int i = first_inner + r / moe::kRowTile * kHalf + r % kHalf;
      return weights + (int64_t{r / kHalf % 2} * inner + i) * hidden;
    };
    const auto token = [&](int r) -> const __nv_bfloat16* {
      return r < tokens ? x + int64_t{pair_token[pair + r]} * hidden : nullptr;
    };
    const auto begin = [&] {
      const int threads = static_cast<int>(blockDim.x);
      for (int i = static_cast<int>(threadIdx.x); i < hidden_blocks * kTokens; i += threads) {
        const int block = i / kTokens, r = i % kTokens;
        const float own = r < tokens ? x_scale[block * num_tokens + pair_token[pair + r]] : 0;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row_block = half * inner_blocks + first_inner / moe::kBlock;
          scales[half * hidden_blocks * kTokens + i] =
              own * weight_scales[row_block * hidden_blocks + block];
        }
      }
    };
    moe::Sums<Tile> sums = {};
    moe::Multiply<Tile>(stages, weight, token, begin, {scales, scales + hidden_blocks * kTokens},
                        hidden, sums);

    const float a = alpha == nullptr ? 1 : alpha[segment.expert];
    const float b = beta == nullptr ? 0 : beta[segment.expert];
    const float most = limit == nullptr ? kvr::kInfinity : limit[segment.expert];
    const int g = kvr::LaneIndex() / 4, t = kvr::LaneIndex() % 4;
#pragma unroll
    for (int rows = 0; rows < Tile::kRowTiles; ++rows) {
      const int row_tile = kvr::WarpIndex() * Tile::kRowTiles + rows;
      const int place = moe::Place(first_inner + row_tile * kHalf + g);
#pragma unroll
      for (int tile = 0; tile < Tile::kTokenTiles; ++tile) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int r = tile * moe::kTokenTile + 2 * t + j;
          if (r >= tokens) continue;
          const float up = fminf(fmaxf(sums[rows][tile][j], -most), most);
          const float gate = fminf(sums[rows][tile][2 + j], most);
          const float silu = gate / (1 + kvr::Exp2(-a * gate * kvr::kLog2E));
          h[int64_t{pair + r} * inner + place] = __float2bfloat16(silu * (up + b));
        }
      }
    }
  }
}
