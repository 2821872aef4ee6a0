// SPDX-License-Identifier: Apache-2.0
//
// What every other header of kvr/ stands on: fixed-width integers, the CUDA vocabulary and
// KVR_DEVICE. A primitive has one contract and two bodies: NVIDIA's (inline PTX, sm_80 and later)
// and the host's, chosen by KVR_HOST, which the host device defines when it compiles a variant (it
// puts kvr_host.h in front of the unit).
#pragma once

#include <cstdint>

// Before a function in a header, member or free.
#define KVR_DEVICE __device__ __forceinline__

namespace kvr {

inline constexpr int kWarpLanes = 32;
inline constexpr uint32_t kAllLanes = 0xffffffffu;

}  // namespace kvr
