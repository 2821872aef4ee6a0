// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>

__global__ void mla_merge(float* partial_o, float* partial_lse, __nv_bfloat16* output, float* lse,
                          int nsplit) {}
