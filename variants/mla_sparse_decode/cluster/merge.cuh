// SPDX-License-Identifier: Apache-2.0
//
// The blocks of a cluster, each with its part of a token's list, make one output. With m a block's
// reference, l its sum, o its values over sums of 2^(s - m), M the largest m:
//
//   total = sum 2^(m - M) l      lse = M + log2(total)      output = sum 2^(m - M) / total * o
//
// Everything is fp32. Score warps send m and l to all blocks when the last tile is scored, and know
// the weights, 2^(m - M) / total, when the value warps' parts, o, reach the blocks that own them.
// Where a list is not split nothing is sent: there is no cluster.
#pragma once

#include "scores.cuh"
#include "values.cuh"

namespace mla {

struct Merge {
  int splits, rank;
  int share;       // units of a block: ceil(128 / splits); the last blocks own fewer, or none
  int reciprocal;  // ceil(2^16 / share)

  static constexpr int kSumBytes = kHeads * sizeof(float2);

  // Units of this block, and the bytes of them that the others send.
  KVR_DEVICE int Units() const { return max(0, min(share, kUnits - rank * share)); }
  KVR_DEVICE int PartBytes() const {
    return (splits - 1) * Units() * kUnitDims * static_cast<int>(sizeof(float));
  }
};

// By the score warps: weights of all blocks' values, and lse. lse: of the first of the block's
// heads.
template <int kStages>
KVR_DEVICE void Weigh(Shared<kStages>& shared, const Merge& merge, const Softmax& softmax,
                      int heads, float* lse) {
  const int split = kvr::LaneIndex() % 16, head = Softmax::Head();
  float2 part = softmax.Sum();
  if (merge.splits > 1) {
    if (split < merge.splits) {
      kvr::StoreRemote(kvr::RankAddress(&shared.sums[merge.rank][head], split),
                       kvr::RankAddress(&shared.sums_received, split), part);
    }
    kvr::WaitBarrier(&shared.sums_received, 0);
    part = split < merge.splits ? shared.sums[split][head] : make_float2(-kvr::kInfinity, 0);
  } else if (split > 0) {
    part = make_float2(-kvr::kInfinity, 0);
  }
  const float largest = kvr::WarpMax<16>(part.x);
  const float factor = largest == -kvr::kInfinity ? 0 : kvr::Exp2(part.x - largest);
  const float total = kvr::WarpSum<16>(factor * part.y);
  shared.weight[split][head] = total > 0 ? __fdividef(factor, total) : 0;
  if (merge.rank == 0 && split == 0 && head < heads) {
    lse[head] = total > 0 ? largest + kvr::Log2(total) : -kvr::kInfinity;
  }
}

// Of a value warp: its values to the blocks that own them, its own too. Four floats of a unit: dims
// 16 j + 2 t, + 1, + 8, + 9.
template <int kStages>
KVR_DEVICE void SendParts(Shared<kStages>& shared, const Merge& merge, const Values& values) {
  const int lane = kvr::LaneIndex(), g = lane / 4, t = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int unit = (g + 8 * half) * kValueWarps + Values::Warp();
    const int to = unit * merge.reciprocal >> 16;
    float* const place = shared.parts[merge.rank * merge.share + unit - to * merge.share] + 4 * t;
    const uint32_t address = kvr::RankAddress(place, to);
    const uint32_t barrier = kvr::RankAddress(&shared.parts_received, to);
#pragma unroll
    for (int j = 0; j < Values::kDimTiles / 2; ++j) {
      const float* low = values.o[2 * j] + 2 * half;
      const float* high = values.o[2 * j + 1] + 2 * half;
      if (to == merge.rank) {
        kvr::Store<float4>(place + 16 * j, make_float4(low[0], low[1], high[0], high[1]));
      } else {
        kvr::StoreRemote(address + j * 16 * sizeof(float), barrier,
                         make_uint4(__float_as_uint(low[0]), __float_as_uint(low[1]),
                                    __float_as_uint(high[0]), __float_as_uint(high[1])));
      }
    }
  }
}

// Of the score and value warps together: the owned units; a thread takes two dims of several at a
// time, so that their loads overlap. output: of the first of the block's heads.
template <int kStages>
KVR_DEVICE void JoinParts(Shared<kStages>& shared, const Merge& merge, int heads,
                          __nv_bfloat16* output) {
  constexpr int kAtOnce = 2, kThreadsHere = kScoreThreads + kValueThreads;
  constexpr int kPairs = kUnitDims / 2, kStep = kThreadsHere / kPairs;  // units between two
  const int pair = threadIdx.x % kPairs, units = merge.Units();
  const int dim = pair / 8 * 16 + pair % 2 * 8 + pair / 2 % 4 * 2;
  kvr::WaitBarrier(&shared.weighed, 0);
  kvr::WaitBarrier(&shared.parts_received, 0);
#pragma unroll 1
  for (int first = threadIdx.x / kPairs; first < units; first += kAtOnce * kStep) {
    int own[kAtOnce], head[kAtOnce];
    float2 sum[kAtOnce] = {};
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      own[i] = min(first + i * kStep, units - 1);  // the last more than once
      head[i] = (merge.rank * merge.share + own[i]) / kValueWarps;
    }
#pragma unroll 4
    for (int split = 0; split < merge.splits; ++split) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const float2 part =
            kvr::Load<float2>(shared.parts[split * merge.share + own[i]] + 2 * pair);
        const float weight = shared.weight[split][head[i]];
        sum[i].x += weight * part.x, sum[i].y += weight * part.y;
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i * kStep >= units || head[i] >= heads) break;
      const int group = (merge.rank * merge.share + own[i]) % kValueWarps;
      kvr::Store<uint32_t>(output + head[i] * kCkvDim + group * kUnitDims + dim,
                           kvr::PackBf16x2(sum[i].x, sum[i].y));
    }
  }
}

// By the value warps, if their block has a token's list to itself: their values, by way of `rows`,
// a stage, so that whole rows are written. weight: of each head.
KVR_DEVICE void WriteOutput(const Values& values, const float (&weight)[kHeads], Row (&rows)[kTile],
                            int heads, __nv_bfloat16* output) {
  const int lane = kvr::LaneIndex(), g = lane / 4, t = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int head = g + 8 * half;
    const float factor = weight[head];
    __nv_bfloat16* const dims = rows[head] + Values::Warp() * kWarpDims + 2 * t;
#pragma unroll
    for (int n = 0; n < Values::kDimTiles; ++n) {
      const float* two = values.o[n] + 2 * half;
      kvr::Store<uint32_t>(dims + n * kFragmentN,
                           kvr::PackBf16x2(two[0] * factor, two[1] * factor));
    }
  }
  kvr::SyncWarps<kValueThreads>(kValueBarrier);
#pragma unroll
  for (int head = Values::Warp(); head < kHeads; head += kValueWarps) {
    if (head >= heads) break;
#pragma unroll
    for (int dim = lane * kPiece; dim < kCkvDim; dim += kvr::kWarpLanes * kPiece) {
      kvr::Store<uint4>(output + head * kCkvDim + dim, kvr::Load<uint4>(rows[head] + dim));
    }
  }
}

}  // namespace mla
