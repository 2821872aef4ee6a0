// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "layout.cuh"

namespace mla {

// Output of a value warp: O^T = V^T P^T, the 64 dims of its group x 16 heads. A lane holds dims
// 8 g + 2 m, + 1 (m = 0 ... 3) of heads 8 n + 2 t, + 1: o[m][n] = {dim 8g+2m: head 2t, 2t+1; dim
// 8g+2m+1: head 2t, 2t+1} of heads 8 n.
//
// Rows need no transposing for this: a lane reads the same 8 dims of 4 tokens, and two tokens are
// zipped byte by byte before they become f16, which gives pairs of tokens, as the product wants.
//
// A token's scale goes into its probabilities, 16 multiplications instead of 64. f16 has a narrow
// range, so scales are taken relative to a power of two that none of this group so far exceeds,
// `exponent`, times 2^kHeadroom. A probability is at most 2^kSlack, so nothing exceeds 2^15; what
// is lost below 2^-24 is at most 2^-30 of the largest row's value. RoPE, where it is a part of the
// value, has no scales, and multiplies in bf16.
template <class Shape>
struct Values {
  static constexpr int kHeadroom = 7;
  static constexpr int kSteps = Shape::kTile / 16;

  float o[4][2][4] = {};
  int exponent = 0;  // biased

