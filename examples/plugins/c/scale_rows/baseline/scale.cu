// SPDX-License-Identifier: Apache-2.0
template <int Threads>
__global__ void scale(const float* x, const float* factor, float* y, int rows, int width,
                      int rows_per_block) {
  const int first = blockIdx.x * rows_per_block;
  for (int row = first; row < first + rows_per_block && row < rows; ++row) {
    for (int column = threadIdx.x; column < width; column += Threads) {
      y[row * width + column] = x[row * width + column] * factor[row];
    }
  }
}
