// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "layout.cuh"

namespace mla {

// Dims 0 and 2, 1 and 3, of four.
KVR_DEVICE uint32_t EvenPair(uint32_t low, uint32_t high) { return __byte_perm(low, high, 0x5410); }
KVR_DEVICE uint32_t OddPair(uint32_t low, uint32_t high) { return __byte_perm(low, high, 0x7632); }

// By the value warps, which have nothing else to do yet: q [heads, 512] to `query`, zeros from
// `heads` on.
KVR_DEVICE void StoreQuery(Shared& shared, const __nv_bfloat16* q, int heads) {
  constexpr int kSixteens = kStoredGroups * kGroupDims / 16;  // of a head
  constexpr int kOfThread = kHeads * kSixteens / kValueThreads;
  const int thread = threadIdx.x - kScoreThreads;
  uint4 v[kOfThread][2];
#pragma unroll
  for (int i = 0; i < kOfThread; ++i) {
    const int sixteen = thread + i * kValueThreads, head = sixteen / kSixteens;
    const __nv_bfloat16* from =
        q + head * kDim + kHeldGroups * kGroupDims + sixteen % kSixteens * 16;
    v[i][0] = v[i][1] = make_uint4(0, 0, 0, 0);
    if (head < heads) {
      v[i][0] = kvr::LoadReadOnly<uint4>(from), v[i][1] = kvr::LoadReadOnly<uint4>(from + 8);
    }
  }
#pragma unroll
  for (int i = 0; i < kOfThread; ++i) {
    const int sixteen = thread + i * kValueThreads, head = sixteen / kSixteens;
    const int group = kHeldGroups + sixteen % kSixteens / 4;
    uint8_t* block = shared.query[group - kHeldGroups].bytes;
    const uint4 &a = v[i][0], &b = v[i][1];
    if (group == kRopeGroup) {
      kvr::Store(block + Swizzled(head, 2 * (sixteen % 4)), a);
      kvr::Store(block + Swizzled(head, 2 * (sixteen % 4) + 1), b);
    } else {
      kvr::Store(block + Swizzled(head, ChunkOf(group, sixteen % 4, 0)),
                 make_uint4(EvenPair(a.x, a.y), EvenPair(a.z, a.w), EvenPair(b.x, b.y),
                            EvenPair(b.z, b.w)));
      kvr::Store(
          block + Swizzled(head, ChunkOf(group, sixteen % 4, 1)),
          make_uint4(OddPair(a.x, a.y), OddPair(a.z, a.w), OddPair(b.x, b.y), OddPair(b.z, b.w)));
    }
  }
  kvr::FenceAsyncProxy();
}

// Scores of a tile, S = Q K^T: 64 heads x 64 tokens, by the score warpgroup; warp w has heads 16 w
// ... + 15, a lane heads Head(0) and Head(1) of tokens 8 n + 2 t, + 1.
//
// Online softmax follows in the registers of the product. The reference that exponents are taken
// from need not be the maximum, only near it: it moves when a score exceeds it by more than kSlack,
// so that most tiles need no maximum. It begins so low that any score moves it; padding alone
// leaves it there, with sum 0.
class Scores {
 public:
  static constexpr float kSlack = 8;

  float reference[2] = {-1e30f, -1e30f};
  float sum[2] = {};  // of this lane's tokens

  KVR_DEVICE static int Head(int upper) {
    return 16 * kvr::WarpIndex() + 8 * upper + kvr::LaneIndex() / 4;
  }

  // Fragments of A: a lane's four values of a step are four dims in a row.
  KVR_DEVICE void LoadQuery(const __nv_bfloat16* q, int heads) {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const __nv_bfloat16* from = q + Head(upper) * kDim + kvr::LaneIndex() % 4 * 4;
#pragma unroll
      for (int step = 0; step < kHeldSteps; ++step) {
        uint2 four = make_uint2(0, 0);
        if (Head(upper) < heads) four = kvr::LoadReadOnly<uint2>(from + 16 * step);
        query_[step][upper + 2 * ChunkOf(step / 4, 0, 0)] = EvenPair(four.x, four.y);
        query_[step][upper + 2 * ChunkOf(step / 4, 0, 1)] = OddPair(four.x, four.y);
      }
    }
  }

  KVR_DEVICE void Tile(Shared& shared, int stage, int parity, float scale_log2) {
    const int lane = kvr::LaneIndex(), warp = kvr::WarpIndex();
    float s[32];
    Multiply(shared, stage, s);
    const float* mask = shared.mask[stage] + lane % 4 * 2;
    float largest[2] = {-kvr::kInfinity, -kvr::kInfinity};
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
      const float2 masks = kvr::Load<float2>(mask + 8 * n);
#pragma unroll
      for (int i = 4 * n; i < 4 * n + 4; ++i) {
        s[i] = fmaf(s[i], scale_log2, i % 2 == 0 ? masks.x : masks.y);
        largest[Upper(i)] = fmaxf(largest[Upper(i)], s[i]);
      }
    }
    const bool moved = __any_sync(
        kvr::kAllLanes, largest[0] > reference[0] + kSlack || largest[1] > reference[1] + kSlack);
    kvr::WaitBarrier(&shared.taken, parity ^ 1);
    if (lane == 0) shared.moved[warp] = moved;
    if (moved) {
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        const float row = kvr::WarpMax<4>(largest[upper]);
        float factor = 1;
        if (row > reference[upper] + kSlack) {
          factor = kvr::Exp2(reference[upper] - row);
          reference[upper] = row;
          sum[upper] *= factor;
        }
        if (lane % 4 == 0) shared.rescale[Head(upper)] = factor;
      }
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      s[i] = kvr::Exp2(s[i] - reference[Upper(i)]);
      sum[Upper(i)] += s[i];
    }
    const int row = 16 * warp + lane % 16;
#pragma unroll
    for (int n = 0; n < kTile / 8; n += 2) {
      StoreMatrixX4(
          shared.probabilities.bytes + Swizzled(row, n + lane / 16),
          kvr::PackBf16x2(s[4 * n], s[4 * n + 1]), kvr::PackBf16x2(s[4 * n + 2], s[4 * n + 3]),
          kvr::PackBf16x2(s[4 * n + 4], s[4 * n + 5]), kvr::PackBf16x2(s[4 * n + 6], s[4 * n + 7]));
    }
    kvr::FenceAsyncProxy();
  }

 private:
  static constexpr int kHeldSteps = kHeldGroups * kGroupDims / 16;

  // Whether s[i] is of Head(1).
  KVR_DEVICE static constexpr int Upper(int i) { return i / 2 % 2; }

  KVR_DEVICE void Multiply(Shared& shared, int stage, float (&s)[32]) {
    constexpr int kBlock = sizeof(Block<kTile>) / 16;  // in the unit of an address
    const uint64_t keys = BlockAddress(shared.tiles[stage]);
    const uint64_t query = BlockAddress(shared.query) - kHeldGroups * kBlock;
    kvr::FenceProducts();
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      const int at = step / 4 * kBlock + step % 4 * kColumnStep;
      if (step < kHeldSteps) {
        kvr::ProductBf16<false>(s, query_[step], keys + at, step > 0);
      } else {
        AddProduct(s, query + at, keys + at);
      }
    }
    kvr::CommitProducts();
    kvr::WaitForProducts<0>();
  }

  uint32_t query_[kHeldSteps][4];
};

}  // namespace mla
