// SPDX-License-Identifier: Apache-2.0
//
// mla_cluster: attention of one token's 16 heads over its list, in one launch.
//
// A cluster of up to 16 blocks owns (token, 16 heads); each block takes an equal run of the list's
// positions, as tiles of 32 rows, and the blocks join their results through each other's shared
// memory (merge.cuh). A block has an SM to itself; its warps have different jobs, and meet at
// barriers in shared memory alone:
//
//   4 gather warps   copy rows, up to kStages tiles ahead                            (gather.cuh)
//   8 score warps    parts of S = Q K^T, each half of the rows and a quarter of the dims; a
//                    barrier; softmax, each two heads                                (scores.cuh)
//   8 value warps    O += P V, each 64 dims                                          (values.cuh)
//
//   gather   | tile 0 | tile 1 | tile 2 | ...
//   scores            | tile 0 | tile 1 | ...      filled[stage]: its rows have arrived
//   values                     | tile 0 | ...      scored[tile % 2]: its probabilities are there
//
// Value warps free a stage (emptied) and the probabilities (taken). Keys and values are the same
// rows, bf16 as they come: ldmatrix makes fragments of both out of one tile. So all that counts is
// that copies are always on their way, 1152 bytes a row, and that little follows the last of them.
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

// q_nope, q_pe, lse: of the first of the block's heads.
template <int kStages>
KVR_DEVICE void ScoreTiles(Shared<kStages>& shared, const Merge& merge, int tiles,
                           const __nv_bfloat16* q_nope, const __nv_bfloat16* q_pe, float sm_scale,
                           int heads, float* lse) {
  LoadQuery(q_nope, q_pe, heads, shared.query);
  kvr::SyncWarps<kScoreThreads>(kScoreBarrier);
  const Scores scores(shared.query);
  kvr::SyncWarps<kScoreThreads>(kScoreBarrier);  // partial scores lie over it
  Softmax softmax;
  Ring<kStages> ring;
  Ring<2> out;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    auto& partial_scores = shared.partial_scores[out.stage];
    auto& to = shared.probabilities[out.stage];
    kvr::WaitBarrier(&shared.filled[ring.stage], ring.parity);
    scores.Tile(shared.rows[ring.stage], partial_scores);
    kvr::SyncWarps<kScoreThreads>(kScoreBarrier);
    float factor;
    const uint32_t pair =
        softmax.Tile(partial_scores, shared.mask[ring.stage], sm_scale * kvr::kLog2E, factor);
    kvr::WaitBarrier(&shared.taken[out.stage], out.parity ^ 1);
    kvr::Store<uint32_t>(&to.p[Softmax::Head()][Softmax::Token()], pair);
    if (Softmax::Token() == 0) to.rescale[Softmax::Head()] = factor;
    kvr::Arrive(&shared.scored[out.stage]);
    ring.Next();
    out.Next();
  }
  Weigh(shared, merge, softmax, heads, lse);
}

template <int kStages>
KVR_DEVICE void AddValues(Shared<kStages>& shared, int tiles, Values& values) {
  Ring<kStages> ring;
  Ring<2> in;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const auto& from = shared.probabilities[in.stage];
    kvr::WaitBarrier(&shared.filled[ring.stage], ring.parity);
    kvr::WaitBarrier(&shared.scored[in.stage], in.parity);
    values.Tile(shared.rows[ring.stage], from.p, from.rescale);
    kvr::Arrive(&shared.taken[in.stage]);
    kvr::Arrive(&shared.emptied[ring.stage]);
    ring.Next();
    in.Next();
  }
}

// By one thread.
template <int kStages>
KVR_DEVICE void InitBarriers(Shared<kStages>& shared, const Merge& merge) {
  for (int i = 0; i < kStages; ++i) {
    kvr::InitBarrier(&shared.filled[i], Gather<kStages>::kArrivals);
    kvr::InitBarrier(&shared.emptied[i], kValueThreads);
  }
  for (int i = 0; i < 2; ++i) {
    kvr::InitBarrier(&shared.scored[i], kScoreThreads);
    kvr::InitBarrier(&shared.taken[i], kValueThreads);
  }
  kvr::InitBarrier(&shared.weighed, kScoreThreads + kValueThreads);
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
// share, share_reciprocal: merge.cuh
// Grid: splits x ceil(num_qo_heads / 16) x num_tokens, in clusters of `splits`.
template <int kStages>
__global__ void __launch_bounds__(mla::kThreads, 1)
    mla_cluster(const __nv_bfloat16* q_nope, const __nv_bfloat16* q_pe,
                const __nv_bfloat16* ckv_cache, const __nv_bfloat16* kpe_cache,
                const int* sparse_indices, float sm_scale, __nv_bfloat16* output, float* lse,
                int num_qo_heads, int topk, int share, int share_reciprocal) {
  using namespace mla;
  extern __shared__ __align__(128) unsigned char shared_memory[];
  auto& shared = *reinterpret_cast<Shared<kStages>*>(shared_memory);

  const int splits = gridDim.x, split = blockIdx.x;
  const int first_head = blockIdx.y * kHeads;
  const int64_t token = blockIdx.z;
  const int heads = min(kHeads, num_qo_heads - first_head);
  const int64_t first_row = token * num_qo_heads + first_head;
  const int begin = topk * split / splits, end = topk * (split + 1) / splits;
  const int tiles = (end - begin + kTile - 1) / kTile;
  const Merge merge{splits, split, share, share_reciprocal};

  kvr::LaunchDependents();
  if (threadIdx.x == 0) InitBarriers(shared, merge);
  __syncthreads();
  if (splits > 1) {
    kvr::ClusterArrive();
    kvr::ClusterWait();  // the others' barriers stand
  }
  kvr::WaitForPrimary();

  __nv_bfloat16* const own_output = output + first_row * kCkvDim;
  const int warp = kvr::WarpIndex();
  if (warp < kScoreWarps) {
    ScoreTiles(shared, merge, tiles, q_nope + first_row * kCkvDim, q_pe + first_row * kKpeDim,
               sm_scale, heads, lse + first_row);
    kvr::Arrive(&shared.weighed);
    if (splits > 1) JoinParts(shared, merge, heads, own_output);
  } else if (warp < kScoreWarps + kValueWarps) {
    Values values;
    AddValues(shared, tiles, values);
    if (splits > 1) SendParts(shared, merge, values);
    kvr::Arrive(&shared.weighed);
    if (splits > 1) {
      JoinParts(shared, merge, heads, own_output);
    } else {
      kvr::WaitBarrier(&shared.weighed, 0);
      WriteOutput(values, shared.weight[0], shared.rows[0], heads, own_output);
    }
  } else {
    Gather<kStages> gather(ckv_cache, kpe_cache, sparse_indices + token * topk, begin, end);
    gather.Run(shared, tiles);
  }
}
