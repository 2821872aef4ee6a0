// SPDX-License-Identifier: Apache-2.0
//
// A plain, right kernel of mla_sparse_decode: one block a (token, head), scores through the
// workspace. FAULT plants a fault.
#include <cuda_bf16.h>

#include <cstdint>
#include <kvr/device.cuh>

enum Fault {
  kNone,
  kTail,           // leaves out what a loop unrolled by four leaves over
  kOldOutputs,     // adds to what the outputs hold
  kPastWorkspace,  // writes one value behind its workspace
  kCounter,        // counts its launches
  kGarbage,        // reads a score that nobody wrote
  kInput,          // writes into an input
  kUnwritten,      // leaves a row unwritten where their number is odd
  kPastOutput,     // writes one value behind an output
  kNowhere,        // stores to an address that is none
  kOnlyHost,       // does not compile for a GPU
  kOverflow,       // is given the number of all scores of the batch, in 32 bits
};

inline __device__ float Dot(const __nv_bfloat16* a, const __nv_bfloat16* b, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += __bfloat162float(a[i]) * __bfloat162float(b[i]);
  return sum;
}

#if !defined(KVR_HOST)
static_assert(FAULT != kOnlyHost, "for the host device alone");
#endif

__device__ unsigned launches;

template <int FAULT_>
__global__ void planted(const __nv_bfloat16* q_nope, const __nv_bfloat16* q_pe,
                        const __nv_bfloat16* ckv_cache, const __nv_bfloat16* kpe_cache,
                        const int* sparse_indices, float sm_scale, float* scores,
                        __nv_bfloat16* output, float* lse, int topk) {
  const int64_t row = static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x;
  const int64_t rows = static_cast<int64_t>(gridDim.y) * gridDim.x;
  const bool first = row == 0 && threadIdx.x == 0;
  if (FAULT_ == kOverflow) topk = static_cast<int>(topk / rows);
  const int* const slots = sparse_indices + static_cast<int64_t>(blockIdx.y) * topk;
  float* const mine = scores + row * topk;
  const int count = FAULT_ == kTail ? topk / 4 * 4 : topk;

  if (FAULT_ == kPastWorkspace && first) scores[rows * topk] = 1.0f;
  if (FAULT_ == kInput && first) const_cast<int*>(sparse_indices)[0] = 0;
  if (FAULT_ == kPastOutput && first) lse[rows] = 1.0f;
  if (FAULT_ == kNowhere && first) {
    volatile uintptr_t address = 16;
    *reinterpret_cast<volatile int*>(address) = 1;
  }
  if (FAULT_ == kUnwritten && rows % 2 == 1 && row == rows - 1) return;

  // In base 2.
  const float scale = sm_scale * 1.4426950408889634f;
  for (int t = threadIdx.x; t < count; t += blockDim.x) {
    const int64_t slot = slots[t];
    if (FAULT_ == kGarbage && t == count - 1) continue;
    mine[t] = slot < 0 ? -kvr::kInfinity
                       : scale * (Dot(q_nope + row * 512, ckv_cache + slot * 512, 512) +
                                  Dot(q_pe + row * 64, kpe_cache + slot * 64, 64));
  }
  __syncthreads();
  float largest = -kvr::kInfinity, weights = 0;
  for (int t = 0; t < count; ++t) largest = fmaxf(largest, mine[t]);
  for (int t = 0; t < count; ++t) {
    if (slots[t] >= 0) weights += kvr::Exp2(mine[t] - largest);
  }
  for (int dim = threadIdx.x; dim < 512; dim += blockDim.x) {
    float sum = 0;
    for (int t = 0; t < count; ++t) {
      if (slots[t] < 0) continue;
      sum += kvr::Exp2(mine[t] - largest) *
             __bfloat162float(ckv_cache[static_cast<int64_t>(slots[t]) * 512 + dim]);
    }
    float value = weights > 0 ? sum / weights : 0.0f;
    if (FAULT_ == kOldOutputs) value += __bfloat162float(output[row * 512 + dim]);
    output[row * 512 + dim] = __float2bfloat16(value);
  }
  if (threadIdx.x != 0) return;
  float result = weights > 0 ? largest + kvr::Log2(weights) : -kvr::kInfinity;
  if (FAULT_ == kCounter && first) result += 1e-6f * static_cast<float>(atomicAdd(&launches, 1u));
  lse[row] = result;
}
