// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "layout.cuh"

namespace mla {

// By the value warps, which have nothing else to do yet: q [heads, 576] to `query`, zeros from
// `heads` on; each warp has 8 heads. The dims of a step are those that Scores takes together: step
// s of a group has in columns 2 t, + 1, + 8, + 9 dims 16 t + 4 s ... + 3; of RoPE, dims 8 t + 32
// (s / 2) + 4 (s % 2) ... + 3.
template <class Shape>
KVR_DEVICE void StoreQuery(typename Shape::Shared& shared, const __nv_bfloat16* q, int heads) {
  static_assert(kHeads == 8 * kValueWarps);
  const int warp = kvr::WarpIndex() - kScoreWarps, g = kvr::LaneIndex() / 4;
  const int t = kvr::LaneIndex() % 4, head = 8 * warp + g;
  // 8 dims each: of two steps of a group.
  constexpr int kPieces = 2 * (kRopeGroup + 1);
  uint4 v[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const int group = i / 2, half = i % 2;
    const int dim = 8 * (group == kRopeGroup ? t + 4 * half : 2 * t + half);
    v[i] = make_uint4(0, 0, 0, 0);
    if (head < heads) {
      v[i] = kvr::LoadReadOnly<uint4>(q + head * kKeyDims + group * kGroupDims + dim);
    }
  }
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const uint32_t pairs[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      shared.query[2 * i + j / 2][warp][j % 2][g][t] =
          i / 2 == kRopeGroup ? pairs[j]
                              : kvr::PackF16x2(kvr::LowBf16(pairs[j]), kvr::HighBf16(pairs[j]));
    }
  }
  kvr::FenceAsyncProxy();
}

// Scores of a tile, as S^T = K Q^T: 64 tokens x 64 heads, by the score warpgroup; warp w takes
// tokens 16 w ... + 15. A lane reads 16 consecutive bytes of each of its two rows: its share of
// four 16-deep steps. Before the products of a scale's dims, what has been added up so far is
// divided by that scale, which in the end multiplies all of it.
//
// Online softmax follows in the registers of the product: a lane has two tokens of 16 heads,
// 8 n + 2 t, + 1. The reference that exponents are taken from need not be the maximum, only near
// it: it moves when a score exceeds it by more than kSlack, so that most tiles need no maximum. It
// begins so low that any score moves it; padding alone leaves it there, with sum 0.
template <class Shape>
class Scores {
 public:
  static constexpr float kSlack = 8;
  static constexpr int kOwnHeads = kHeads / 4;

  KVR_DEVICE Scores() : g_(kvr::LaneIndex() / 4), t_(kvr::LaneIndex() % 4) {
    // Rows 0 4 1 5 2 6 3 7 for g = 0 ... 7: pairs that are read together lie 4 rows apart.
    row_ = 16 * kvr::WarpIndex() + g_ / 2 + 4 * (g_ % 2);
  }

  float sum[kOwnHeads] = {};  // of this lane's tokens

  // References wait in shared memory during the product: registers are short.
  KVR_DEVICE void Start(typename Shape::Shared& shared) const {
    if (threadIdx.x < kHeads) shared.reference[threadIdx.x] = -1e30f;
    kvr::SyncWarps<kScoreThreads>(kScoreBarrier);
  }

  KVR_DEVICE void Tile(const typename Shape::Stage& stage, typename Shape::Shared& shared,
                       float scale_log2, typename Shape::Probabilities& to) {
    float s[32];
    Multiply(stage, shared, scale_log2, s);
    float reference[kOwnHeads];
#pragma unroll
    for (int n = 0; n < kHeads / 8; ++n) {
      const float2 two = kvr::Load<float2>(&shared.reference[Head(2 * n)]);
      reference[2 * n] = two.x, reference[2 * n + 1] = two.y;
    }
    MoveReferences(s, shared, to, reference);
    Exponentiate(s, to, reference);
  }

 private:
  // Padding has scales 0; no others lie below.
  static constexpr float kLeastScale = 0x1p-100f;

  KVR_DEVICE static float ScaleOf(const uint8_t* row, int group) {
    const Scale scale = kvr::Load<Scale>(row + kScalesAt + group / kScaledGroups * sizeof(Scale));
    return fmaxf(scale, kLeastScale);
  }

