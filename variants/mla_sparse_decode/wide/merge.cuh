// SPDX-License-Identifier: Apache-2.0
//
// The blocks of a cluster, each with its part of a token's list, make one output. With m a block's
// reference, l its sum, o its values over sums of 2^(s - m), M the largest m:
//
//   total = sum 2^(m - M) l      lse = M + log2(total)      output = sum 2^(m - M) / total * o
//
// Every block sends m and l to all when it has scored its last tile, then knows its own factor of
// o, and sends the parts of the output to the blocks that own them, in fp32; those add. Where a
// list is not split, nothing is sent: there is no cluster.
//
// Parts arrive where tiles and the query were. Nobody sends any before all references and sums are
// there. Those are sent after the probabilities of the last tile were written, thus after the
// values of the tile before were taken: only the last tile is left to read then.
#pragma once

#include "scores.cuh"
#include "values.cuh"

namespace mla {

struct Merge {
  int splits, rank;
  int share;       // units of a block: ceil(512 / splits); the last blocks own fewer, or none
  int reciprocal;  // ceil(2^20 / share)

  static constexpr int kSumBytes = kHeads * sizeof(float2);

  // Units of this block, and the bytes of them that the others send.
  KVR_DEVICE int Units() const { return max(0, min(share, kUnits - rank * share)); }
  KVR_DEVICE int PartBytes() const {
    return (splits - 1) * Units() * kSliceDims * static_cast<int>(sizeof(float));
  }
};

// [splits][share][64]: of each owned unit, each block's part. `tiles`: of each block. Half of the
// stages and the query: whichever half does not have the last tile.
KVR_DEVICE float* Parts(Shared& shared, int tiles) {
  const bool last_is_low = (tiles - 1) % kStages < kStages / 2;
  return last_is_low ? reinterpret_cast<float*>(shared.query)
                     : reinterpret_cast<float*>(shared.low);
}
// Up to 518 units for 2 ... 8 splits.
static_assert(518 * kSliceDims * 4 <= kStages / 2 * sizeof(Stage) + sizeof(Shared::query));

// By the score warps: references and sums to all blocks, then what the values are to be multiplied
// by, and lse. lse: of the first of the block's heads.
KVR_DEVICE void Weigh(Shared& shared, const Merge& merge, const Scores& scores, int heads,
                      float* lse) {
  const int t = kvr::LaneIndex() % 4, head = threadIdx.x;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float2 own = scores.Sum(half);
    if (merge.splits == 1) {
      if (t == 0) shared.sums[0][Scores::Head(half)] = own;
      continue;
    }
#pragma unroll
    for (int to = t; to < kMostSplits; to += 4) {
      if (to >= merge.splits) continue;
      kvr::StoreRemote(kvr::RankAddress(&shared.sums[merge.rank][Scores::Head(half)], to),
                       kvr::RankAddress(&shared.sums_received, to), own);
    }
  }
  if (merge.splits == 1) {
    kvr::SyncWarps<kScoreThreads>(kScoreBarrier);
  } else {
    kvr::WaitBarrier(&shared.sums_received, 0);
  }
  if (head < kHeads) {  // two warps
    float largest = -kvr::kInfinity, total = 0;
    for (int split = 0; split < merge.splits; ++split) {
      largest = fmaxf(largest, shared.sums[split][head].x);
    }
    const float reference = largest == -kvr::kInfinity ? 0 : largest;
    for (int split = 0; split < merge.splits; ++split) {
      const float2 part = shared.sums[split][head];
      total += kvr::Exp2(part.x - reference) * part.y;
    }
    const float own = kvr::Exp2(shared.sums[merge.rank][head].x - reference);
    shared.weight[head] = total > 0 ? own / total : 0;
    if (merge.rank == 0 && head < heads) lse[head] = reference + kvr::Log2(total);
    kvr::Arrive(&shared.weighed);
  }
}

