// SPDX-License-Identifier: Apache-2.0
//
// mla_fp8_wide: attention of one token's 64 heads over its lists, in one launch. `cluster` for more
// heads: rows are gathered and widened once for all 64, and products are those of a warpgroup.
//
// A cluster of up to 16 blocks owns (token, 64 heads); each block takes an equal run of the
// positions of both lists, as tiles of 64 rows, and the blocks join their results through each
// other's shared memory (merge.cuh). A block has an SM to itself; its warpgroups have different
// jobs, and meet at barriers in shared memory alone:
//
//   1 gather warpgroup   copies rows as they are, up to kInFlight tiles ahead        (gather.cuh)
//   1 score warpgroup    S = Q K^T, keys from registers, queries from shared memory;
//                        softmax in the registers of the product                     (scores.cuh)
//   2 value warpgroups   O += P V, 256 dims each, values from registers,
//                        probabilities from shared memory                            (values.cuh)
//
//   gather   | tile 0 | tile 1 | tile 2 | ...
//   scores            | tile 0 | tile 1 | ...      filled[stage]: its rows have arrived
//   values                     | tile 0 | ...      scored[tile % 2]: its probabilities are there
//
// Value warps free a stage (emptied) and the probabilities (taken). Codes become f16 in registers,
// on the way from shared memory into fragments, twice: with tokens in rows for the scores, with
// tokens in pairs for the values. Values are multiplied by their scale there; no scale is
// multiplied into a key, as the result would be no f16 number: it meets fp32 sums.
//
// What it asks of its input beyond the contract: queries within f16's range (65504), and scales of
// a group of dims within 2^19 of each other: what is smaller is lost. Probabilities are f16; the
// README.md of V4's op says what that costs where they are small.
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

namespace mla {

// Registers of a thread, by job: 128 on average.
inline constexpr int kGatherRegisters = 24, kScoreRegisters = 136, kValueRegisters = 176;
static_assert(kGatherRegisters + kScoreRegisters + 2 * kValueRegisters <= 4 * 128);

// lse: [heads] of the block's heads; sink: [heads] or null.
template <class Shape>
KVR_DEVICE void ScoreTiles(typename Shape::Shared& shared, const Merge& merge, int tiles,
                           const float* sink, float sm_scale, int heads, float* lse) {
  const int warp = kvr::WarpIndex(), lane = kvr::LaneIndex();
  Scores<Shape> scores;
  scores.Start(shared);
  Ring<Shape::kStages> ring;
  Ring<2> out;
  kvr::SyncWarps<kScoreThreads + kValueThreads>(kQueryBarrier);
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    kvr::WaitBarrier(&shared.taken[out.stage], out.parity ^ 1);
    kvr::WaitBarrier(&shared.filled[ring.stage], ring.parity);
    scores.Tile(shared.stages[ring.stage], shared, sm_scale * kvr::kLog2E,
                shared.probabilities[out.stage]);
    __syncwarp();
    if (lane == 0) kvr::Arrive(&shared.scored[out.stage]);
    ring.Next();
    out.Next();
  }
  Weigh<Shape>(shared, merge, scores, sink, heads, lse);
}

// q: [heads, 576]; output: [heads, 512].
template <class Shape>
KVR_DEVICE void AddValues(typename Shape::Shared& shared, const Merge& merge, int tiles,
                          const __nv_bfloat16* q, int heads, __nv_bfloat16* output) {
  const int group = kvr::WarpIndex() - kScoreWarps, lane = kvr::LaneIndex();
  StoreQuery<Shape>(shared, q, heads);
  kvr::SyncWarps<kScoreThreads + kValueThreads>(kQueryBarrier);
  Values<Shape> values;
  Ring<Shape::kStages> ring;
  Ring<2> in;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const auto& stage = shared.stages[ring.stage];
    const auto& probabilities = shared.probabilities[in.stage];
    kvr::WaitBarrier(&shared.filled[ring.stage], ring.parity);
    values.Tile(stage, group, shared.factors[group], probabilities, &shared.scored[in.stage],
                in.parity);
    __syncwarp();
    if (lane == 0) {
      kvr::Arrive(&shared.taken[in.stage]);
      kvr::Arrive(&shared.emptied[ring.stage]);
    }
    ring.Next();
    in.Next();
  }
  kvr::WaitBarrier(&shared.weighed[0], 0);
  // All tiles are used, so parts may lie over them. That needs no order of memory: what was read
  // has been multiplied, what was written has been waited for.
  if (merge.splits > 1) kvr::ClusterArrive(), kvr::ClusterWait();
  if (merge.splits == 1) {
    WriteOutput<Shape>(shared.weight, values, heads, output);
  } else {
    SendParts<Shape>(shared, merge, values);
    JoinParts<Shape>(shared, merge, heads, output);
  }
}

