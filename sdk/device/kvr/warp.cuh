// SPDX-License-Identifier: Apache-2.0
//
// Reductions within a warp, or within aligned groups of kLanes of its lanes (a power of two). The
// whole warp calls them together; every lane of a group receives the same bits.
#pragma once

#include <kvr/platform.cuh>

namespace kvr {

KVR_DEVICE int LaneIndex() { return static_cast<int>(threadIdx.x) % kWarpLanes; }
KVR_DEVICE int WarpIndex() { return static_cast<int>(threadIdx.x) / kWarpLanes; }

template <int kLanes = kWarpLanes>
KVR_DEVICE float WarpMax(float value) {
#pragma unroll
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, lanes));
  }
  return value;
}

template <int kLanes = kWarpLanes>
KVR_DEVICE float WarpSum(float value) {
#pragma unroll
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, lanes);
  }
  return value;
}

}  // namespace kvr
