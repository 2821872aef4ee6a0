/* SPDX-License-Identifier: Apache-2.0
 *
 * Operation gemm with its reference, and the table of what this plugin has. The launch function of
 * gemm/cublas is in cublas.c.
 */
#include <math.h>

#include "gemm.h"

static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15; /* SplitMix64 (Steele, Lea, Flood 2014) */
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

static void fill(float* values, int64_t count, uint64_t seed, uint64_t tensor) {
  const uint64_t key = mix(mix(seed) + tensor);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = (float)(mix(key + (uint64_t)i) >> 40) / (float)(1 << 23) - 1; /* [-1, 1) */
  }
}

static int generate(const int64_t* axes, uint32_t axis_count, uint64_t seed,
                    const kvr_tensor* inputs, uint32_t input_count, char* error,
                    size_t error_size) {
  fill(inputs[TENSOR_A].data, axes[AXIS_M] * axes[AXIS_K], seed, TENSOR_A);
  fill(inputs[TENSOR_B].data, axes[AXIS_K] * axes[AXIS_N], seed, TENSOR_B);
  (void)axis_count, (void)input_count, (void)error, (void)error_size;
  return KVR_OK;
}

/* A sum of k products in float, in whatever order, is off by at most k roundings of sum |a b|. */
static int reference(const int64_t* axes, uint32_t axis_count, const kvr_tensor* inputs,
                     uint32_t input_count, uint32_t threads, kvr_expected* outputs,
                     uint32_t output_count, char* error, size_t error_size) {
  const float* a = inputs[TENSOR_A].data;
  const float* b = inputs[TENSOR_B].data;
  const int64_t m = axes[AXIS_M], n = axes[AXIS_N], k = axes[AXIS_K];
  double* sum = outputs[0].expected;
  double* magnitude = outputs[0].bound;
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      const double factor = a[row * k + i];
      for (int64_t column = 0; column < n; ++column) {
        sum[row * n + column] += factor * b[i * n + column];
        magnitude[row * n + column] += fabs(factor * b[i * n + column]);
      }
    }
  }
  for (int64_t i = 0; i < m * n; ++i) magnitude[i] *= (double)k * 0x1p-23;
  (void)axis_count, (void)input_count, (void)threads, (void)output_count;
  (void)error, (void)error_size;
  return KVR_OK;
}

static const kvr_operation gemm = {
    .size = sizeof(kvr_operation),
    .name = "gemm",
    .generate = generate,
    .reference = reference,
};

static const kvr_operation* const operations[] = {&gemm};
static const kvr_variant* const variants[] = {&gemm_cublas};

static const kvr_plugin plugin = {
    .size = sizeof(kvr_plugin),
    .abi_major = KVR_ABI_MAJOR,
    .abi_minor = KVR_ABI_MINOR,
    .operation_count = 1,
    .variant_count = 1,
    .operations = operations,
    .variants = variants,
};

KVR_EXPORT const kvr_plugin* kvr_plugin_v1(void) { return &plugin; }
