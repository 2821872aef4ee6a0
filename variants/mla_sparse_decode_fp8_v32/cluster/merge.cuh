// SPDX-License-Identifier: Apache-2.0
//
// The blocks of a cluster, each with its part of a token's lists, make one output. A unit is 64
// dims of a head; a block owns `share` of the 128 units and gets them from every block (itself
// too). With m a block's reference, l its sum, o its values over l, M the largest m:
//
//   total = sum 2^(m - M) l      lse = M + log2(total)      output = sum 2^(m - M) l / total * o
//
// References and sums travel as soon as the last tile is scored, so that the weights are there
// before the parts. Parts are f16, in a unit that the largest of a group fits: that of
// Values::exponent, in which none exceeds 2^16; for RoPE, which has no scales, one found here.
#pragma once

#include "softmax.cuh"
#include "values.cuh"

namespace mla {

struct Merge {
  int splits, rank;
  int share;       // ceil(128 / splits); the last blocks own fewer, or none
  int reciprocal;  // ceil(2^16 / share)

  static constexpr int kUnits = kHeads * kGroups;
  static constexpr int kSumBytes = kHeads * sizeof(float2);

  KVR_DEVICE int Units() const { return max(0, min(share, kUnits - rank * share)); }
  KVR_DEVICE int PartBytes() const {
    return Units() * kGroupDims * static_cast<int>(sizeof(uint16_t)) +
           kGroups * static_cast<int>(sizeof(int));
  }
};

// What a sink leaves of the output: 1 / (1 + e^(sink - lse ln 2)).
KVR_DEVICE float SinkFactor(float sink, float lse) {
  return __fdividef(1, 1 + kvr::Exp2(sink * kvr::kLog2E - lse));
}

// Of a score warp, which has two heads: its softmax to what the values are to be multiplied by, and
// to lse. `sink`: of head 2 w + lane / 16. lse: of the first of the block's heads.
template <class Shape>
KVR_DEVICE void Weigh(typename Shape::Shared& shared, const Merge& merge,
                      const Softmax<Shape>& softmax, float sink, int heads, float* lse) {
  const int lane = kvr::LaneIndex(), split = lane % 16;
  float sum[2] = {softmax.sum[0], softmax.sum[1]};
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    sum[0] += __shfl_xor_sync(kvr::kAllLanes, sum[0], lanes);
    sum[1] += __shfl_xor_sync(kvr::kAllLanes, sum[1], lanes);
  }
  const int i = lane / 16, head = 2 * kvr::WarpIndex() + i;
  const float2 own =
      make_float2(i == 0 ? softmax.reference[0] : softmax.reference[1], i == 0 ? sum[0] : sum[1]);
  const float inverse = own.y > 0 ? __fdividef(1, own.y) : 0;
  if (merge.splits == 1) {
    const float total = own.x + kvr::Log2(own.y);
    if (split == 0) {
      shared.weight[head] = own.y > 0 ? inverse * SinkFactor(sink, total) : 0;
      if (head < heads) lse[head] = own.y > 0 ? total : -kvr::kInfinity;
    }
  } else {
    if (split < merge.splits) {
      kvr::StoreRemote(kvr::RankAddress(&shared.sums[merge.rank][head], split),
                       kvr::RankAddress(&shared.sums_received, split), own);
    }
    if (split == 0) shared.weight[head] = inverse;
    kvr::Arrive(&shared.weighed[0]);
    kvr::WaitBarrier(&shared.sums_received, 0);
    const float2 part = split < merge.splits ? shared.sums[split][head] : make_float2(-1e30f, 0);
    const float largest = kvr::WarpMax<16>(part.x);
    const float weight = kvr::Exp2(part.x - largest) * part.y;
    const float weights = kvr::WarpSum<16>(weight);
    const float total = largest + kvr::Log2(weights);
    shared.split_weight[head][split] =
        weights > 0 ? weight * __fdividef(1, weights) * SinkFactor(sink, total) : 0;
    if (merge.rank == 0 && split == 0 && head < heads) {
      lse[head] = weights > 0 ? total : -kvr::kInfinity;
    }
  }
  kvr::Arrive(&shared.weighed[merge.splits > 1]);
}

