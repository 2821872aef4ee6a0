// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>

__global__ void single(const __nv_bfloat16* q_nope, const __nv_bfloat16* q_pe,
                       const __nv_bfloat16* ckv_cache, const __nv_bfloat16* kpe_cache,
                       const int* sparse_indices, float sm_scale, __nv_bfloat16* output, float* lse,
                       int num_qo_heads, int topk) {}
