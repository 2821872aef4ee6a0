/* SPDX-License-Identifier: Apache-2.0
 *
 * A plugin in C: operation scale_rows with its reference, and the plan function of its baseline.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "kvr_plugin.h"

/* Positions in scale_rows/definition.json. */
enum { AXIS_ROWS, AXIS_WIDTH };
enum { INPUT_X, INPUT_FACTOR };
enum { OUTPUT_Y };

static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15; /* SplitMix64 (Steele, Lea, Flood 2014) */
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/* In [-1, 1), from the seed, the tensor and the position alone. */
static void fill(float* values, int64_t count, uint64_t seed, uint64_t tensor) {
  const uint64_t key = mix(mix(seed) + tensor);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = (float)(mix(key + (uint64_t)i) >> 40) / (float)(1 << 23) - 1;
  }
}

static int generate(const int64_t* axes, uint32_t axis_count, uint64_t seed,
                    const kvr_tensor* inputs, uint32_t input_count, char* error,
                    size_t error_size) {
  fill(inputs[INPUT_X].data, axes[AXIS_ROWS] * axes[AXIS_WIDTH], seed, INPUT_X);
  fill(inputs[INPUT_FACTOR].data, axes[AXIS_ROWS], seed, INPUT_FACTOR);
  (void)axis_count, (void)input_count, (void)error, (void)error_size;
  return KVR_OK;
}

static int reference(const int64_t* axes, uint32_t axis_count, const kvr_tensor* inputs,
                     uint32_t input_count, uint32_t threads, kvr_expected* outputs,
                     uint32_t output_count, char* error, size_t error_size) {
  const float* x = inputs[INPUT_X].data;
  const float* factor = inputs[INPUT_FACTOR].data;
  for (int64_t row = 0; row < axes[AXIS_ROWS]; ++row) {
    for (int64_t i = row * axes[AXIS_WIDTH]; i < (row + 1) * axes[AXIS_WIDTH]; ++i) {
      const double y = (double)x[i] * factor[row]; /* exact: 24 + 24 bits fit a double's 53 */
      outputs[OUTPUT_Y].expected[i] = y;
      outputs[OUTPUT_Y].bound[i] = fabs(y) * 0x1p-24; /* one rounding to float */
    }
  }
  (void)axis_count, (void)input_count, (void)threads, (void)output_count;
  (void)error, (void)error_size;
  return KVR_OK;
}

static int64_t minimum_bytes(const int64_t* axes, uint32_t axis_count) {
  (void)axis_count;
  return 4 * (2 * axes[AXIS_ROWS] * axes[AXIS_WIDTH] + axes[AXIS_ROWS]);
}

static const kvr_operation scale_rows = {
    .size = sizeof(kvr_operation),
    .name = "scale_rows",
    .generate = generate,
    .reference = reference,
    .minimum_bytes = minimum_bytes,
};

/* plan_values of scale_rows/baseline: a loop, which its manifest could not say. */
static int plan(const kvr_plan_request* request, int64_t* values, char* error, size_t error_size) {
  const int64_t rows = request->axes[AXIS_ROWS];
  const int64_t blocks_wanted = 8 * (int64_t)request->device->sms;
  int64_t rows_per_block = 1;
  while (rows / (2 * rows_per_block) >= blocks_wanted) rows_per_block *= 2;
  values[0] = rows_per_block;
  (void)error, (void)error_size;
  return KVR_OK;
}

static const kvr_variant baseline = {
    .size = sizeof(kvr_variant),
    .op = "scale_rows",
    .name = "baseline",
    .plan = plan,
};

static const kvr_operation* const operations[] = {&scale_rows};
static const kvr_variant* const variants[] = {&baseline};

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
