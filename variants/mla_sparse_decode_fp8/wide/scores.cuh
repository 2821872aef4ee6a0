// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "layout.cuh"

namespace mla {

// By the value warps, which have nothing else to do yet: q [heads, 512] to `query`, zeros from
// `heads` on. The dims of a step are those that Scores takes together: step s of a group has in
// columns 2 t, + 1, + 8, + 9 dims 16 t + 4 s ... + 3; of RoPE, dims 8 t + 32 (s / 2) + 4 (s % 2)
// ... + 3.
template <class Shape>
KVR_DEVICE void StoreQuery(typename Shape::Shared& shared, const __nv_bfloat16* q, int heads) {
  constexpr int kPieces = kHeads * kDim / 8, kAtOnce = 8;
  const int thread = threadIdx.x % kValueThreads;
#pragma unroll 1
  for (int first = thread; first < kPieces; first += kAtOnce * kValueThreads) {
    uint4 v[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int piece = first + i * kValueThreads;
      v[i] = make_uint4(0, 0, 0, 0);
      if (piece / (kDim / 8) < heads) v[i] = kvr::LoadReadOnly<uint4>(q + piece * 8);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int piece = first + i * kValueThreads;
      const int head = piece / (kDim / 8), group = piece / 8 % kGroups, dim = piece % 8 * 8;
      const bool rope = group == kRopeGroup;
      const int t = rope ? dim / 8 % 4 : dim / 16;
      const int step = rope ? dim / 32 * 2 : dim / 8 % 2 * 2;
      const uint32_t pairs[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        shared.query[group * 4 + step + j / 2][head / 8][j % 2][head % 8][t] =
            rope ? pairs[j] : kvr::PackF16x2(kvr::LowBf16(pairs[j]), kvr::HighBf16(pairs[j]));
      }
    }
  }
  kvr::FenceAsyncProxy();
}

// Scores of a tile, as S^T = K Q^T: 64 tokens x 64 heads, by the score warpgroup; warp w takes
// tokens 16 w ... + 15. A lane reads 16 consecutive bytes of each of its two rows: its share of
// four 16-deep steps. Codes become f16 times their scale relative to the row's largest.
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

  // Registers are short during the product: references and sums wait in shared memory.
  KVR_DEVICE void Start(typename Shape::Shared& shared) const {
#pragma unroll
    for (int i = 0; i < kOwnHeads; i += 4) SumsOf(shared, i) = make_float4(0, 0, 0, 0);
    if (threadIdx.x < kHeads) shared.reference[threadIdx.x] = -1e30f;
    kvr::SyncWarps<kScoreThreads>(kScoreBarrier);
  }
  // Of own heads i ... i + 3.
  KVR_DEVICE static float4& SumsOf(typename Shape::Shared& shared, int i) {
    return shared.thread_sums[i / 4][threadIdx.x];
  }

  KVR_DEVICE void Tile(const typename Shape::Stage& stage, typename Shape::Shared& shared,
                       float scale_log2, typename Shape::Probabilities& to) {
    float s[32];
    Multiply(stage, shared, scale_log2, s);
    float reference[kOwnHeads], sum[kOwnHeads];
#pragma unroll
    for (int n = 0; n < kHeads / 8; ++n) {
      const float2 two = kvr::Load<float2>(&shared.reference[Head(2 * n)]);
      reference[2 * n] = two.x, reference[2 * n + 1] = two.y;
    }
#pragma unroll
    for (int i = 0; i < kOwnHeads; i += 4) {
      const float4 four = SumsOf(shared, i);
      sum[i] = four.x, sum[i + 1] = four.y, sum[i + 2] = four.z, sum[i + 3] = four.w;
    }
    MoveReferences(s, shared, to, reference, sum);
    Exponentiate(s, to, reference, sum);
#pragma unroll
    for (int i = 0; i < kOwnHeads; i += 4) {
      SumsOf(shared, i) = make_float4(sum[i], sum[i + 1], sum[i + 2], sum[i + 3]);
    }
  }

 private:
  // Padding has scales 0; no others lie below.
  static constexpr int kLeastScale = 27;

  KVR_DEVICE static int Byte(const uint2& eight, int i) {
    return (i < 4 ? eight.x : eight.y) >> (i % 4 * 8) & 0xff;
  }
  KVR_DEVICE static int LargestScale(const uint2& scales) {
    int largest = kLeastScale;
#pragma unroll
    for (int group = 0; group < kRopeGroup; ++group) largest = max(largest, Byte(scales, group));
    return largest;
  }

