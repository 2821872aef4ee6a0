// SPDX-License-Identifier: Apache-2.0
//
// moe_down: partial = h w2^T of one expert's tokens, for kDownRows of the hidden rows, in fp32. The
// sum over a token's experts is moe_sum's, in the order of its slots: atomics here would add them
// in another order in every run.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <kvr/device.cuh>

#include "segments.cuh"
#include "tile.cuh"

// h        [pairs, inner], in the order of order.cuh
// w2       [num_local, hidden, inner]; w2_scale by 128 x 128
// partial  [pairs, hidden]
// Grid: hidden / kDownRows x most active experts.
template <int kDownRows, int kTokens, int kDepth, int kWarps, int kStages>
__global__ void __launch_bounds__(kWarps* kvr::kWarpLanes)
    moe_down(const __nv_bfloat16* h, const __nv_fp8_e4m3* w2, const float* w2_scale,
             const int* segments, float* partial, int num_local, int hidden, int inner) {
  using Tile = moe::Tile<kDownRows, kTokens, kDepth, kWarps, kStages>;
  static_assert(moe::kBlock % kDownRows == 0, "a block's rows share their scales");
  extern __shared__ __align__(16) unsigned char shared_memory[];
  auto* const stages = reinterpret_cast<typename Tile::Stage*>(shared_memory);
  auto* const scales = reinterpret_cast<float*>(stages + kStages);  // [inner / 128][kTokens]

  const moe::Segment segment = moe::LoadSegment(segments, num_local, blockIdx.y);
  const int first_hidden = static_cast<int>(blockIdx.x) * kDownRows;
  const int inner_blocks = inner / moe::kBlock;
  const __nv_fp8_e4m3* const weights =
      w2 + (int64_t{segment.expert} * hidden + first_hidden) * inner;
  const float* const weight_scales =
      w2_scale + (int64_t{segment.expert} * hidden + first_hidden) / moe::kBlock * inner_blocks;

  for (int done = 0; done < segment.count; done += kTokens) {
    const int pair = segment.first + done;
    const int tokens = min(kTokens, segment.count - done);
    const auto weight = [&](int r) { return weights + int64_t{r} * inner; };
    const auto token = [&](int r) -> const __nv_bfloat16* {
      return r < tokens ? h + int64_t{pair + r} * inner : nullptr;
    };
    const auto begin = [&] {
      const int threads = static_cast<int>(blockDim.x);
      for (int i = static_cast<int>(threadIdx.x); i < inner_blocks * kTokens; i += threads) {
        scales[i] = weight_scales[i / kTokens];
      }
    };
    moe::Sums<Tile> sums = {};
    moe::Multiply<Tile>(stages, weight, token, begin, {scales, scales}, inner, sums);

    const int g = kvr::LaneIndex() / 4, t = kvr::LaneIndex() % 4;
#pragma unroll
    for (int rows = 0; rows < Tile::kRowTiles; ++rows) {
      const int d = first_hidden + (kvr::WarpIndex() * Tile::kRowTiles + rows) * moe::kRowTile + g;
#pragma unroll
      for (int tile = 0; tile < Tile::kTokenTiles; ++tile) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int r = tile * moe::kTokenTile + 2 * t + j;
          if (r >= tokens) continue;
          float* const to = partial + int64_t{pair + r} * hidden + d;
          to[0] = sums[rows][tile][j];
          to[8] = sums[rows][tile][2 + j];
        }
      }
    }
  }
}