  // By a factor for each of the lane's heads.
  KVR_DEVICE void Multiply(const float2 (&factors)[2]) {
#pragma unroll
    for (int m = 0; m < 4; ++m) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        o[m][n][0] *= factors[n].x, o[m][n][1] *= factors[n].y;
        o[m][n][2] *= factors[n].x, o[m][n][3] *= factors[n].y;
      }
    }
  }

  // Gives values without scales the unit in which the warp's largest lies in [2^14, 2^15).
  KVR_DEVICE void FindUnit() {
    float largest = 0;
#pragma unroll
    for (int m = 0; m < 4; ++m) {
#pragma unroll
      for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(o[m][i / 4][i % 4]));
    }
    const int biased = __reduce_max_sync(kvr::kAllLanes, __float_as_int(largest)) >> 23;
    exponent = max(biased - kHeadroom, kHeadroom + 1);
    const float factor = PowerOfTwo(2 * 127 + kHeadroom - exponent);
    const float2 factors[2] = {make_float2(factor, factor), make_float2(factor, factor)};
    Multiply(factors);
  }

  // What `o` has to be multiplied by.
  KVR_DEVICE float Unit(bool rope) const { return rope ? 1.0f : PowerOfTwo(exponent - kHeadroom); }

  // A tile of a group, of which no more than the first `rows` count. factors: [kTile / 2], this
  // warp's own. Waits for `scored`, and until then for nothing but the rows.
  KVR_DEVICE void Tile(const typename Shape::Stage& stage, int group, uint32_t* factors,
                       const typename Shape::Probabilities& probabilities, int rows,
                       uint64_t* scored, int parity) {
    if constexpr (kRopeIsValue) {
      if (group == kRopeGroup) return RopeTile(stage, probabilities, rows, scored, parity);
    }
    CodeTile(stage, group, factors, probabilities, rows, scored, parity);
  }

 private:
  KVR_DEVICE void CodeTile(const typename Shape::Stage& stage, int group, uint32_t* factors,
                           const typename Shape::Probabilities& probabilities, int rows,
                           uint64_t* scored, int parity) {
    const int lane = kvr::LaneIndex(), g = lane / 4, t = lane % 4;
    const uint8_t* at = stage.rows[0] + RowOffset(2 * t) + group * kGroupDims + 8 * g;
    uint2 v[kPrefetched][4];
#pragma unroll
    for (int step = 0; step < kPrefetched; ++step) LoadTokens(at, step, v[step]);

    // Scales of a pair of tokens as f16; then those of the tokens that this lane multiplies (2 t,
    // 2 t + 1, + 8, + 9 of each step), which were stored side by side.
    const int pair = lane % (8 * kSteps);
    Scale low, high;
    LoadScales(stage, pair, group, low, high);
    const int larger = max(Exponent(low), Exponent(high));
    float change = 1;
    if (__any_sync(kvr::kAllLanes, larger > exponent)) {
      const int largest = __reduce_max_sync(kvr::kAllLanes, larger);
      change = kvr::Exp2(static_cast<float>(exponent - largest));
      exponent = largest;
    }
    const int unit = 127 + kHeadroom - exponent;
    __syncwarp();
    factors[pair % 4 * (2 * kSteps) + pair / 4] =
        kvr::PackF16x2(TimesPowerOfTwo(low, unit), TimesPowerOfTwo(high, unit));
    __syncwarp();
    uint32_t factor[2 * kSteps];
#pragma unroll
    for (int i = 0; i < 2 * kSteps; i += 4) {
      const uint4 four = kvr::Load<uint4>(factors + 2 * kSteps * t + i);
      factor[i] = four.x, factor[i + 1] = four.y, factor[i + 2] = four.z, factor[i + 3] = four.w;
    }

    kvr::WaitBarrier(scored, parity);
    Rescale(probabilities, change);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step > 0 && step * 16 >= rows) break;
      uint32_t b[4];
      LoadProbabilities(probabilities.tables[0], step, b);
      b[0] = MultiplyF16x2(b[0], factor[2 * step]),
      b[1] = MultiplyF16x2(b[1], factor[2 * step + 1]);
      b[2] = MultiplyF16x2(b[2], factor[2 * step]),
      b[3] = MultiplyF16x2(b[3], factor[2 * step + 1]);
      uint2(&w)[4] = v[step % kPrefetched];
      if (step >= kPrefetched) LoadTokens(at, step, w);
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        // Bytes 0 and 1, or 2 and 3, of both: token, next token; dim, next dim.
        const int zip = m % 2 == 0 ? 0x5140 : 0x7362;
        uint32_t a[4];
        UnpackE4m3(__byte_perm(m < 2 ? w[0].x : w[0].y, m < 2 ? w[1].x : w[1].y, zip), a[0], a[1]);
        UnpackE4m3(__byte_perm(m < 2 ? w[2].x : w[2].y, m < 2 ? w[3].x : w[3].y, zip), a[2], a[3]);
        kvr::MmaF16(o[m][0], a, b[0], b[1]);
        kvr::MmaF16(o[m][1], a, b[2], b[3]);
      }
    }
  }

  // The same of the RoPE group, which is not scaled.
  KVR_DEVICE void RopeTile(const typename Shape::Stage& stage,
                           const typename Shape::Probabilities& probabilities, int rows,
                           uint64_t* scored, int parity) {
    const int g = kvr::LaneIndex() / 4, t = kvr::LaneIndex() % 4;
    const uint8_t* at = stage.rows[0] + RowOffset(2 * t) + kRopeGroup * kGroupDims + 16 * g;
    uint4 v[kRopeBuffers][4];
#pragma unroll
    for (int step = 0; step < kRopePrefetched; ++step) LoadTokens(at, step, v[step]);
    kvr::WaitBarrier(scored, parity);
    Rescale(probabilities, 1);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step > 0 && step * 16 >= rows) break;
      uint32_t b[4];
      LoadProbabilities(probabilities.tables[1], step, b);
      uint4(&w)[4] = v[step % kRopeBuffers];
      if (step >= kRopePrefetched) LoadTokens(at, step, w);
      const uint32_t words[4][4] = {{w[0].x, w[0].y, w[0].z, w[0].w},
                                    {w[1].x, w[1].y, w[1].z, w[1].w},
                                    {w[2].x, w[2].y, w[2].z, w[2].w},
                                    {w[3].x, w[3].y, w[3].z, w[3].w}};
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const uint32_t a[4] = {__byte_perm(words[0][m], words[1][m], 0x5410),
                               __byte_perm(words[0][m], words[1][m], 0x7632),
                               __byte_perm(words[2][m], words[3][m], 0x5410),
                               __byte_perm(words[2][m], words[3][m], 0x7632)};
        kvr::MmaBf16(o[m][0], a, b[0], b[1]);
        kvr::MmaBf16(o[m][1], a, b[2], b[3]);
      }
    }
  }

  // Steps whose rows are read while scoring goes on: as many as fit into registers.
  static constexpr bool kManyRegisters = Shape::kValueRegisters > kRegisters;
  static constexpr int kPrefetched = kManyRegisters ? kSteps : 1;
  static constexpr int kRopePrefetched = kManyRegisters ? 2 : 0;
  static constexpr int kRopeBuffers = kManyRegisters ? 2 : 1;

  // 8 dims of tokens 2 t, + 1, + 8, + 9 of a step. Bytes: uint2 or, of RoPE, uint4.
  template <typename Bytes>
  KVR_DEVICE static void LoadTokens(const uint8_t* at, int step, Bytes (&v)[4]) {
    at += RowOffset(step * 16);
    v[0] = kvr::Load<Bytes>(at), v[1] = kvr::Load<Bytes>(at + RowOffset(1));
    v[2] = kvr::Load<Bytes>(at + RowOffset(8)), v[3] = kvr::Load<Bytes>(at + RowOffset(9));
  }

  // The four 8x8 tiles of an ldmatrix: heads 0...7 and 8...15, tokens 0...7 and 8...15 of each.
  KVR_DEVICE static void LoadProbabilities(const uint16_t (*prob)[Shape::kProbStride], int step,
                                           uint32_t (&b)[4]) {
    const int lane = kvr::LaneIndex();
    kvr::LoadMatrixX4(b, &prob[lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8 + step * 16]);
  }

  KVR_DEVICE void Rescale(const typename Shape::Probabilities& probabilities, float change) {
    const int t = kvr::LaneIndex() % 4;
    float2 f[2] = {kvr::Load<float2>(probabilities.rescale + 2 * t),
                   kvr::Load<float2>(probabilities.rescale + 8 + 2 * t)};
    const bool changes = f[0].x != 1 || f[0].y != 1 || f[1].x != 1 || f[1].y != 1 || change != 1;
    if (!__any_sync(kvr::kAllLanes, changes)) return;
    f[0].x *= change, f[0].y *= change, f[1].x *= change, f[1].y *= change;
    Multiply(f);
  }
};

}  // namespace mla
