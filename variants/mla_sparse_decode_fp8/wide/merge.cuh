// SPDX-License-Identifier: Apache-2.0
//
// The blocks of a cluster, each with its part of a token's lists, make one output. A unit is 64
// dims of a head; a block owns `share` of the 512 units and gets them from every block. With m a
// block's reference, l its sum, o its values, M the largest m:
//
//   total = sum 2^(m - M) l      lse = M + log2(total)      output = sum 2^(m - M) / total * o
//
// References and sums travel as soon as the last tile is scored, so that weights are there before
// the parts. Parts are f16 with a scale for each unit, a power of two that lets the largest of its
// dims fit: bf16, rounded once more at the end, would miss the bounds. They lie where the tiles
// were, so all blocks must have used those. A block alone writes its values as bf16 at once.
//
// What orders the hand-overs: `sums` and parts count their bytes at the receiver's barriers, whose
// waiters may read them. Parts are sent when all threads of the cluster have met, each after the
// last use of its block's tiles: products have been waited for, and other stores into tiles have
// passed FenceAsyncProxy before the products that read them. A block ends when all have met again,
// each with its parts received, so that nobody copies from it any more.
#pragma once

#include <cuda_fp16.h>

#include "scores.cuh"
#include "values.cuh"

namespace mla {

struct Merge {
  int splits, rank;
  int share;  // a multiple of 4, >= 512 / splits; the last blocks own fewer, or none

  static constexpr int kUnits = kHeads * kGroups;
  static constexpr int kUnitBytes = kGroupDims * sizeof(__nv_bfloat16);
  static constexpr int kSumBytes = kHeads * sizeof(float2);

  KVR_DEVICE int Begin(int owner) const { return owner * share * kUnitBytes; }
  KVR_DEVICE int Units(int owner) const { return max(0, min(share, kUnits - owner * share)); }
  KVR_DEVICE int Bytes(int owner) const { return Units(owner) * kUnitBytes; }
  KVR_DEVICE int ScaleBytes(int owner) const {
    return Units(owner) * static_cast<int>(sizeof(float));
  }
  // What a block gets from each other one.
  KVR_DEVICE int PartBytes(int owner) const { return ScaleBytes(owner) + Bytes(owner); }
  // All threads of the cluster.
  KVR_DEVICE void Meet() const {
    if (splits > 1) kvr::ClusterArrive(), kvr::ClusterWait();
  }
};

// From this block's shared memory to another's, whose barrier counts the bytes. Stores before it
// have passed FenceAsyncProxy and a barrier.
KVR_DEVICE void SendBytes(uint32_t to, const void* shared, int bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];\n" ::"r"(to),
      "r"(kvr::SharedAddress(shared)), "r"(bytes), "r"(barrier)
      : "memory");
}

// What a sink leaves of the output: 1 / (1 + e^(sink - lse ln 2)).
KVR_DEVICE float SinkFactor(float sink, float lse) {
  return __fdividef(1, 1 + kvr::Exp2(sink * kvr::kLog2E - lse));
}

// By the score warps: each block's weight, in place of its reference, and lse. sink: of head
// threadIdx.x / 2. lse: of the first of the block's heads.
KVR_DEVICE void Weigh(Shared& shared, const Merge& merge, const Scores& scores, float sink,
                      int heads, float* lse) {
  const int t = kvr::LaneIndex() % 4;
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
    const float2 own = make_float2(scores.reference[upper], kvr::WarpSum<4>(scores.sum[upper]));
    float2* const place = &shared.sums[merge.rank][Scores::Head(upper)];
    if (merge.splits == 1 && t == 0) *place = own;
#pragma unroll 1
    for (int to = t; merge.splits > 1 && to < merge.splits; to += 4) {
      kvr::StoreRemote(kvr::RankAddress(place, to), kvr::RankAddress(&shared.sums_received, to),
                       own);
    }
  }
  if (merge.splits > 1) kvr::WaitBarrier(&shared.sums_received, 0);
  __syncwarp();
  const int head = threadIdx.x / 2, first = threadIdx.x % 2;  // two lanes a head, every other split
  float largest = -1e30f, total = 0;
#pragma unroll 1
  for (int split = first; split < merge.splits; split += 2) {
    largest = fmaxf(largest, shared.sums[split][head].x);
  }
  largest = kvr::WarpMax<2>(largest);
#pragma unroll 1
  for (int split = first; split < merge.splits; split += 2) {
    const float2 part = shared.sums[split][head];
    total += kvr::Exp2(part.x - largest) * part.y;
  }
  total = kvr::WarpSum<2>(total);
  const float all = largest + kvr::Log2(total);
  const float factor = total > 0 ? __fdividef(1, total) * SinkFactor(sink, all) : 0;
