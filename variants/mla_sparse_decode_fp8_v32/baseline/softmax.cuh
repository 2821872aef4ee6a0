// SPDX-License-Identifier: Apache-2.0
//
// Online softmax, base 2, fp32. With s the scores times log2(e), a row (one head) keeps a
// reference r and the sum of 2^(s - r); the output accumulators hold the sum of 2^(s - r) * v.
//
// r need not be the row's maximum, only near it: it moves when a score exceeds it by more than
// kSlack, so that most tiles rescale nothing. 2^(s - r) stays below 2^kSlack, where bf16 is as
// exact as near 1. While a row has seen padding only, r is -infinity and its sum 0.
#pragma once

#include "scores.cuh"

namespace mla {

inline constexpr float kSlack = 8;

// Each warp's output accumulators: heads x its dims.
template <class Tile>
using Output = float[Tile::kHeadTiles][Tile::kDimTiles][4];

template <class Tile>
struct Softmax {
  // A lane holds rows g and g + 8 of each head tile; the four lanes of a row each add up their
  // own tokens, Finish adds the four sums.
  float reference[Tile::kHeadTiles][2];
  float sum[Tile::kHeadTiles][2];

  KVR_DEVICE void Start() {
#pragma unroll
    for (int m = 0; m < Tile::kHeadTiles; ++m) {
      reference[m][0] = reference[m][1] = -kvr::kInfinity;
      sum[m][0] = sum[m][1] = 0;
    }
  }

  // Takes a tile's raw scores in and leaves 2^(s - r) in their place; `kept`: [kBlockT]. Rescales
  // `output` where a reference moves.
  KVR_DEVICE void Add(Scores<Tile>& scores, const int* kept, float scale_log2,
                      Output<Tile>& output) {
    Mask(scores, kept, scale_log2);
    MoveReferences(scores, output);
#pragma unroll
    for (int m = 0; m < Tile::kHeadTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float r = reference[m][half] == -kvr::kInfinity ? 0 : reference[m][half];
#pragma unroll
        for (int n = 0; n < Tile::kTokenTiles; ++n) {
          float(&s)[4] = scores[m][n];
          s[2 * half] = kvr::Exp2(s[2 * half] - r);
          s[2 * half + 1] = kvr::Exp2(s[2 * half + 1] - r);
          sum[m][half] += s[2 * half] + s[2 * half + 1];
        }
      }
    }
  }

  // The sums over whole rows.
  KVR_DEVICE void Finish() {
#pragma unroll
    for (int m = 0; m < Tile::kHeadTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) sum[m][half] = kvr::WarpSum<4>(sum[m][half]);
    }
  }

  // After Finish.
  KVR_DEVICE float Lse(int m, int half) const {
    return reference[m][half] + kvr::Log2(sum[m][half]);
  }
  // What the output accumulators are multiplied by. `sink_log2`: the sink's logit in base 2, one
  // more term of the sum, -infinity for none. An empty row's output is 0.
  KVR_DEVICE float Normaliser(int m, int half, float sink_log2) const {
    if (sum[m][half] == 0) return 0;
    return 1 / (sum[m][half] + kvr::Exp2(sink_log2 - reference[m][half]));
  }

 private:
  KVR_DEVICE static void Mask(Scores<Tile>& scores, const int* kept, float scale_log2) {
    const int t = kvr::LaneIndex() % 4;
#pragma unroll
    for (int n = 0; n < Tile::kTokenTiles; ++n) {
      const int2 keep = kvr::Load<int2>(kept + n * kFragmentN + 2 * t);
#pragma unroll
      for (int m = 0; m < Tile::kHeadTiles; ++m) {
        float(&s)[4] = scores[m][n];
        s[0] = keep.x ? s[0] * scale_log2 : -kvr::kInfinity;
        s[1] = keep.y ? s[1] * scale_log2 : -kvr::kInfinity;
        s[2] = keep.x ? s[2] * scale_log2 : -kvr::kInfinity;
        s[3] = keep.y ? s[3] * scale_log2 : -kvr::kInfinity;
      }
    }
  }

  KVR_DEVICE void MoveReferences(const Scores<Tile>& scores, Output<Tile>& output) {
    float largest[Tile::kHeadTiles][2];
    bool moves = false;
#pragma unroll
    for (int m = 0; m < Tile::kHeadTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float x = -kvr::kInfinity;
#pragma unroll
        for (int n = 0; n < Tile::kTokenTiles; ++n) {
          x = fmaxf(x, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
        }
        largest[m][half] = kvr::WarpMax<4>(x);
        moves = moves || largest[m][half] > reference[m][half] + kSlack;
      }
    }
    if (!__any_sync(kvr::kAllLanes, moves)) return;
#pragma unroll
    for (int m = 0; m < Tile::kHeadTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float old = reference[m][half], moved = fmaxf(old, largest[m][half]);
        const float factor = moved == old ? 1.0f : kvr::Exp2(old - moved);  // -inf - -inf is NaN
        reference[m][half] = moved;
        sum[m][half] *= factor;
#pragma unroll
        for (int n = 0; n < Tile::kDimTiles; ++n) {
          output[m][n][2 * half] *= factor;
          output[m][n][2 * half + 1] *= factor;
        }
      }
    }
  }
};

