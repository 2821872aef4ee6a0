// SPDX-License-Identifier: Apache-2.0
//
// moe_sum: output = sum over a token's slots of weight * partial, in the order of the slots. A
// token without experts of this rank, padding too, gets zeros. It begins beside moe_stream.
#include <cuda_bf16.h>

#include <kvr/device.cuh>
#include <kvr/hopper.cuh>

// partial         [pairs, hidden]
// pair_position   [num_tokens, top_k]: a pair's row of `partial`, or -1
// pair_weight     [num_tokens, top_k]
// output          [num_tokens, hidden]
// Grid: ceil(hidden / (2 * threads)) x num_tokens; a thread has two neighbouring values.
__global__ void moe_sum(const float* partial, const int* pair_position, const float* pair_weight,
                        __nv_bfloat16* output, int hidden, int top_k) {
  const int64_t token = blockIdx.y;
  const int d = 2 * static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (d >= hidden) return;
  kvr::WaitForPrimary();
  float low = 0, high = 0;
  for (int slot = 0; slot < top_k; ++slot) {
    const int position = pair_position[token * top_k + slot];
    if (position < 0) continue;
    const float weight = pair_weight[token * top_k + slot];
    const float2 pair = kvr::Load<float2>(partial + int64_t{position} * hidden + d);
    low += weight * pair.x;
    high += weight * pair.y;
  }
  kvr::Store<uint32_t>(output + token * hidden + d, kvr::PackBf16x2(low, high));
}
