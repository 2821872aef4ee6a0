// SPDX-License-Identifier: Apache-2.0
//
// Reductions within a warp, or within aligned groups of kLanes of its lanes (a power of two): every
// lane of a group receives the same bits. And sums over the lanes before. The whole warp calls them
// together.
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

// The sum of this lane's value and of those of the lanes before it, of integers.
template <typename T>
KVR_DEVICE T WarpPrefixSum(T value) {
  const int lane = LaneIndex();
#pragma unroll
  for (int lanes = 1; lanes < kWarpLanes; lanes *= 2) {
    const T before = __shfl_up_sync(kAllLanes, value, lanes);
    if (lane >= lanes) value += before;
  }
  return value;
}

}  // namespace kvr
