// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "layout.cuh"

namespace mla {

// Output of a value warp: 16 heads x its 64 dims, as fragments of 8 dims (layout of D,
// kvr/matrix.cuh).
struct Values {
  static constexpr int kDimTiles = kWarpDims / kFragmentN;

  float o[kDimTiles][4] = {};

  KVR_DEVICE static int Warp() { return kvr::WarpIndex() % kValueWarps; }

  // Adds P V for a tile, after rescaling what is there.
  KVR_DEVICE void Tile(const Row (&rows)[kTile], const __nv_bfloat16 (&p)[kHeads][kProbStride],
                       const float (&rescale)[kHeads]) {
    const int lane = kvr::LaneIndex(), g = lane / 4;
    const float low = rescale[g], high = rescale[g + 8];
    uint32_t a[kSteps][4];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      // The four 8x8 tiles of an ldmatrix: heads 0...7 and 8...15, then the next 8 tokens of both.
      kvr::LoadMatrixX4(a[step], &p[lane % 16][step * kFragmentK + lane / 16 * 8]);
    }
    if (__any_sync(kvr::kAllLanes, low != 1 || high != 1)) {
#pragma unroll
      for (float(&d)[4] : o) d[0] *= low, d[1] *= low, d[2] *= high, d[3] *= high;
    }
    // Transposed: tokens 0...7 and 8...15 of dims 0...7, then of dims 8...15.
    const int token = lane % 16, dim = Warp() * kWarpDims + lane / 16 * 8;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int n = 0; n < kDimTiles; n += 2) {
        uint32_t v[4];
        kvr::LoadMatrixX4Trans(v, &rows[step * kFragmentK + token][dim + n * kFragmentN]);
        kvr::MmaBf16(o[n], a[step], v[0], v[1]);
        kvr::MmaBf16(o[n + 1], a[step], v[2], v[3]);
      }
    }
  }

 private:
  static constexpr int kSteps = kTile / kFragmentK;
};

}  // namespace mla
