// SPDX-License-Identifier: Apache-2.0
//
// mla_fp8_cluster: attention of one token's 16 heads over its lists, in one launch.
//
// A cluster of up to 16 blocks owns (token, 16 heads); each block takes an equal run of the
// positions of both lists, as tiles of kTile rows, and the blocks join their results through each
// other's shared memory (merge.cuh). A block has an SM to itself; its warps have different jobs,
// and meet at barriers in shared memory alone:
//
//   4 gather warps   copy rows as they are, up to kInFlight tiles ahead              (gather.cuh)
//   8 score warps    S = Q K^T, each kScoreRows of the rows and a part of the dims; a barrier;
//                    softmax, each two heads                            (scores.cuh, softmax.cuh)
//   8 value warps    O += P V, each a group of 64 dims                               (values.cuh)
//
//   gather   | tile 0 | tile 1 | tile 2 | ...
//   scores            | tile 0 | tile 1 | ...      filled[stage]: its rows have arrived
//   values                     | tile 0 | ...      scored[tile % 2]: its probabilities are there
//
// Value warps free a stage (emptied) and the probabilities (taken). Every lane arrives at a
// barrier: one for all would need a barrier of the warp before, costs as much, and racecheck does
// not follow it. Codes become f16 in registers, on the way from shared memory into fragments,
// twice: with tokens in rows for the scores, with tokens in pairs for the values; that is cheaper
// than a widened copy in shared memory. No scale is multiplied into a row: those of keys meet fp32
// sums of a group's products, those of values the probabilities.
//
// What it asks of its input beyond the contract: queries within f16's range (65504), and scales of
// a group of dims that lie within 2^20 of each other, since what is smaller is lost.
// Probabilities are f16; README.md says what that costs where they are small.
//
// The kernel may begin before the one before it has ended, and reads no tensor until then.
#include <cuda_bf16.h>

#include <cstdint>
#include <kvr/cluster.cuh>
#include <kvr/device.cuh>

#include "gather.cuh"
#include "layout.cuh"
#include "merge.cuh"
#include "scores.cuh"
#include "softmax.cuh"
#include "values.cuh"

namespace mla {

// q: [heads, kKeyDims] of the block's heads; lse: [heads]; sink: [heads] or null.
template <class Shape>
KVR_DEVICE void ScoreTiles(typename Shape::Shared& shared, const Merge& merge, int tiles,
                           const __nv_bfloat16* q, const float* sink, float sm_scale, int heads,
                           float* lse) {
  const int warp = kvr::WarpIndex(), lane = kvr::LaneIndex(), own_head = 2 * warp + lane / 16;
  const float own_sink = sink != nullptr && own_head < heads ? sink[own_head] : -kvr::kInfinity;
  const Scores<Shape> scores(q, heads);
  Softmax<Shape> softmax;
  Ring<Shape::kStages> ring;
  Ring<2> out;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const auto& stage = shared.stages[ring.stage];
    kvr::WaitBarrier(&shared.taken[out.stage], out.parity ^ 1);
    kvr::WaitBarrier(&shared.filled[ring.stage], ring.parity);
    scores.Tile(stage, shared.scores[out.stage]);
    kvr::SyncWarps<kScoreWarps * kvr::kWarpLanes>(1);
    softmax.Tile(shared.scores[out.stage], stage.mask, sm_scale * kvr::kLog2E,
                 shared.probabilities[out.stage]);
    kvr::Arrive(&shared.scored[out.stage]);
    ring.Next();
    out.Next();
  }
  Weigh<Shape>(shared, merge, softmax, own_sink, heads, lse);
}

// output: [heads, kDim].
template <class Shape>
KVR_DEVICE void AddValues(typename Shape::Shared& shared, const Merge& merge, int positions,
                          int heads, __nv_bfloat16* output) {
  const int tiles = (positions + Shape::kTile - 1) / Shape::kTile;
  const int group = kvr::WarpIndex() % kValueWarps;
  Values<Shape> values;
  Ring<Shape::kStages> ring;
  Ring<2> in;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const auto& stage = shared.stages[ring.stage];
    const auto& probabilities = shared.probabilities[in.stage];
    kvr::WaitBarrier(&shared.filled[ring.stage], ring.parity);
    values.Tile(stage, group, shared.factors[group], probabilities, positions - tile * Shape::kTile,
                &shared.scored[in.stage], in.parity);
    kvr::Arrive(&shared.taken[in.stage]);
    kvr::Arrive(&shared.emptied[ring.stage]);
    ring.Next();
    in.Next();
  }
  kvr::WaitBarrier(&shared.weighed[0], 0);
  if (merge.splits == 1) {
    WriteOutput<Shape>(shared.weight, values, heads, output);
  } else {
    SendParts<Shape>(shared, merge, values);
  }
}

