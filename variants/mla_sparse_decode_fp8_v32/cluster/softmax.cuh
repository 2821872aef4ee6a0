// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "layout.cuh"

namespace mla {

// Online softmax in base 2 of the two heads of a score warp; a lane has one or two of a tile's
// tokens.
//
// The reference that exponents are taken from need not be the maximum, only near it: it moves when
// a score exceeds it by more than kSlack, so that most tiles rescale nothing, and probabilities
// stay below 2^kSlack. It begins so low that any score moves it; padding alone leaves it there,
// with sum 0.
template <class Shape>
struct Softmax {
  static constexpr float kSlack = 8;
  static constexpr int kTokens = Shape::kTile / kvr::kWarpLanes;  // of a lane

  float reference[2] = {-1e30f, -1e30f};
  float sum[2] = {0, 0};  // of this lane

  KVR_DEVICE void Tile(const typename Shape::Scores& scores, const float* mask, float scale_log2,
                       typename Shape::Probabilities& to) {
    using Tokens = std::conditional_t<kTokens == 2, float2, float>;
    const int head = 2 * kvr::WarpIndex(), token = kTokens * kvr::LaneIndex();
    const auto masks = kvr::Load<Tokens>(mask + token);
    float s[2][kTokens], largest[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      Tokens parts[Shape::kParts];
#pragma unroll
      for (int part = 0; part < Shape::kParts; ++part) {
        parts[part] = kvr::Load<Tokens>(&scores[part][head + i][token]);
      }
#pragma unroll
      for (int j = 0; j < kTokens; ++j) {
        float sum_of_parts = Get(parts[0], j);
#pragma unroll
        for (int part = 1; part < Shape::kParts; ++part) sum_of_parts += Get(parts[part], j);
        s[i][j] = fmaf(sum_of_parts, scale_log2, Get(masks, j));
      }
      largest[i] = fmaxf(s[i][0], s[i][kTokens - 1]);
    }
    float factor[2] = {1, 1};
    const bool beyond = largest[0] > reference[0] + kSlack || largest[1] > reference[1] + kSlack;
    if (__any_sync(kvr::kAllLanes, beyond)) {
#pragma unroll
      for (int i = 0; i < 2; ++i) largest[i] = WarpMaximum(largest[i]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (largest[i] > reference[i] + kSlack) {
          factor[i] = kvr::Exp2(reference[i] - largest[i]);
          reference[i] = largest[i];
          sum[i] *= factor[i];
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float p = kvr::Exp2(s[i][0] - reference[i]);
      if constexpr (kTokens == 2) {
        const float r = kvr::Exp2(s[i][1] - reference[i]);
        sum[i] += p + r;
        kvr::Store<uint32_t>(&to.tables[0][head + i][token], kvr::PackF16x2(p, r));
        if constexpr (kRopeIsValue) {
          kvr::Store<uint32_t>(&to.tables[1][head + i][token], kvr::PackBf16x2(p, r));
        }
      } else {
        sum[i] += p;
        to.tables[0][head + i][token] = static_cast<uint16_t>(kvr::PackF16x2(p, 0));
        if constexpr (kRopeIsValue) {
          to.tables[1][head + i][token] = static_cast<uint16_t>(kvr::PackBf16x2(p, 0));
        }
      }
    }
    if (kvr::LaneIndex() == 0) {
      kvr::Store<float2>(&to.rescale[head], make_float2(factor[0], factor[1]));
    }
  }

 private:
  KVR_DEVICE static float Get(float x, int) { return x; }
  KVR_DEVICE static float Get(const float2& x, int j) { return j == 0 ? x.x : x.y; }
};

}  // namespace mla
