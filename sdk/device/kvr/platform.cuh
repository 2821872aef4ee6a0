// SPDX-License-Identifier: Apache-2.0
//
// What every other header of kvr/ stands on: fixed-width integers, the CUDA vocabulary and
// KVR_DEVICE. A primitive has one contract and two bodies: NVIDIA's (inline PTX, sm_80 and later)
// and the host's, chosen by KVR_HOST, which the host device defines when it compiles a variant.
#pragma once

#if defined(KVR_HOST)
#include <kvr_host.h>  // __device__, threadIdx, __syncthreads(), shuffles and kvr_host_*()
#endif

#include <cstdint>

#define KVR_DEVICE static __device__ __forceinline__

namespace kvr {

inline constexpr int kWarpLanes = 32;
inline constexpr uint32_t kAllLanes = 0xffffffffu;

}  // namespace kvr
