// SPDX-License-Identifier: Apache-2.0
//
// mla_fp8_wide: attention of one token's 64 heads over its lists, in one launch. `cluster` for more
// heads: each row is widened once for all 64, and products are those of a warpgroup.
//
// A cluster of up to 16 blocks owns (token, 64 heads); each block takes an equal run of the
// positions of both lists, as tiles of 64 rows, and the blocks join their results through each
// other's shared memory (merge.cuh). A block has an SM to itself; its warpgroups have different
// jobs, and meet at barriers in shared memory alone:
//
//   1 gather warpgroup   copies rows as they are, ahead of the others, and widens them to a tile of
//                        bf16 in shared memory                                        (widen.cuh)
//   1 score warpgroup    S = Q K^T, keys from the tile; softmax in the registers of the product
//                                                                                    (scores.cuh)
//   2 value warpgroups   O += P V, 256 dims each, values from the same tile, in which dims are
//                        columns now                                                 (values.cuh)
//
//   gather   | tile 0 | tile 1 |        | tile 2 | ...
//   scores            | tile 0 | tile 1 |        | ...    widened[tile % 2]
//   values                     | tile 0 | tile 1 | ...    scored: its probabilities are there
//
// Value warps free the tile, half by half (emptied), and the probabilities (taken). bf16 holds an
// e4m3 code times its scale exactly, and so queries, RoPE and scales need no range of their own;
// probabilities and parts are rounded.
//
// The kernel may begin before the one before it has ended, and touches no tensor until then.
#include <cuda_bf16.h>

#include <cstdint>
#include <kvr/cluster.cuh>
#include <kvr/device.cuh>

#include "gather.cuh"
#include "layout.cuh"
#include "merge.cuh"
#include "scores.cuh"
#include "values.cuh"
#include "widen.cuh"

namespace mla {

// Registers of a thread, by job: 128 on average.
inline constexpr int kScoreRegisters = 112, kValueRegisters = 160, kGatherRegisters = 80;
static_assert(kScoreRegisters + 2 * kValueRegisters + kGatherRegisters <= 4 * 128);

// q, output: [heads, 512]. sink, lse: [heads] of the block's heads; sink may be null.
KVR_DEVICE void ScoreTiles(Shared& shared, const Merge& merge, int tiles, const __nv_bfloat16* q,
                           const float* sink, float sm_scale, int heads, float* lse,
                           __nv_bfloat16* output) {
  const int head = threadIdx.x / 2;
  const float own_sink =
      sink != nullptr && head < heads ? kvr::LoadReadOnly<float>(sink + head) : -kvr::kInfinity;
  Scores scores;
  scores.LoadQuery(q, heads);
  kvr::SyncWarps<kScoreThreads + kValueThreads>(kScoreValueBarrier);  // the stored query is there
  Ring<kTiles> ring;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile, ring.Next()) {
    kvr::WaitBarrier(&shared.widened[ring.stage], ring.parity);
    scores.Tile(shared, ring.stage, tile % 2, sm_scale * kvr::kLog2E);
    kvr::Arrive(&shared.scored);
  }
  Weigh(shared, merge, scores, own_sink, heads, lse);
  merge.Meet();
  JoinParts(shared, merge, heads, output);
}

KVR_DEVICE void AddValues(Shared& shared, const Merge& merge, int tiles, const __nv_bfloat16* q,
                          int heads, __nv_bfloat16* output) {
  StoreQuery(shared, q, heads);
  kvr::SyncWarps<kScoreThreads + kValueThreads>(kScoreValueBarrier);
  Values values;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) values.Tile(shared, tile % kTiles, tile % 2);
  SendParts(shared, merge, values);
  JoinParts(shared, merge, heads, output);
}