// By one thread.
template <class Shape>
KVR_DEVICE void InitBarriers(typename Shape::Shared& shared, const Merge& merge) {
  for (int i = 0; i < Shape::kStages; ++i) {
    kvr::InitBarrier(&shared.filled[i], Gather<Shape>::kArrivals);
    kvr::InitBarrier(&shared.emptied[i], kValueWarps);
  }
  for (int i = 0; i < 2; ++i) {
    kvr::InitBarrier(&shared.scored[i], kScoreWarps);
    kvr::InitBarrier(&shared.taken[i], kValueWarps);
    kvr::InitBarrier(&shared.weighed[i], kHeads / kvr::kWarpLanes);
  }
  kvr::InitBarrier(&shared.sums_received, 1);
  kvr::InitBarrier(&shared.parts_received, 1);
  kvr::FenceBarrierInit();
  kvr::ExpectBytes(&shared.sums_received, merge.splits * Merge::kSumBytes);
  kvr::ExpectBytes(&shared.parts_received, merge.splits * merge.PartBytes());
}

}  // namespace mla

// q               [num_tokens, num_qo_heads, 576]
// kv_cache        [pages, page_size, 656]; aligned to 16; row.cuh has the row
// sparse_indices  [num_tokens, topk]
// topk_length     [num_tokens] or null
// extra_kv_cache, extra_indices, extra_topk_length: the same of the second cache; null where
//                 extra_topk is 0
// sink            [num_qo_heads] or null
// output          [num_tokens, num_qo_heads, 512]
// lse             [num_tokens, num_qo_heads]
// *_reciprocal    what divides by it (gather.cuh, merge.cuh); share: merge.cuh
// Grid: splits x ceil(num_qo_heads / 64) x num_tokens, in clusters of `splits`.
template <int kStages, int kInFlight>
__global__ void __launch_bounds__(mla::kThreads, 1)
    mla_fp8_wide(const __nv_bfloat16* q, const uint8_t* kv_cache, const int* sparse_indices,
                 const int* topk_length, const float* sink, const uint8_t* extra_kv_cache,
                 const int* extra_indices, const int* extra_topk_length, float sm_scale,
                 __nv_bfloat16* output, float* lse, int num_qo_heads, int topk, int extra_topk,
                 int page_size, int page_reciprocal, int extra_page_size, int extra_page_reciprocal,
                 int share, int share_reciprocal) {
  using namespace mla;
  using Shape = mla::Shape<kStages, kInFlight>;
  extern __shared__ __align__(128) unsigned char shared_memory[];
  auto& shared = *reinterpret_cast<typename Shape::Shared*>(shared_memory);

  const int splits = gridDim.x, split = blockIdx.x;
  const int first_head = blockIdx.y * kHeads, token = blockIdx.z;
  const int heads = min(kHeads, num_qo_heads - first_head);
  const int64_t first_row = static_cast<int64_t>(token) * num_qo_heads + first_head;
  const int positions = topk + extra_topk;
  const int begin = positions * split / splits, end = positions * (split + 1) / splits;
  const int tiles = (end - begin + Shape::kTile - 1) / Shape::kTile;
  const Merge merge{splits, split, share, share_reciprocal};

  kvr::LaunchDependents();
  if (threadIdx.x == 0) InitBarriers<Shape>(shared, merge);
  __syncthreads();
  if (splits > 1) {
    kvr::ClusterArrive();
    kvr::ClusterWait();  // the others' barriers stand
  }

  const int warp = __shfl_sync(kvr::kAllLanes, kvr::WarpIndex(), 0);  // known to be uniform
  if (warp < kScoreWarps) {
    kvr::RaiseRegisters<kScoreRegisters>();
    kvr::WaitForPrimary();
    ScoreTiles<Shape>(shared, merge, tiles, sink == nullptr ? nullptr : sink + first_head, sm_scale,
                      heads, lse + first_row);
    if (splits > 1) kvr::ClusterArrive(), kvr::ClusterWait();
  } else if (warp < kScoreWarps + kValueWarps) {
    kvr::RaiseRegisters<kValueRegisters>();
    kvr::WaitForPrimary();
    AddValues<Shape>(shared, merge, tiles, q + first_row * kKeyDims, heads,
                     output + first_row * kDim);
  } else {
    kvr::LowerRegisters<kGatherRegisters>();
    List main(kv_cache, sparse_indices, token, topk, page_size, page_reciprocal);
    List extra(extra_kv_cache, extra_indices, token, extra_topk, extra_page_size,
               extra_page_reciprocal);
    kvr::WaitForPrimary();
    main.ReadLength(topk_length, token);
    extra.ReadLength(extra_topk_length, token);
    Gather<Shape> gather(main, extra, topk, begin, end);
    gather.Run(shared, tiles);
    if (splits > 1) kvr::ClusterArrive(), kvr::ClusterWait();
  }
}