// A lane's share of the probabilities times the scales of one group of dims, as bf16 A fragments:
// two neighbouring D tiles are one A tile. bf16 has the range of fp32, so no scale is too large.
//
// Rounding p * scale to bf16 errs by the same for all dims of the group. Where the scale is a power
// of two that is the error of p, 0 for the largest; else not even a single token would come out
// right to less than 2^-8, so the remainder is a second fragment.
template <class Tile>
struct ScaledProbabilities {
  static constexpr int kParts = kScalesArePowersOfTwo ? 1 : 2;
  uint32_t a[kParts][Tile::kHeadTiles][Tile::kTokenSteps][4];

  KVR_DEVICE ScaledProbabilities(const Scores<Tile>& p, const float* scales) {
    const int t = kvr::LaneIndex() % 4;
#pragma unroll
    for (int n = 0; n < Tile::kTokenTiles; ++n) {
      const float2 scale = kvr::Load<float2>(scales + n * kFragmentN + 2 * t);
#pragma unroll
      for (int m = 0; m < Tile::kHeadTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float x = p[m][n][2 * half] * scale.x, y = p[m][n][2 * half + 1] * scale.y;
#pragma unroll
          for (int part = 0; part < kParts; ++part) {
            const uint32_t pair = kvr::PackBf16x2(x, y);
            a[part][m][n / 2][half + n % 2 * 2] = pair;
            x -= kvr::LowBf16(pair), y -= kvr::HighBf16(pair);
          }
        }
      }
    }
  }
};

// output += P V for this warp's dims of `tile`, P from Softmax::Add.
template <class Tile>
KVR_DEVICE void AddValues(const Scores<Tile>& p, const typename Tile::Widened& tile,
                          Output<Tile>& output) {
  // The four 8x8 tiles of a transposed ldmatrix: tokens 0...7 and 8...15 of dims 0...7, then of
  // dims 8...15.
  const int lane = kvr::LaneIndex(), first_dim = kvr::WarpIndex() * Tile::kWarpDims;
  const int token = lane % 16, dim = first_dim + (lane / 16) * 8;
#pragma unroll
  for (int group = 0; group < Tile::kWarpGroups; ++group) {
    const ScaledProbabilities<Tile> scaled(p, tile.scales[first_dim / kGroupDims + group]);
#pragma unroll
    for (int i = 0; i < Tile::kGroupDimTiles; i += 2) {
      const int n = group * Tile::kGroupDimTiles + i;
#pragma unroll
      for (int step = 0; step < Tile::kTokenSteps; ++step) {
        uint32_t v[4];
        kvr::LoadMatrixX4Trans(v, &tile.rows[step * kFragmentK + token][dim + n * kFragmentN]);
#pragma unroll
        for (int m = 0; m < Tile::kHeadTiles; ++m) {
#pragma unroll
          for (const auto& a : scaled.a) {
            kvr::MmaBf16(output[m][n], a[m][step], v[0], v[1]);
            kvr::MmaBf16(output[m][n + 1], a[m][step], v[2], v[3]);
          }
        }
      }
    }
  }
}

}  // namespace mla
