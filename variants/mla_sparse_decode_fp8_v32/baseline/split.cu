// SPDX-License-Identifier: Apache-2.0
//
// mla_split: attention of one token's heads over a part of its lists.
//
// A block owns (split, group of kBlockH heads, token). The entries of the token's lists that count,
// the second list's after the first one's, are cut into tiles of kBlockT; a block's part is a run
// of whole tiles. The runs of the nsplit blocks differ by at most one tile, and are empty where
// there are more blocks than tiles. All heads of a group read the same KV rows, so gathering and
// widening them, which is what the time goes to, is shared by kBlockH heads.
//
// A tile's life, software-pipelined:
//
//   gather   every thread copies pieces of the rows that the lists name, asynchronously, kStages
//            tiles ahead; each piece is that thread's own until it is widened (tile.cuh)
//   widen    codes become bf16, without their scales, in one of two buffers
//   scores   each warp multiplies Q and K over its share of the dims (scores.cuh); barrier;
//            each warp adds up all shares
//   softmax  every warp keeps the same running softmax, in registers (softmax.cuh)
//   output   each warp adds P V for its share of the 512 value dims, in registers
//
// Two barriers a tile: one says "the tile is widened, and everybody is done with the one before",
// the other "the partial scores are written".
//
// The result, normalised, is written in fp32 with its base-2 lse for mla_merge, which takes the
// sink in; a single split does that and writes the op's outputs itself. An empty part gives o = 0,
// lse = -infinity.
#include <cuda_bf16.h>

#include <cstdint>
#include <kvr/device.cuh>

#include "scores.cuh"
#include "softmax.cuh"
#include "tile.cuh"

// q                  [num_tokens, num_qo_heads, kKeyDims]
// kv_cache           [num_pages, page_size * token bytes], see layout.cuh; 16-aligned
// sparse_indices     [num_tokens, topk]: a slot, or negative for padding
// topk_length        [num_tokens]; null: topk
// sink               [num_qo_heads], natural logarithm; null: none
// extra_kv_cache, extra_indices, extra_topk_length: the same of the second cache; null where
//                    extra_topk is 0
// partial_o          [num_tokens, num_qo_heads, nsplit, 512]
// partial_lse        [num_tokens, num_qo_heads, nsplit]
// output             [num_tokens, num_qo_heads, 512]
// lse                [num_tokens, num_qo_heads]
// Grid: nsplit x ceil(num_qo_heads / kBlockH) x num_tokens.
template <int kBlockH, int kBlockT, int kWarps, int kStages>
__global__ void __launch_bounds__(kWarps* kvr::kWarpLanes)
    mla_split(const __nv_bfloat16* q, const unsigned char* kv_cache, const int* sparse_indices,
              const int* topk_length, const float* sink, const unsigned char* extra_kv_cache,
              const int* extra_indices, const int* extra_topk_length, float sm_scale,
              float* partial_o, float* partial_lse, __nv_bfloat16* output, float* lse,
              int num_qo_heads, int page_size, int topk, int extra_page_size, int extra_topk) {
  using Tile = mla::Tile<kBlockH, kBlockT, kWarps, kStages>;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  auto& shared = *reinterpret_cast<typename Tile::Shared*>(shared_memory);

  const int split = blockIdx.x, nsplit = gridDim.x;
  const int first_head = blockIdx.y * kBlockH;
  const int64_t token = blockIdx.z;
  const int64_t first_row = token * num_qo_heads;  // of the tensors with a row per head

  const mla::List list(kv_cache, sparse_indices, topk_length, page_size, topk, token);
  const mla::List extra_list(extra_kv_cache, extra_indices, extra_topk_length, extra_page_size,
                             extra_topk, token);
  const int tiles = list.template Tiles<Tile>() + extra_list.template Tiles<Tile>();
  const int begin = tiles * split / nsplit, end = tiles * (split + 1) / nsplit;

  mla::Gather<Tile> gather(list, extra_list);
  gather.Start(begin);
#pragma unroll
  for (int stage = 0; stage < kStages; ++stage) {
    if (begin + stage < end) gather.Copy(shared, stage, begin + stage);
    kvr::CommitCopies();
  }

  mla::Query<Tile> query;
  query.Load(q + first_row * mla::kKeyDims, first_head, num_qo_heads, &shared + 1);
  mla::Softmax<Tile> softmax;
  softmax.Start();
  mla::Output<Tile> o = {};

  kvr::WaitForCopies<kStages - 1>();
  if (begin < end) gather.Widen(shared, 0, shared.tiles[0]);
  int stage = 0;   // where `tile` has been copied to
  int buffer = 0;  // where it is widened
  for (int tile = begin; tile < end; ++tile) {
    const typename Tile::Widened& now = shared.tiles[buffer];
    buffer ^= 1;
    if (tile + kStages < end) gather.Copy(shared, stage, tile + kStages);
    kvr::CommitCopies();  // perhaps empty: the count of groups must not depend on the tile
    stage = stage + 1 == kStages ? 0 : stage + 1;
    __syncthreads();

    mla::PartialScores<Tile>(query, now, shared);
    kvr::WaitForCopies<kStages - 1>();
    if (tile + 1 < end) gather.Widen(shared, stage, shared.tiles[buffer]);
    __syncthreads();
    mla::Scores<Tile> scores;
    mla::SumScores<Tile>(shared, scores);

    softmax.Add(scores, now.kept, sm_scale * kvr::kLog2E, o);
    mla::AddValues<Tile>(scores, now, o);
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
      const bool has_sink = nsplit == 1 && sink != nullptr;
      const float sink_log2 =
          has_sink ? kvr::LoadReadOnly<float>(sink + head) * kvr::kLog2E : -kvr::kInfinity;
      const float normaliser = softmax.Normaliser(m, half, sink_log2);
      if (threadIdx.x < kvr::kWarpLanes && t == 0) {
        (nsplit == 1 ? lse : partial_lse)[row] = softmax.Lse(m, half);
      }
#pragma unroll
      for (int n = 0; n < Tile::kDimTiles; ++n) {
        const int64_t at = row * mla::kValueDims + first_dim + n * mla::kFragmentN;
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