#pragma unroll 1
  for (int split = first; split < merge.splits; split += 2) {
    float& x = shared.sums[split][head].x;
    x = kvr::Exp2(x - largest) * factor;
  }
  if (merge.rank == 0 && first == 0 && head < heads) lse[head] = total > 0 ? all : -kvr::kInfinity;
  kvr::Arrive(&shared.weighed);
}

// Byte of a head's row in `staged` and `parts`. Rows are 1024 apart, so 32 bytes change places, or
// four heads would share banks.
KVR_DEVICE int StagedByte(int head, int dim) { return 2 * dim ^ head % 4 * 32; }

// By the value warps: their values to the blocks that own them.
KVR_DEVICE void SendParts(Shared& shared, const Merge& merge, Values& values) {
  const bool alone = merge.splits == 1;
  float scales[2][Values::kPartGroups];
  if (alone) {  // weighed here, so that they are rounded once
    kvr::WaitBarrier(&shared.weighed, 0);
    values.Multiply({shared.sums[0][Values::Head(0)].x, shared.sums[0][Values::Head(1)].x});
  } else {
    values.Scale(scales);
  }
  kvr::SyncWarps<kValueThreads>(kValueBarrier);  // all products are over
  values.ForEach(
      [alone](float low, float high) {
        return alone ? kvr::PackBf16x2(low, high) : kvr::PackF16x2(low, high);
      },
      [&](int head, int dim, const auto& pairs) {
        kvr::Store(shared.staged + head * (2 * kDim) + StagedByte(head, dim), pairs);
      });
  if (!alone && kvr::LaneIndex() % 4 == 0) {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const int unit = Values::Head(upper) * kGroups + Values::kPartGroups * Values::Part();
      const auto& s = scales[upper];
      kvr::Store(&shared.part_scales[merge.rank][unit], make_float4(s[0], s[1], s[2], s[3]));
    }
  }
  kvr::FenceAsyncProxy();
  kvr::SyncWarps<kValueThreads>(kValueBarrier);
  merge.Meet();  // no block uses its tiles any more
  const int to = threadIdx.x - kScoreThreads;
  if (to < merge.splits && to != merge.rank && merge.Bytes(to) > 0) {
    const uint32_t received = kvr::RankAddress(&shared.parts_received, to);
    const float* const own = &shared.part_scales[merge.rank][to * merge.share];
    SendBytes(kvr::RankAddress(own, to), own, merge.ScaleBytes(to), received);
    SendBytes(kvr::RankAddress(shared.parts + merge.Begin(merge.rank), to),
              shared.staged + merge.Begin(to), merge.Bytes(to), received);
  }
}

// By the score and value warps: the owned units; a thread takes 8 dims of one at a time. output: of
// the first of the block's heads.
KVR_DEVICE void JoinParts(Shared& shared, const Merge& merge, int heads, __nv_bfloat16* output) {
  constexpr int kJoiners = kScoreThreads + kValueThreads, kAtOnce = 2;
  const bool alone = merge.splits == 1;
  const int pieces = merge.Bytes(merge.rank) / 16;
  kvr::SyncWarps<kJoiners>(kScoreValueBarrier);  // this block's part
  kvr::WaitBarrier(&shared.weighed, 0);
  kvr::WaitBarrier(&shared.parts_received, 0);
#pragma unroll 1
  for (int first = threadIdx.x; first < pieces; first += kAtOnce * kJoiners) {
    float o[kAtOnce][8] = {};
    int at[kAtOnce], byte[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      at[i] = merge.Begin(merge.rank) / 2 + 8 * min(first + i * kJoiners, pieces - 1);
      byte[i] = at[i] / kDim * (2 * kDim) + StagedByte(at[i] / kDim, at[i] % kDim) -
                merge.Begin(merge.rank);
    }
#pragma unroll 2
    for (int split = 0; split < merge.splits; ++split) {
      const uint8_t* from =
          (split == merge.rank ? shared.staged : shared.parts) + merge.Begin(split);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const uint4 v = kvr::Load<uint4>(from + byte[i]);
        const uint32_t pairs[4] = {v.x, v.y, v.z, v.w};
        const int head = at[i] / kDim, unit = at[i] / kGroupDims;
        const float weight =
            alone ? 1 : shared.sums[split][head].x * shared.part_scales[split][unit];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float2 two = alone ? make_float2(kvr::LowBf16(pairs[j]), kvr::HighBf16(pairs[j]))
                                   : __half22float2(kvr::Load<__half2>(&pairs[j]));
          o[i][2 * j] += weight * two.x;
          o[i][2 * j + 1] += weight * two.y;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (at[i] / kDim < heads) {
        kvr::Store(
            output + at[i],
            make_uint4(kvr::PackBf16x2(o[i][0], o[i][1]), kvr::PackBf16x2(o[i][2], o[i][3]),
                       kvr::PackBf16x2(o[i][4], o[i][5]), kvr::PackBf16x2(o[i][6], o[i][7])));
      }
    }
  }
  merge.Meet();  // what this block has staged has been read
}

}  // namespace mla