  KVR_DEVICE void Multiply(const typename Shape::Stage& stage, typename Shape::Shared& shared,
                           float scale_log2, float (&s)[32]) const {
    const uint8_t *low_row = stage.rows[row_], *high_row = low_row + 8 * kRowStride;
    const uint8_t *low = low_row + 16 * t_, *high = high_row + 16 * t_;
    const uint64_t query = kvr::MatrixAddress(shared.query, 128, 256);
    constexpr int kStep = sizeof(shared.query[0]) / 16;  // in the unit of a MatrixAddress

    {
      uint32_t a[16];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4 x = kvr::Load<uint4>(low + kRopeAt + i * 64);
        const uint4 y = kvr::Load<uint4>(high + kRopeAt + i * 64);
        uint32_t* b = a + 8 * i;
        b[0] = x.x, b[1] = y.x, b[2] = x.y, b[3] = y.y, b[4] = x.z, b[5] = y.z, b[6] = x.w,
        b[7] = y.w;
      }
      kvr::FenceProducts();
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        kvr::ProductBf16<false>(s, a + 4 * step, query + (kRopeGroup * 4 + step) * kStep, step > 0);
      }
      kvr::CommitProducts();
    }
    // Sums stand in the unit of the scale of the products that come next.
    float low_unit = 1, high_unit = 1;
    uint4 x = kvr::Load<uint4>(low), y = kvr::Load<uint4>(high);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const uint32_t xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
      uint32_t a[16];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t* b = a + 4 * i;
        UnpackE4m3(xs[i], b[0], b[2]);
        UnpackE4m3(ys[i], b[1], b[3]);
      }
      if (group + 1 < kGroups) {
        x = kvr::Load<uint4>(low + (group + 1) * kGroupDims);
        y = kvr::Load<uint4>(high + (group + 1) * kGroupDims);
      }
      if (group % kScaledGroups == 0) {
        const float low_scale = ScaleOf(low_row, group), high_scale = ScaleOf(high_row, group);
        const float low_change = __fdividef(low_unit, low_scale);
        const float high_change = __fdividef(high_unit, high_scale);
        low_unit = low_scale, high_unit = high_scale;
        kvr::WaitForProducts<0>();
#pragma unroll
        for (int i = 0; i < 32; ++i) s[i] *= i % 4 < 2 ? low_change : high_change;
      }
      const uint64_t at = query + group * 4 * kStep;
      kvr::FenceProducts();
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        kvr::ProductF16<false>(s, a + 4 * step, at + step * kStep, true);
      }
      kvr::CommitProducts();
      if (group % kScaledGroups == 0) kvr::WaitForProducts<1>();
    }
    kvr::WaitForProducts<0>();
    const float low_mask = stage.mask[row_], high_mask = stage.mask[row_ + 8];
    low_unit *= scale_log2, high_unit *= scale_log2;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const bool is_low = i % 4 < 2;
      s[i] = fmaf(s[i], is_low ? low_unit : high_unit, is_low ? low_mask : high_mask);
    }
  }

  // The score of own head i = 2 n + e of the lower or upper row.
  KVR_DEVICE static int At(int i, int upper) { return i / 2 * 4 + 2 * upper + i % 2; }

  // The references are the warpgroup's, so all of it takes the same way.
  KVR_DEVICE void MoveReferences(const float (&s)[32], typename Shape::Shared& shared,
                                 typename Shape::Probabilities& to, float (&reference)[kOwnHeads]) {
    float excess = -kvr::kInfinity;
#pragma unroll
    for (int i = 0; i < kOwnHeads; ++i) {
      excess = fmaxf(excess, fmaxf(s[At(i, 0)], s[At(i, 1)]) - reference[i]);
    }
    const bool moved = kvr::AnyOfWarps<kScoreThreads>(kScoreBarrier, excess > kSlack);
    if (threadIdx.x == 0) to.moved = moved;
    if (!moved) return;
#pragma unroll
    for (int i = 0; i < kOwnHeads; ++i) {
      float largest = fmaxf(s[At(i, 0)], s[At(i, 1)]);
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(kvr::kAllLanes, largest, lanes));
      }
      if (g_ == 0) shared.table[kvr::WarpIndex()][Head(i)] = largest;
    }
    kvr::SyncWarps<kScoreThreads>(kScoreBarrier);
#pragma unroll
    for (int i = 0; i < kOwnHeads; ++i) {
      float largest = shared.table[0][Head(i)];
#pragma unroll
      for (int warp = 1; warp < kScoreWarps; ++warp) {
        largest = fmaxf(largest, shared.table[warp][Head(i)]);
      }
      float factor = 1;
      if (largest > reference[i] + kSlack) {
        factor = kvr::Exp2(reference[i] - largest);
        reference[i] = largest;
        sum[i] *= factor;
      }
      if (kvr::WarpIndex() == 0 && g_ == 0) {
        to.rescale[Head(i)] = factor;
        shared.reference[Head(i)] = reference[i];
      }
    }
    kvr::SyncWarps<kScoreThreads>(kScoreBarrier);  // `table` may be written again
  }

  KVR_DEVICE void Exponentiate(const float (&s)[32], typename Shape::Probabilities& to,
                               const float (&reference)[kOwnHeads]) {
#pragma unroll
    for (int n = 0; n < kHeads / 8; ++n) {
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        const float p = kvr::Exp2(s[4 * n + 2 * upper] - reference[2 * n]);
        const float r = kvr::Exp2(s[4 * n + 2 * upper + 1] - reference[2 * n + 1]);
        sum[2 * n] += p, sum[2 * n + 1] += r;
        to.f16[(row_ + 8 * upper) / 8][n][row_ % 8][t_] = kvr::PackF16x2(p, r);
      }
    }
    kvr::FenceAsyncProxy();
  }

 public:
  KVR_DEVICE int Head(int i) const { return i / 2 * 8 + 2 * t_ + i % 2; }

 private:
  const int g_, t_;
  int row_;  // of this lane; its other is row_ + 8
};

}  // namespace mla
