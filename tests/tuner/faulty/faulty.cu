// SPDX-License-Identifier: Apache-2.0
//
// One block a (token, head), one thread an output dim; every thread computes all scores itself.
#include <cuda_bf16.h>

#include <cstdint>
#include <kvr/device.cuh>

inline __device__ float Dot(const __nv_bfloat16* a, const __nv_bfloat16* b, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += __bfloat162float(a[i]) * __bfloat162float(b[i]);
  return sum;
}

// Ends the process on the host, the context on a GPU.
inline __device__ void End() {
#if defined(KVR_HOST)
  __builtin_trap();
#else
  __trap();
#endif
}

template <int MODE>
__global__ void faulty_decode(const __nv_bfloat16* q_nope, const __nv_bfloat16* q_pe,
                              const __nv_bfloat16* ckv_cache, const __nv_bfloat16* kpe_cache,
                              const int* sparse_indices, float sm_scale, __nv_bfloat16* output,
                              float* lse, int topk) {
  const int64_t row = static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x;
  const int64_t rows = static_cast<int64_t>(gridDim.y) * gridDim.x;
  const int dim = threadIdx.x;
  const bool first = row == 0 && dim == 0;
  volatile int spin = 1;

  if (MODE == 2 && first) output[rows * 512 + 3] = __float2bfloat16(1.0f);
  if (MODE == 3 && first) __trap();
  if (MODE == 4 && first) *reinterpret_cast<volatile int*>(static_cast<uintptr_t>(16 * spin)) = 1;
  if (MODE == 5 && first) {
    // Memory that another thread might change: no compiler may take the loop away.
    while (*reinterpret_cast<const volatile int*>(sparse_indices) != 0x7fffffff) {
    }
  }
  if (MODE == 6 && first) End();
  if (MODE == 7 && first) const_cast<__nv_bfloat16*>(q_nope)[0] = __float2bfloat16(7.0f);
  if (MODE == 8 && row == rows - 1) return;

  // Scores in base 2, softmax kept up to date slot by slot.
  const float scale = sm_scale * 1.4426950408889634f;
  float largest = -kvr::kInfinity, weights = 0, sum = 0;
  const int slots = MODE == 9 ? topk / 2 * 2 : topk;
  for (int t = 0; t < slots; ++t) {
    const int64_t slot = sparse_indices[blockIdx.y * static_cast<int64_t>(topk) + t];
    if (slot < 0) continue;
    const float score = scale * (Dot(q_nope + row * 512, ckv_cache + slot * 512, 512) +
                                 Dot(q_pe + row * 64, kpe_cache + slot * 64, 64));
    const float next = fmaxf(largest, score);
    const float keep = kvr::Exp2(largest - next), weight = kvr::Exp2(score - next);
    weights = weights * keep + weight;
    sum = sum * keep + weight * __bfloat162float(ckv_cache[slot * 512 + dim]);
    largest = next;
  }
  const float value = weights > 0 ? sum / weights : 0.0f;
  output[row * 512 + dim] = __float2bfloat16(MODE == 1 ? 1.5f * value + 1.0f : value);
  if (dim == 0) lse[row] = weights > 0 ? largest + kvr::Log2(weights) : -kvr::kInfinity;
}
