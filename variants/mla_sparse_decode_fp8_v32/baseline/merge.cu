// SPDX-License-Identifier: Apache-2.0
//
// mla_merge: the splits of one (token, head) into its output. With M the largest lse,
// w = 2^(lse - M) and z the sink's logit in base 2:
//
//   o = sum(w o) / (sum(w) + 2^(z - M))      lse = M + log2(sum(w))
//
// All splits empty: 0, -infinity. A block owns a row, a thread four of its 512 dims.
#include <cuda_bf16.h>

#include <cstdint>
#include <kvr/device.cuh>

namespace mla {
inline constexpr int kMergeDims = 4;                    // of a thread
inline constexpr int kMergeThreads = 512 / kMergeDims;  // the manifest's `block`
}  // namespace mla

// partial_o    [num_tokens, num_qo_heads, nsplit, 512]
// partial_lse  [num_tokens, num_qo_heads, nsplit]
// sink         [num_qo_heads], natural logarithm; null: none
// output       [num_tokens, num_qo_heads, 512]
// lse          [num_tokens, num_qo_heads]
// Grid: num_qo_heads x num_tokens.
__global__ void __launch_bounds__(mla::kMergeThreads)
    mla_merge(float* partial_o, float* partial_lse, const float* sink, __nv_bfloat16* output,
              float* lse, int nsplit) {
  const int64_t row = static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x;
  const int dim = threadIdx.x * mla::kMergeDims;
  const float* split_lse = partial_lse + row * nsplit;
  const float* split_o = partial_o + row * nsplit * 512 + dim;

  float largest = -kvr::kInfinity;
  for (int split = 0; split < nsplit; ++split) largest = fmaxf(largest, split_lse[split]);
  const float reference = largest == -kvr::kInfinity ? 0 : largest;

  float weights = 0;
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 4
  for (int split = 0; split < nsplit; ++split) {
    const float weight = kvr::Exp2(split_lse[split] - reference);
    const float4 o = kvr::Load<float4>(split_o + split * 512);
    weights += weight;
    sum.x += weight * o.x, sum.y += weight * o.y, sum.z += weight * o.z, sum.w += weight * o.w;
  }

  const float sink_log2 = sink == nullptr ? -kvr::kInfinity : sink[blockIdx.x] * kvr::kLog2E;
  const float normaliser = weights > 0 ? 1 / (weights + kvr::Exp2(sink_log2 - reference)) : 0.0f;
  kvr::Store<uint2>(output + row * 512 + dim,
                    make_uint2(kvr::PackBf16x2(sum.x * normaliser, sum.y * normaliser),
                               kvr::PackBf16x2(sum.z * normaliser, sum.w * normaliser)));
  if (threadIdx.x == 0) lse[row] = reference + kvr::Log2(weights);
}
