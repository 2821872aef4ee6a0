// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "layout.cuh"

namespace mla {

// Output of a value warpgroup: O^T = V^T P^T, 256 dims x 64 heads, as four products of 64 dims.
// Warp w of the group has the 64 dims that share a scale; its lane holds dims 8 g + 2 m, + 1 (m = 0
// ... 3) of heads 8 n + 2 t, + 1: o[m][4 n ...] = {dim 8g+2m: head 2t, 2t+1; dim 8g+2m+1: head 2t,
// 2t+1}.
//
// Rows need no transposing for this: a lane reads the same 8 dims of 4 tokens, and two tokens are
// zipped byte by byte before they become f16, which gives pairs of tokens, as the product wants.
// They are multiplied by their scale relative to a power of two that none of this group so far
// exceeds, `exponent`.
template <class Shape>
struct Values {
  static constexpr int kSteps = Shape::kTile / 16;

  float o[4][32] = {};
  int exponent = 0;  // biased

  // What `o` has to be multiplied by.
  KVR_DEVICE float Unit() const { return PowerOfTwo(exponent - kHeadroom); }

  // factors: [32], this warp's own. `scored` is waited for.
  KVR_DEVICE void Tile(const typename Shape::Stage& stage, int group, uint32_t* factors,
                       const typename Shape::Probabilities& probabilities, uint64_t* scored,
                       int parity) {
    const int lane = kvr::LaneIndex(), g = lane / 4, t = lane % 4;
    uint32_t factor[2 * kSteps];
    const float change = ReadScales(stage, group, factors, factor);

    kvr::WaitBarrier(scored, parity);
    Rescale(probabilities, change);
    const uint64_t b = kvr::MatrixAddress(probabilities.f16, sizeof(probabilities.f16[0]),
                                          sizeof(probabilities.f16[0][0]));
    constexpr int kStep = 2 * sizeof(probabilities.f16[0]) / 16;  // in the unit of a MatrixAddress
    const uint8_t* at = stage.rows[2 * t] + group * kGroupDims + 8 * g;
#pragma unroll
    for (int step = 0; step < kSteps; ++step, at += 16 * kRowStride) {
      uint32_t a[16];
      Fragments(at, factor[2 * step], factor[2 * step + 1], a);
      kvr::FenceProducts();
#pragma unroll
      for (int m = 0; m < 4; ++m) kvr::ProductF16<true>(o[m], a + 4 * m, b + step * kStep, true);
      kvr::CommitProducts();
      kvr::WaitForProducts<0>();  // the other warpgroups' products fill the gap
    }
  }

 private:
  // The scales of the tokens that this lane multiplies, 2 t, + 1, + 8, + 9 of each step, as f16, by
  // way of `factors`, where they lie side by side. Returns by what `exponent` has changed the unit.
  KVR_DEVICE float ReadScales(const typename Shape::Stage& stage, int group, uint32_t* factors,
                              uint32_t (&factor)[2 * kSteps]) {
    const int lane = kvr::LaneIndex(), t = lane % 4;
    Scale low, high;
    LoadScales(stage, lane, group, low, high);
    const int larger = max(Exponent(low), Exponent(high));
    float change = 1;
    if (__any_sync(kvr::kAllLanes, larger > exponent)) {
      const int largest = __reduce_max_sync(kvr::kAllLanes, larger);
      change = kvr::Exp2(static_cast<float>(exponent - largest));
      exponent = largest;
    }
    const int unit = 127 + kHeadroom - exponent;
    __syncwarp();
    factors[lane % 4 * (2 * kSteps) + lane / 4] =
        kvr::PackF16x2(TimesPowerOfTwo(low, unit), TimesPowerOfTwo(high, unit));
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2 * kSteps; i += 4) {
      const uint4 four = kvr::Load<uint4>(factors + 2 * kSteps * t + i);
      factor[i] = four.x, factor[i + 1] = four.y, factor[i + 2] = four.z, factor[i + 3] = four.w;
    }
    return change;
  }

  // A of four products, from 8 dims of tokens 2 t, + 1, + 8, + 9 of a step.
  KVR_DEVICE static void Fragments(const uint8_t* at, uint32_t factor, uint32_t factor8,
                                   uint32_t (&a)[16]) {
    const uint2 v0 = kvr::Load<uint2>(at), v1 = kvr::Load<uint2>(at + kRowStride);
    const uint2 v8 = kvr::Load<uint2>(at + 8 * kRowStride);
    const uint2 v9 = kvr::Load<uint2>(at + 9 * kRowStride);
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      // Bytes 0 and 1, or 2 and 3, of both: token, next token; dim, next dim.
      const int zip = m % 2 == 0 ? 0x5140 : 0x7362;
      uint32_t* b = a + 4 * m;
      UnpackE4m3(__byte_perm(m < 2 ? v0.x : v0.y, m < 2 ? v1.x : v1.y, zip), b[0], b[1]);
      UnpackE4m3(__byte_perm(m < 2 ? v8.x : v8.y, m < 2 ? v9.x : v9.y, zip), b[2], b[3]);
      b[0] = MultiplyF16x2(b[0], factor), b[1] = MultiplyF16x2(b[1], factor);
      b[2] = MultiplyF16x2(b[2], factor8), b[3] = MultiplyF16x2(b[3], factor8);
    }
  }

  KVR_DEVICE void Rescale(const typename Shape::Probabilities& probabilities, float change) {
    const bool moved = probabilities.moved != 0;
    if (!moved && change == 1) return;
    const int t = kvr::LaneIndex() % 4;
#pragma unroll
    for (int n = 0; n < kHeads / 8; ++n) {
      float2 f = make_float2(change, change);
      if (moved) {
        const float2 r = kvr::Load<float2>(probabilities.rescale + 8 * n + 2 * t);
        f.x *= r.x, f.y *= r.y;
      }
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        o[m][4 * n] *= f.x, o[m][4 * n + 1] *= f.y;
        o[m][4 * n + 2] *= f.x, o[m][4 * n + 3] *= f.y;
      }
    }
  }
};

}  // namespace mla
