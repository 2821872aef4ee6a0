// SPDX-License-Identifier: Apache-2.0
//
// mla_split: attention of one token's heads over a part of its sparse list.
//
// A block owns (split, group of kBlockH heads, token). Its part of the token's topk slots is a run
// of whole tiles of kBlockT slots; the runs of the nsplit blocks differ by at most one tile, and
// are empty where there are more blocks than tiles. All heads of a group read the same KV rows, so
// the gather, which is what the time goes to, is shared by kBlockH heads.
//
// A tile's life, software-pipelined over kStages buffers:
//
//   gather   every thread copies pieces of the rows that sparse_indices names, asynchronously,
//            kStages - 1 tiles ahead (tile.cuh)
//   scores   each warp multiplies Q and K over its share of the dims (scores.cuh); barrier;
//            each warp adds up all shares
//   softmax  every warp keeps the same running softmax, in registers (softmax.cuh)
//   output   each warp adds P V for its share of the 512 value dims, in registers
//
// Two barriers a tile: one says "the tile has arrived, and everybody is done with the one before",
// the other "the partial scores are written".
//
// The result, normalised, is written in fp32 with its base-2 lse for mla_merge; a single split
// writes the op's outputs itself. An empty part gives o = 0, lse = -infinity.
#include <cuda_bf16.h>

#include <cstdint>
#include <kvr/device.cuh>

#include "scores.cuh"
#include "softmax.cuh"
#include "tile.cuh"

// q_nope          [num_tokens, num_qo_heads, 512]
// q_pe            [num_tokens, num_qo_heads, 64]
// ckv_cache       [slots, 512]
// kpe_cache       [slots, 64]
// sparse_indices  [num_tokens, topk]: a slot, or negative for padding
// partial_o       [num_tokens, num_qo_heads, nsplit, 512]
// partial_lse     [num_tokens, num_qo_heads, nsplit]
// output          [num_tokens, num_qo_heads, 512]
// lse             [num_tokens, num_qo_heads]
// Grid: nsplit x ceil(num_qo_heads / kBlockH) x num_tokens.
template <int kBlockH, int kBlockT, int kWarps, int kStages>
__global__ void __launch_bounds__(kWarps* kvr::kWarpLanes)
    mla_split(const __nv_bfloat16* q_nope, const __nv_bfloat16* q_pe,
              const __nv_bfloat16* ckv_cache, const __nv_bfloat16* kpe_cache,
              const int* sparse_indices, float sm_scale, float* partial_o, float* partial_lse,
              __nv_bfloat16* output, float* lse, int num_qo_heads, int topk) {
  using Tile = mla::Tile<kBlockH, kBlockT, kWarps, kStages>;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  auto& shared = *reinterpret_cast<typename Tile::Shared*>(shared_memory);

  const int split = blockIdx.x, nsplit = gridDim.x;
  const int first_head = blockIdx.y * kBlockH;
  const int64_t token = blockIdx.z;
  const int64_t first_row = token * num_qo_heads;  // of the tensors with a row per head

  const int tiles = (topk + kBlockT - 1) / kBlockT;
  const int begin = tiles * split / nsplit, end = tiles * (split + 1) / nsplit;

  mla::Gather<Tile> gather{ckv_cache, kpe_cache, sparse_indices + token * topk, topk};
  gather.Start(begin);
#pragma unroll
  for (int ahead = 0; ahead < kStages - 1; ++ahead) {
    if (begin + ahead < end) gather.Copy(shared, ahead, begin + ahead);
    kvr::CommitCopies();
  }

  mla::Query<Tile> query;
  query.Load(q_nope + first_row * mla::kCkvDim, q_pe + first_row * mla::kKpeDim, first_head,
             num_qo_heads, &shared + 1);
  mla::Softmax<Tile> softmax;
  softmax.Start();
  mla::Output<Tile> o = {};

  int stage = 0;              // of `tile`
  int filling = kStages - 1;  // the stage that the previous tile left free
  for (int tile = begin; tile < end; ++tile) {
    kvr::WaitForCopies<kStages - 2>();
    __syncthreads();
    if (tile + kStages - 1 < end) gather.Copy(shared, filling, tile + kStages - 1);
    kvr::CommitCopies();  // perhaps empty: the count of groups must not depend on the tile

    mla::PartialScores<Tile>(query, shared, stage);
    __syncthreads();
    mla::Scores<Tile> scores;
    mla::SumScores<Tile>(shared, scores);

    mla::Probabilities<Tile> probabilities;
    softmax.Add(scores, shared.kept[stage], sm_scale * kvr::kLog2E, o, probabilities);
    mla::AddValues<Tile>(probabilities, shared, stage, o);

    filling = stage;
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }

  softmax.Finish();
  const int g = kvr::LaneIndex() / 4, t = kvr::LaneIndex() % 4;
  const int first_dim = kvr::WarpIndex() * Tile::kWarpDims + 2 * t;
#pragma unroll
  for (int m = 0; m < Tile::kHeadTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int head = first_head + m * mla::kFragmentM + half * 8 + g;
      if (head >= num_qo_heads) continue;
      const int64_t row = (first_row + head) * nsplit + split;
      const float normaliser = softmax.Normaliser(m, half);
      if (threadIdx.x < kvr::kWarpLanes && t == 0) {
        (nsplit == 1 ? lse : partial_lse)[row] = softmax.Lse(m, half);
      }
#pragma unroll
      for (int n = 0; n < Tile::kDimTiles; ++n) {
        const int64_t at = row * mla::kCkvDim + first_dim + n * mla::kFragmentN;
        const float low = o[m][n][2 * half] * normaliser;
        const float high = o[m][n][2 * half + 1] * normaliser;
        if (nsplit == 1) {
          kvr::Store<uint32_t>(output + at, kvr::PackBf16x2(low, high));
        } else {
          kvr::Store<float2>(partial_o + at, make_float2(low, high));
        }
      }
    }
  }
}