// By one thread.
template <class Shape>
KVR_DEVICE void InitBarriers(typename Shape::Shared& shared, const Merge& merge) {
  constexpr int kScored = kScoreWarps * kvr::kWarpLanes, kAdded = kValueWarps * kvr::kWarpLanes;
  for (int i = 0; i < Shape::kStages; ++i) {
    kvr::InitBarrier(&shared.filled[i], Gather<Shape>::kArrivals);
    kvr::InitBarrier(&shared.emptied[i], kAdded);
  }
  for (int i = 0; i < 2; ++i) {
    kvr::InitBarrier(&shared.scored[i], kScored);
    kvr::InitBarrier(&shared.taken[i], kAdded);
    kvr::InitBarrier(&shared.weighed[i], kScored);
  }
  kvr::InitBarrier(&shared.sums_received, 1);
  kvr::InitBarrier(&shared.parts_received, 1);
  kvr::FenceBarrierInit();
  kvr::ExpectBytes(&shared.sums_received, merge.splits * Merge::kSumBytes);
  kvr::ExpectBytes(&shared.parts_received, merge.splits * merge.PartBytes());
}

}  // namespace mla

// q               [num_tokens, num_qo_heads, kKeyDims]
// kv_cache        [pages, page_size, kTokenBytes]; aligned to 16; row.cuh has the row
// sparse_indices  [num_tokens, topk]
// topk_length     [num_tokens] or null
// extra_kv_cache, extra_indices, extra_topk_length: the same of the second cache; null where
//                 extra_topk is 0
// sink            [num_qo_heads] or null
// output          [num_tokens, num_qo_heads, kDim]
// lse             [num_tokens, num_qo_heads]
// *_reciprocal    what divides by it (gather.cuh, merge.cuh); share: merge.cuh
// Grid: splits x ceil(num_qo_heads / 16) x num_tokens, in clusters of `splits`.
template <int kTile, int kScoreRows, int kStages, int kInFlight>
__global__ void __launch_bounds__(mla::kThreads, 1)
    mla_fp8_cluster(const __nv_bfloat16* q, const uint8_t* kv_cache, const int* sparse_indices,
                    const int* topk_length, const float* sink, const uint8_t* extra_kv_cache,
                    const int* extra_indices, const int* extra_topk_length, float sm_scale,
                    __nv_bfloat16* output, float* lse, int num_qo_heads, int topk, int extra_topk,
                    int page_size, int page_reciprocal, int extra_page_size,
                    int extra_page_reciprocal, int share, int share_reciprocal) {
  using namespace mla;
  using Shape = mla::Shape<kTile, kScoreRows, kStages, kInFlight>;
  extern __shared__ __align__(128) unsigned char shared_memory[];
  auto& shared = *reinterpret_cast<typename Shape::Shared*>(shared_memory);

  const int splits = gridDim.x, split = blockIdx.x;
  const int first_head = blockIdx.y * kHeads, token = blockIdx.z;
  const int heads = min(kHeads, num_qo_heads - first_head);
  const int64_t first_row = static_cast<int64_t>(token) * num_qo_heads + first_head;
  const int positions = topk + extra_topk;
  const int begin = positions * split / splits, end = positions * (split + 1) / splits;
  const int tiles = (end - begin + kTile - 1) / kTile;
  const Merge merge{splits, split, share, share_reciprocal};

  List main(kv_cache, sparse_indices, token, topk, page_size, page_reciprocal);
  List extra(extra_kv_cache, extra_indices, token, extra_topk, extra_page_size,
             extra_page_reciprocal);

  kvr::LaunchDependents();
  Prefetch(main, extra, topk, begin, end);
  if (threadIdx.x == 0) InitBarriers<Shape>(shared, merge);
  __syncthreads();
  if (splits > 1) {
    kvr::ClusterArrive();
    kvr::ClusterWait();  // the others' barriers stand
  }

  const int warp = __shfl_sync(kvr::kAllLanes, kvr::WarpIndex(), 0);  // known to be uniform
  if (warp < kScoreWarps) {
    kvr::RaiseRegisters<Shape::kScoreRegisters>();
    kvr::WaitForPrimary();
    ScoreTiles<Shape>(shared, merge, tiles, q + first_row * kKeyDims,
                      sink == nullptr ? nullptr : sink + first_head, sm_scale, heads,
                      lse + first_row);
  } else if (warp < kScoreWarps + kValueWarps) {
    if constexpr (Shape::kValueRegisters > kRegisters) {
      kvr::RaiseRegisters<Shape::kValueRegisters>();
    } else {
      kvr::LowerRegisters<Shape::kValueRegisters>();
    }
    kvr::WaitForPrimary();
    AddValues<Shape>(shared, merge, end - begin, heads, output + first_row * kDim);
  } else {
    kvr::LowerRegisters<Shape::kGatherRegisters>();
    kvr::WaitForPrimary();
    main.ReadLength(topk_length, token);
    extra.ReadLength(extra_topk_length, token);
    Gather<Shape> gather(main, extra, topk, begin, end);
    gather.Run(shared, tiles);
    return;
  }
  if (splits > 1) JoinParts<Shape>(shared, merge, heads, output + first_row * kDim);
}
