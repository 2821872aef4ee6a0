// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "layout.cuh"

namespace mla {

// Scores of a tile, Q K^T, 64 heads x 32 tokens, by the score warpgroup, both from shared memory;
// then online softmax in base 2 in the registers of the product: a lane has 8 tokens, 8 n + 2 t,
// + 1, of heads 16 w + g and 16 w + g + 8.
//
// The reference that exponents are taken from need not be the maximum, only near it: it moves when
// a score exceeds it by more than kSlack, so that most tiles rescale nothing. 2^(s - reference)
// stays below 2^kSlack, where bf16 is as exact as near 1. While a head has seen padding only, its
// reference is -infinity and its sum 0.
class Scores {
 public:
  // Waits for `taken` before it writes.
  KVR_DEVICE void Tile(Shared& shared, int stage, float scale_log2, int taken_parity) {
    float s[16];
    Multiply(shared, stage, s);

    float largest[2] = {-kvr::kInfinity, -kvr::kInfinity}, factor[2] = {1, 1};
    const int t = kvr::LaneIndex() % 4;
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
      const float2 mask = kvr::Load<float2>(&shared.mask[stage][8 * n + 2 * t]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float* const two = s + 4 * n + 2 * half;
        two[0] = mask.x == 0 ? two[0] * scale_log2 : mask.x;
        two[1] = mask.y == 0 ? two[1] * scale_log2 : mask.y;
        largest[half] = fmaxf(largest[half], fmaxf(two[0], two[1]));
      }
    }
    const bool moves = largest[0] > reference_[0] + kSlack || largest[1] > reference_[1] + kSlack;
    if (__any_sync(kvr::kAllLanes, moves)) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float moved = kvr::WarpMax<4>(largest[half]);
        if (moved > reference_[half] + kSlack) {
          factor[half] = kvr::Exp2(reference_[half] - moved);
          reference_[half] = moved;
          sum_[half] *= factor[half];
        }
      }
    }
    uint32_t pairs[kTile / 8][2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float reference = reference_[half] == -kvr::kInfinity ? 0 : reference_[half];
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
        const float p = kvr::Exp2(s[4 * n + 2 * half] - reference);
        const float r = kvr::Exp2(s[4 * n + 2 * half + 1] - reference);
        sum_[half] += p + r;
        pairs[n][half] = kvr::PackBf16x2(p, r);
      }
    }

    kvr::WaitBarrier(&shared.taken, taken_parity);
    const int g = kvr::LaneIndex() / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
        shared.probabilities[2 * kvr::WarpIndex() + half][n][g][t] = pairs[n][half];
      }
      if (t == 0) shared.rescale[Head(half)] = factor[half];
    }
    kvr::FenceAsyncProxy();
  }

  // Of this lane's heads, half 0 and 1.
  KVR_DEVICE static int Head(int half) {
    return 16 * kvr::WarpIndex() + 8 * half + kvr::LaneIndex() / 4;
  }
  // Reference and sum over the block's tokens.
  KVR_DEVICE float2 Sum(int half) const {
    return make_float2(reference_[half], kvr::WarpSum<4>(sum_[half]));
  }

 private:
  static constexpr float kSlack = 8;

  KVR_DEVICE static void Multiply(Shared& shared, int stage, float (&s)[16]) {
    const uint64_t query = kvr::SwizzledAddress(shared.query, 1024, 0);
    const uint64_t keys = kvr::SwizzledAddress(shared.StageAt(stage).rows, 1024, 0);
    kvr::FenceAsyncProxy();  // copies are ordinary stores
    kvr::FenceProducts();
#pragma unroll
    for (int step = 0; step < kQkDim / 16; ++step) {
      // In the unit of a MatrixAddress.
      const uint64_t a = query + (step / 4 * sizeof(shared.query[0]) + step % 4 * 32) / 16;
      const uint64_t b = keys + (step / 4 * kSliceBytes + step % 4 * 32) / 16;
      kvr::ProductBf16(s, a, b, step > 0);
    }
    kvr::CommitProducts();
    kvr::WaitForProducts<0>();
  }

  float reference_[2] = {-kvr::kInfinity, -kvr::kInfinity};
  float sum_[2] = {0, 0};  // of this lane
};

}  // namespace mla
