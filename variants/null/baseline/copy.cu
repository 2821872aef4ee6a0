// SPDX-License-Identifier: Apache-2.0
//
// Arguments as the manifest lists them: `const T*` for inputs, `T*` for outputs. KVR compiles this
// for GPUs, and for `host`, where a CPU runs it.
template <int Threads>
__global__ void copy(const float* x, float* y, int n) {
  const int i = blockIdx.x * Threads + threadIdx.x;
  if (i < n) y[i] = x[i];
}
