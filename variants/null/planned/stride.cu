// SPDX-License-Identifier: Apache-2.0
template <int Threads>
__global__ void stride(const float* x, float* y, int n) {
  for (int i = blockIdx.x * Threads + threadIdx.x; i < n; i += gridDim.x * Threads) y[i] = x[i];
}
