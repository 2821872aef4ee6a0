// SPDX-License-Identifier: Apache-2.0
//
// mla_wide: attention of one token's 64 heads over its list, in one launch. `cluster` for more
// heads: rows are gathered once for all 64, and products are those of a warpgroup.
//
// A cluster of up to 8 blocks owns (token, 64 heads); each block takes an equal run of the list's
// positions, as tiles of 32 rows, and the blocks join their results through each other's shared
// memory (merge.cuh). A block has an SM to itself; its warpgroups have different jobs, and meet at
// barriers in shared memory alone:
//
//   1 gather warpgroup   copies rows, up to 4 tiles ahead                             (gather.cuh)
//   1 score warpgroup    S = Q K^T; softmax in the registers of the product           (scores.cuh)
//   2 value warpgroups   O += P V, 256 dims each                                      (values.cuh)
//
//   gather   | tile 0 | tile 1 | tile 2 | ...
//   scores            | tile 0 | tile 1 | ...      filled[stage]: its rows have arrived
//   values                     | tile 0 | ...      scored: its probabilities are there
//
// Value warps free a stage (emptied) and the probabilities (taken). All products read both operands
// from shared memory, keys and values from the same tile. A tile of 32 rows costs some 860 cycles
// of scores and 512 of values, where its copies take 2200 of an SM's share of the memory.
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

// lse: of the first of the block's heads.
KVR_DEVICE void ScoreTiles(Shared& shared, const Merge& merge, int tiles, float sm_scale, int heads,
                           float* lse) {
  Scores scores;
  Ring ring;
  kvr::SyncWarps<kScoreThreads + kValueThreads>(kQueryBarrier);
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    kvr::WaitBarrier(&shared.filled[ring.stage], ring.parity);
    scores.Tile(shared, ring.stage, sm_scale * kvr::kLog2E, tile % 2 ^ 1);
    kvr::Arrive(&shared.scored);
    ring.Next();
  }
  Weigh(shared, merge, scores, heads, lse);
}

// output: of the first of the block's heads.
KVR_DEVICE void AddValues(Shared& shared, const Merge& merge, int tiles, int heads, float* parts,
                          __nv_bfloat16* output) {
  kvr::SyncWarps<kScoreThreads + kValueThreads>(kQueryBarrier);
  Values values;
  Ring ring;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    kvr::WaitBarrier(&shared.filled[ring.stage], ring.parity);
    kvr::WaitBarrier(&shared.scored, tile % 2);
    values.Tile(shared, ring.stage);
    kvr::Arrive(&shared.taken);
    kvr::Arrive(&shared.emptied[ring.stage]);
    ring.Next();
  }
  kvr::WaitBarrier(&shared.weighed, 0);
  if (merge.splits == 1) {
    WriteOutput(shared, values, parts, heads, output);
  } else {
    SendParts(shared, merge, values, parts);
    kvr::SyncWarps<kScoreThreads + kValueThreads>(kJoinBarrier);
    JoinParts(shared, merge, parts, heads, output);
  }
}

// By one thread.
KVR_DEVICE void InitBarriers(Shared& shared, const Merge& merge) {
  for (int i = 0; i < kStages; ++i) {
    kvr::InitBarrier(&shared.filled[i], Gather::kArrivals);
    kvr::InitBarrier(&shared.emptied[i], kValueThreads);
  }
  kvr::InitBarrier(&shared.scored, kScoreThreads);
  kvr::InitBarrier(&shared.taken, kValueThreads);
  kvr::InitBarrier(&shared.weighed, kHeads);
  kvr::InitBarrier(&shared.sums_received, 1);
  kvr::InitBarrier(&shared.parts_received, 1);
  kvr::FenceBarrierInit();
  kvr::ExpectBytes(&shared.sums_received, merge.splits * Merge::kSumBytes);
  kvr::ExpectBytes(&shared.parts_received, merge.PartBytes());
}

}  // namespace mla

// q_nope          [num_tokens, num_qo_heads, 512]
// q_pe            [num_tokens, num_qo_heads, 64]
// ckv_cache       [slots, 512]
// kpe_cache       [slots, 64]
// sparse_indices  [num_tokens, topk]: a slot, or negative for padding
// output          [num_tokens, num_qo_heads, 512]
// lse             [num_tokens, num_qo_heads]
// tiles           of each block; share, share_reciprocal: merge.cuh
// Grid: splits x ceil(num_qo_heads / 64) x num_tokens, in clusters of `splits`.
__global__ void __launch_bounds__(mla::kThreads, 1)
    mla_wide(const __nv_bfloat16* q_nope, const __nv_bfloat16* q_pe, const __nv_bfloat16* ckv_cache,
             const __nv_bfloat16* kpe_cache, const int* sparse_indices, float sm_scale,
             __nv_bfloat16* output, float* lse, int num_qo_heads, int topk, int tiles, int share,
             int share_reciprocal) {
  using namespace mla;
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  auto& shared = *reinterpret_cast<Shared*>(shared_memory);

  const int splits = gridDim.x, split = blockIdx.x;
  const int first_head = blockIdx.y * kHeads;
  const int64_t token = blockIdx.z;
  const int heads = min(kHeads, num_qo_heads - first_head);
  const int64_t first_row = token * num_qo_heads + first_head;
  const int begin = topk * split / splits, end = topk * (split + 1) / splits;
  const Merge merge{splits, split, share, share_reciprocal};
  float* const parts = Parts(shared, tiles);

  kvr::LaunchDependents();
  if (threadIdx.x == 0) InitBarriers(shared, merge);
  __syncthreads();
  if (splits > 1) {
    kvr::ClusterArrive();
    kvr::ClusterWait();  // the others' barriers stand
  }

  const int warp = __shfl_sync(kvr::kAllLanes, kvr::WarpIndex(), 0);  // known to be uniform
  if (warp < kScoreWarps) {
    kvr::LowerRegisters<kScoreRegisters>();
    kvr::WaitForPrimary();
    ScoreTiles(shared, merge, tiles, sm_scale, heads, lse + first_row);
    if (splits > 1) {
      kvr::SyncWarps<kScoreThreads + kValueThreads>(kJoinBarrier);
      JoinParts(shared, merge, parts, heads, output + first_row * kCkvDim);
    }
  } else if (warp < kScoreWarps + kValueWarps) {
    kvr::RaiseRegisters<kValueRegisters>();
    kvr::WaitForPrimary();
    LoadQuery(shared, q_nope + first_row * kCkvDim, q_pe + first_row * kKpeDim, heads);
    AddValues(shared, merge, tiles, heads, parts, output + first_row * kCkvDim);
  } else {
    kvr::LowerRegisters<kGatherRegisters>();
    kvr::WaitForPrimary();
    Gather gather(ckv_cache, kpe_cache, sparse_indices + token * topk, begin, end);
    gather.Run(shared, tiles);
  }
}
