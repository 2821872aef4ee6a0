// SPDX-License-Identifier: Apache-2.0
template <int Threads>
__global__ void gemm(const float* a, const float* b, float* c, int n, int k) {
  const int row = blockIdx.y, column = blockIdx.x * Threads + threadIdx.x;
  if (column >= n) return;
  float sum = 0;
  for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
  c[row * n + column] = sum;
}