// Of a value warp: its values, which it multiplies by their weight, to the blocks that own them.
template <class Shape>
KVR_DEVICE void SendParts(typename Shape::Shared& shared, const Merge& merge,
                          Values<Shape>& values) {
  const int lane = kvr::LaneIndex(), g = lane / 4, t = lane % 4;
  const int group = kvr::WarpIndex() % kValueWarps;
  const float2 weights[2] = {kvr::Load<float2>(shared.weight + 2 * t),
                             kvr::Load<float2>(shared.weight + 8 + 2 * t)};
  values.Multiply(weights);
  if (group == kRopeGroup) values.FindUnit();
  if (lane < merge.splits) {
    kvr::StoreRemote(kvr::RankAddress(&shared.exponents[merge.rank][group], lane),
                     kvr::RankAddress(&shared.parts_received, lane), values.exponent);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int n = i / 2, head = n * 8 + 2 * t + i % 2, unit = head * kGroups + group;
    const int to = unit * merge.reciprocal >> 16;
    uint32_t pair[4];
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      pair[m] = kvr::PackF16x2(values.o[m][n][i % 2], values.o[m][n][2 + i % 2]);
    }
    const uint4* place =
        shared.parts + (merge.rank * merge.share + unit - to * merge.share) * 8 + g;
    kvr::StoreRemote(kvr::RankAddress(place, to), kvr::RankAddress(&shared.parts_received, to),
                     make_uint4(pair[0], pair[1], pair[2], pair[3]));
  }
}

// Of the score and value warps together: the owned units; a thread takes 4 dims of one at a time.
// output: of the first of the block's heads.
template <class Shape>
KVR_DEVICE void JoinParts(typename Shape::Shared& shared, const Merge& merge, int heads,
                          __nv_bfloat16* output) {
  constexpr int kPieces = kGroupDims / 4;
  kvr::WaitBarrier(&shared.weighed[1], 0);
  kvr::WaitBarrier(&shared.parts_received, 0);
#pragma unroll 1
  for (int i = threadIdx.x; i < merge.Units() * kPieces;
       i += (kScoreWarps + kValueWarps) * kvr::kWarpLanes) {
    const int unit = merge.rank * merge.share + i / kPieces, piece = i % kPieces;
    const int head = unit / kGroups, group = unit % kGroups;
    const uint2* parts = reinterpret_cast<const uint2*>(shared.parts) + i;
    float o[4] = {};
#pragma unroll 4
    for (int split = 0; split < merge.splits; ++split) {
      const uint2 part = parts[split * merge.share * kPieces];
      const float weight = shared.split_weight[head][split] *
                           PowerOfTwo(shared.exponents[split][group] - Values<Shape>::kHeadroom);
      const float2 low = __half22float2(kvr::Load<__half2>(&part.x));
      const float2 high = __half22float2(kvr::Load<__half2>(&part.y));
      o[0] += weight * low.x, o[1] += weight * low.y;
      o[2] += weight * high.x, o[3] += weight * high.y;
    }
    if (head < heads) {
      kvr::Store<uint2>(output + head * kDim + group * kGroupDims + 4 * piece,
                        make_uint2(kvr::PackBf16x2(o[0], o[1]), kvr::PackBf16x2(o[2], o[3])));
    }
  }
}

// Of a value warp whose block has a token's lists to itself.
template <class Shape>
KVR_DEVICE void WriteOutput(const float* weight, const Values<Shape>& values, int heads,
                            __nv_bfloat16* output) {
  const int g = kvr::LaneIndex() / 4, t = kvr::LaneIndex() % 4;
  const int group = kvr::WarpIndex() % kValueWarps;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int n = i / 2, head = n * 8 + 2 * t + i % 2;
    const float factor = weight[head] * values.Unit(group == kRopeGroup);
    uint32_t pair[4];
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      pair[m] = kvr::PackBf16x2(values.o[m][n][i % 2] * factor, values.o[m][n][2 + i % 2] * factor);
    }
    if (head < heads) {
      kvr::Store<uint4>(output + head * kDim + group * kGroupDims + 8 * g,
                        make_uint4(pair[0], pair[1], pair[2], pair[3]));
    }
  }
}

}  // namespace mla