// Of a value warp: its values, weighed, to the blocks that own them; a barrier follows, for this
// block's own. Four floats of a unit: dims 16 j + 2 t, + 1, + 8, + 9.
KVR_DEVICE void SendParts(Shared& shared, const Merge& merge, const Values& values, float* parts) {
  constexpr int kSlicesHere = kCkvSlices / 2;
  const int t = kvr::LaneIndex() % 4;
#pragma unroll
  for (int i = 0; i < 2 * kSlicesHere; ++i) {
    const int half = i % 2, slice = i / 2;
    const int unit = Values::Head(half) * kCkvSlices + Values::Group() * kSlicesHere + slice;
    const int to = unit * merge.reciprocal >> 20;
    float* const place =
        parts + (merge.rank * merge.share + unit - to * merge.share) * kSliceDims + 4 * t;
    const uint32_t address = kvr::RankAddress(place, to);
    const uint32_t barrier = kvr::RankAddress(&shared.parts_received, to);
    const float weight = shared.weight[Values::Head(half)];
#pragma unroll
    for (int j = 0; j < kSliceDims / 16; ++j) {
      const float* low = values.At(slice * 8 + 2 * j, half);
      const float* high = values.At(slice * 8 + 2 * j + 1, half);
      const float4 four =
          make_float4(low[0] * weight, low[1] * weight, high[0] * weight, high[1] * weight);
      if (to == merge.rank) {
        kvr::Store<float4>(place + 16 * j, four);
      } else {
        kvr::StoreRemote(address + j * 16 * sizeof(float), barrier,
                         make_uint4(__float_as_uint(four.x), __float_as_uint(four.y),
                                    __float_as_uint(four.z), __float_as_uint(four.w)));
      }
    }
  }
}

// Of the score and value warps together: the owned units; a thread takes two dims of several at a
// time, so that their loads overlap. output: of the first of the block's heads.
KVR_DEVICE void JoinParts(Shared& shared, const Merge& merge, const float* parts, int heads,
                          __nv_bfloat16* output) {
  constexpr int kAtOnce = 8, kThreadsHere = kScoreThreads + kValueThreads;
  constexpr int kPairs = kSliceDims / 2, kStep = kThreadsHere / kPairs;  // units between two
  const int pair = threadIdx.x % kPairs, units = merge.Units();
  const int dim = pair / 8 * 16 + pair % 2 * 8 + pair / 2 % 4 * 2;
  kvr::WaitBarrier(&shared.parts_received, 0);
#pragma unroll 1
  for (int first = threadIdx.x / kPairs; first < units; first += kAtOnce * kStep) {
    float2 sum[kAtOnce] = {};
#pragma unroll 1
    for (int split = 0; split < merge.splits; ++split) {
      const float* const from = parts + split * merge.share * kSliceDims + 2 * pair;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int own = min(first + i * kStep, units - 1);  // the last more than once
        const float2 part = kvr::Load<float2>(from + own * kSliceDims);
        sum[i].x += part.x, sum[i].y += part.y;
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int unit = merge.rank * merge.share + first + i * kStep, head = unit / kCkvSlices;
      if (first + i * kStep >= units || head >= heads) break;
      kvr::Store<uint32_t>(output + head * kCkvDim + unit % kCkvSlices * kSliceDims + dim,
                           kvr::PackBf16x2(sum[i].x, sum[i].y));
    }
  }
}

// By the value warps, if their block has a token's list to itself: their values, weighed, by way of
// shared memory, so that whole rows are written. `rows`: where the query was and more; a pad of 16
// bytes makes the rows of a fragment touch different banks.
KVR_DEVICE void WriteOutput(const Shared& shared, const Values& values, void* rows, int heads,
                            __nv_bfloat16* output) {
  constexpr int kStride = kCkvDim + kPiece;
  const int lane = kvr::LaneIndex(), t = lane % 4;
  auto* const staged = static_cast<__nv_bfloat16*>(rows);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int head = Values::Head(half);
    const float weight = shared.weight[head];
    __nv_bfloat16* const dims = staged + head * kStride + Values::Group() * Values::kDims + 2 * t;
#pragma unroll
    for (int n = 0; n < Values::kDims / 8; ++n) {
      const float* two = values.At(n, half);
      kvr::Store<uint32_t>(dims + 8 * n, kvr::PackBf16x2(two[0] * weight, two[1] * weight));
    }
  }
  kvr::SyncWarps<kValueThreads>(kValueBarrier);
#pragma unroll
  for (int i = 0; i < kHeads / kValueWarps; ++i) {
    const int head = i * kValueWarps + kvr::WarpIndex() - kScoreWarps;
    if (head >= heads) break;
#pragma unroll
    for (int dim = lane * kPiece; dim < kCkvDim; dim += kvr::kWarpLanes * kPiece) {
      kvr::Store<uint4>(output + head * kCkvDim + dim,
                        kvr::Load<uint4>(staged + head * kStride + dim));
    }
  }
}
static_assert(kHeads * (kCkvDim + kPiece) * 2 <= sizeof(Shared::query));

}  // namespace mla