  KVR_DEVICE void Multiply(const typename Shape::Stage& stage, typename Shape::Shared& shared,
                           float scale_log2, float (&s)[32]) const {
    const uint8_t* low = stage.rows[row_] + 16 * t_;
    const uint8_t* high = low + 8 * kRowStride;
    const uint2 low_scales = kvr::Load<uint2>(stage.scales[row_]);
    const uint2 high_scales = kvr::Load<uint2>(stage.scales[row_ + 8]);
    const int low_largest = LargestScale(low_scales), high_largest = LargestScale(high_scales);
    float odd[32];  // of every other step: products that add to one another wait for each other
    const uint64_t query = kvr::MatrixAddress(shared.query, 128, 256);
    constexpr int kStep = sizeof(shared.query[0]) / 16;  // in the unit of a MatrixAddress

    {
      uint32_t a[16];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4 x = kvr::Load<uint4>(low + kRopeGroup * kGroupDims + i * 64);
        const uint4 y = kvr::Load<uint4>(high + kRopeGroup * kGroupDims + i * 64);
        uint32_t* b = a + 8 * i;
        b[0] = x.x, b[1] = y.x, b[2] = x.y, b[3] = y.y, b[4] = x.z, b[5] = y.z, b[6] = x.w,
        b[7] = y.w;
      }
      kvr::FenceProducts();
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        kvr::ProductBf16<false>(step % 2 == 0 ? s : odd, a + 4 * step,
                                query + (kRopeGroup * 4 + step) * kStep, step > 1);
      }
      kvr::CommitProducts();
    }
    // To the unit that the others' products have.
    const float low_inverse = PowerOfTwo(2 * 127 + kHeadroom - low_largest);
    const float high_inverse = PowerOfTwo(2 * 127 + kHeadroom - high_largest);
    kvr::WaitForProducts<0>();
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      s[i] *= i % 4 < 2 ? low_inverse : high_inverse;
      odd[i] *= i % 4 < 2 ? low_inverse : high_inverse;
    }
#pragma unroll
    for (int group = 0; group < kRopeGroup; ++group) {
      const uint4 x = kvr::Load<uint4>(low + group * kGroupDims);
      const uint4 y = kvr::Load<uint4>(high + group * kGroupDims);
      const uint32_t xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
      const uint32_t low_scale = RelativeScale(Byte(low_scales, group), low_largest);
      const uint32_t high_scale = RelativeScale(Byte(high_scales, group), high_largest);
#pragma unroll
      for (int step = 0; step < 4; step += 2) {
        uint32_t a[8];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          uint32_t* b = a + 4 * i;
          UnpackE4m3(xs[step + i], b[0], b[2]);
          UnpackE4m3(ys[step + i], b[1], b[3]);
          b[0] = MultiplyF16x2(b[0], low_scale), b[2] = MultiplyF16x2(b[2], low_scale);
          b[1] = MultiplyF16x2(b[1], high_scale), b[3] = MultiplyF16x2(b[3], high_scale);
        }
        const uint64_t at = query + (group * 4 + step) * kStep;
        kvr::FenceProducts();
        kvr::ProductF16<false>(s, a, at, true);
        kvr::ProductF16<false>(odd, a + 4, at + kStep, true);
        kvr::CommitProducts();
        kvr::WaitForProducts<1>();
      }
    }
    kvr::WaitForProducts<0>();
    const float low_mask = stage.mask[row_], high_mask = stage.mask[row_ + 8];
    const float low_unit = PowerOfTwo(low_largest - kHeadroom) * scale_log2;
    const float high_unit = PowerOfTwo(high_largest - kHeadroom) * scale_log2;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const bool is_low = i % 4 < 2;
      s[i] = fmaf(s[i] + odd[i], is_low ? low_unit : high_unit, is_low ? low_mask : high_mask);
    }
  }

  // The score of own head i = 2 n + e of the lower or upper row.
  KVR_DEVICE static int At(int i, int upper) { return i / 2 * 4 + 2 * upper + i % 2; }

  // The references are the warpgroup's, so all of it takes the same way.
  KVR_DEVICE void MoveReferences(const float (&s)[32], typename Shape::Shared& shared,
                                 typename Shape::Probabilities& to, float (&reference)[kOwnHeads],
                                 float (&sum)[kOwnHeads]) {
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
                               const float (&reference)[kOwnHeads], float (&sum)[kOwnHeads]) {
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
