// SPDX-License-Identifier: Apache-2.0
//
// moe_down: partial = h w2^T of one expert's tokens, for kDownRows of the hidden rows, in fp32. The
// sum over a token's experts is moe_sum's, in the order of its slots: atomics here would add them
// in another order in every run.
#include <cuda_bf16.h>

#include <kvr/device.cuh>

#include "segments.cuh"
#include "tile.cuh"

// h        [pairs, inner]
// w2       [num_experts, hidden, inner]
// partial  [pairs, hidden]
// Grid: ceil(hidden / kDownRows) x most active experts.
template <int kDownRows, int kDepth, int kWarps, int kStages>
__global__ void __launch_bounds__(kWarps* kvr::kWarpLanes)
    moe_down(const __nv_bfloat16* h, const __nv_bfloat16* w2, const int* segments, float* partial,
             int num_experts, int hidden, int inner) {
  using Tile = moe::Tile<kDownRows, kDepth, kWarps, kStages>;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  auto* const stages = reinterpret_cast<typename Tile::Stage*>(shared_memory);

  const moe::Segment segment = moe::LoadSegment(segments, num_experts, blockIdx.y);
  const int first_hidden = blockIdx.x * kDownRows;
  const __nv_bfloat16* weights = w2 + int64_t{segment.expert} * hidden * inner;

  for (int done = 0; done < segment.count; done += moe::kTokens) {
    const int pair = segment.first + done;
    const int tokens = min(moe::kTokens, segment.count - done);
    const auto row = [&](int r) -> const __nv_bfloat16* {
      if (r < moe::kTokens) return r < tokens ? h + int64_t{pair + r} * inner : nullptr;
      const int d = first_hidden + r - moe::kTokens;
      return d < hidden ? weights + int64_t{d} * inner : nullptr;
    };
    const auto first = [](int warp_pair, int half) {
      return ((kvr::WarpIndex() * Tile::kPairs + warp_pair) * 2 + half) * moe::kRowTile;
    };
    moe::Sums<Tile> sums = {};
    moe::Multiply<Tile>(stages, row, first, inner, sums);

    const int g = kvr::LaneIndex() / 4, t = kvr::LaneIndex() % 4;
#pragma unroll
    for (int warp_pair = 0; warp_pair < Tile::kPairs; ++warp_pair) {
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        const int d = first_hidden + first(warp_pair, tile) + 2 * t;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int token = g + half * 8;
          if (token >= tokens || d >= hidden) continue;  // hidden is even
          const float(&sum)[4] = sums[warp_pair][tile];
          kvr::Store<float2>(partial + int64_t{pair + token} * hidden + d,
                             make_float2(sum[2 * half], sum[2 * half + 1]));
        }
      }
    }
  }
}