// By one thread.
KVR_DEVICE void InitBarriers(Shared& shared, const Merge& merge) {
  for (int i = 0; i < kTiles; ++i) {
    kvr::InitBarrier(&shared.widened[i], kGatherThreads);
    for (int half = 0; half < 2; ++half) kvr::InitBarrier(&shared.emptied[i][half], kValueThreads);
  }
  kvr::InitBarrier(&shared.scored, kScoreThreads);
  kvr::InitBarrier(&shared.taken, kValueThreads);
  kvr::InitBarrier(&shared.weighed, kScoreThreads);
  kvr::InitBarrier(&shared.sums_received, 1);
  kvr::InitBarrier(&shared.parts_received, 1);
  kvr::FenceBarrierInit();
  kvr::ExpectBytes(&shared.sums_received, merge.splits * Merge::kSumBytes);
  kvr::ExpectBytes(&shared.parts_received, (merge.splits - 1) * merge.PartBytes(merge.rank));
}

}  // namespace mla

// q               [num_tokens, num_qo_heads, 512]
// kv_cache        [pages, page_size, 584]; aligned to 16
// sparse_indices  [num_tokens, topk]
// topk_length     [num_tokens] or null
// extra_kv_cache, extra_indices, extra_topk_length: the same of the second cache; null where
//                 extra_topk is 0
// sink            [num_qo_heads] or null
// output          [num_tokens, num_qo_heads, 512]
// lse             [num_tokens, num_qo_heads]
// page_reciprocal, extra_page_reciprocal: floor((2^32 - 1) / page_size)
// share           of the 512 units of output (merge.cuh), those of a block
// Launch: grid (splits, head blocks, num_tokens), a cluster of the splits; 512 threads.
__global__ void __launch_bounds__(mla::kThreads, 1)
    mla_fp8_wide(const __nv_bfloat16* __restrict__ q, const uint8_t* __restrict__ kv_cache,
                 const int* __restrict__ sparse_indices, const int* __restrict__ topk_length,
                 const float* __restrict__ sink, const uint8_t* __restrict__ extra_kv_cache,
                 const int* __restrict__ extra_indices, const int* __restrict__ extra_topk_length,
                 float sm_scale, __nv_bfloat16* __restrict__ output, float* __restrict__ lse,
                 int num_qo_heads, int topk, int extra_topk, int page_size, int page_reciprocal,
                 int extra_page_size, int extra_page_reciprocal, int share) {
  using namespace mla;
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  auto& shared = *reinterpret_cast<Shared*>(shared_memory);

  const int splits = gridDim.x, split = blockIdx.x;
  const int first_head = blockIdx.y * kHeads, token = blockIdx.z;
  const int heads = min(kHeads, num_qo_heads - first_head);
  const int64_t first_row = static_cast<int64_t>(token) * num_qo_heads + first_head;
  const int positions = topk + extra_topk;
  const int begin = positions * split / splits, end = positions * (split + 1) / splits;
  const int tiles = (end - begin + kTile - 1) / kTile;
  const Merge merge{splits, split, share};

  kvr::LaunchDependents();
  if (threadIdx.x == 0) InitBarriers(shared, merge);
  __syncthreads();
  merge.Meet();  // the others' barriers stand

  const int warp = __shfl_sync(kvr::kAllLanes, kvr::WarpIndex(), 0);  // known to be uniform
  if (warp < kScoreWarps) {
    kvr::LowerRegisters<kScoreRegisters>();
    kvr::WaitForPrimary();
    ScoreTiles(shared, merge, tiles, q + first_row * kDim,
               sink == nullptr ? nullptr : sink + first_head, sm_scale, heads, lse + first_row,
               output + first_row * kDim);
  } else if (warp < kScoreWarps + kValueWarps) {
    kvr::RaiseRegisters<kValueRegisters>();
    kvr::WaitForPrimary();
    AddValues(shared, merge, tiles, q + first_row * kDim, heads, output + first_row * kDim);
  } else {
    kvr::LowerRegisters<kGatherRegisters>();
    List main(kv_cache, sparse_indices, token, topk, page_size, page_reciprocal);
    List extra(extra_kv_cache, extra_indices, token, extra_topk, extra_page_size,
               extra_page_reciprocal);
    kvr::WaitForPrimary();
    main.ReadLength(topk_length, token);
    extra.ReadLength(extra_topk_length, token);
    RowFeed feed(main, extra, topk, begin, end);
    feed.Run(shared, tiles);
    merge.Meet();
    merge.Meet();
  }
}
