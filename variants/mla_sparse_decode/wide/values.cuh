// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "layout.cuh"

namespace mla {

// Output of a value warpgroup: 64 heads x its 256 dims, as two products of 128. A lane has heads 16
// w + g, + 8 (w: the warp of the group), of each dims 8 n + 2 t, + 1: o[n / 16][4 (n % 16) ...] as
// D of matrix.cuh.
struct Values {
  static constexpr int kDims = kCkvDim / 2;

  float o[2][kDims / 4] = {};

  KVR_DEVICE static int Group() { return (kvr::WarpIndex() - kScoreWarps) / 4; }
  KVR_DEVICE static int Head(int half) {
    return kvr::WarpIndex() % 4 * 16 + 8 * half + kvr::LaneIndex() / 4;
  }

  // Dims 8 n + 2 t, + 1 of the group, of the lane's lower or upper head.
  KVR_DEVICE const float* At(int n, int half) const { return o[n / 16] + 4 * (n % 16) + 2 * half; }

  KVR_DEVICE void Multiply(float low, float high) {
#pragma unroll
    for (auto& half : o) {
#pragma unroll
      for (int i = 0; i < kDims / 4; i += 4) {
        half[i] *= low, half[i + 1] *= low, half[i + 2] *= high, half[i + 3] *= high;
      }
    }
  }

  // Adds P V for a tile, after rescaling what is there.
  KVR_DEVICE void Tile(Shared& shared, int stage) {
    const float low = shared.rescale[Head(0)], high = shared.rescale[Head(1)];
    if (__any_sync(kvr::kAllLanes, low != 1 || high != 1)) Multiply(low, high);
    const uint64_t a =
        kvr::MatrixAddress(shared.probabilities, 128, sizeof(shared.probabilities[0]));
    const uint64_t b = kvr::SwizzledAddress(shared.StageAt(stage).rows[Group() * kCkvSlices / 2],
                                            1024, kSliceBytes);
    kvr::FenceAsyncProxy();  // copies are ordinary stores
    kvr::FenceProducts();
#pragma unroll
    for (int step = 0; step < kTile / 16; ++step) {
      // In the unit of a MatrixAddress.
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        kvr::ProductBf16(o[half], a + step * 2 * 128 / 16,
                         b + (half * 2 * kSliceBytes + step * 2 * 1024) / 16);
      }
    }
    kvr::CommitProducts();
    kvr::WaitForProducts<0>();  // the other warpgroup's products fill the gap
  }
};

}  // namespace mla
