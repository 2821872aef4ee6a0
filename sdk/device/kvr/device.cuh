// SPDX-License-Identifier: Apache-2.0
//
// The device headers for kernel authors: #include <kvr/device.cuh>.
//
// Portable primitives: a kernel written with these, CUDA's own barriers, shuffles, votes and
// atomics, and cuda_bf16.h / cuda_fp16.h / cuda_fp8.h compiles unchanged for sm_80 and later
// (NVRTC) and for the host device (Clang). A kernel that needs raw PTX, wgmma or TMA names its
// targets without "host" in its manifest and says why there.
//
//   async_copy.cuh  16-byte copies, global to shared, in committed groups
//   fp8.cuh         e4m3 and UE8M0, widened
//   matrix.cuh      ldmatrix and mma m16n8k16, with the fragments' layout
//   numeric.cuh     exp2, log2, ordered keys, pairs of bf16 and f16
//   vector.cuh      wide loads and stores
//   warp.cuh        reductions over a warp or parts of it, prefix sums
//
// Not among them, for such kernels: hopper.cuh, cluster.cuh, wgmma.cuh.
#pragma once

#include <kvr/async_copy.cuh>
#include <kvr/fp8.cuh>
#include <kvr/matrix.cuh>
#include <kvr/numeric.cuh>
#include <kvr/platform.cuh>
#include <kvr/vector.cuh>
#include <kvr/warp.cuh>
