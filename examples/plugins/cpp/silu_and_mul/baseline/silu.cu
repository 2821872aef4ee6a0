// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>

template <int Threads>
__global__ void silu_and_mul(const __nv_bfloat16* gate, const __nv_bfloat16* up, __nv_bfloat16* out,
                             int elements) {
  const int i = blockIdx.x * Threads + threadIdx.x;
  if (i >= elements) return;
  const float g = __bfloat162float(gate[i]);
  out[i] = __float2bfloat16(g / (1.0f + expf(-g)) * __bfloat162float(up[i]));
}
