/* SPDX-License-Identifier: Apache-2.0
 *
 * The code of operation `null`: random inputs, the reference, the least bytes.
 * Everything else about it is data, in definition.json. Memory here is always
 * host memory.
 */
#include <stddef.h>
#include <stdint.h>

#include "kvr_plugin.h"

/* Positions in definition.json: axes, inputs, outputs. */
enum { AXIS_N };
enum { INPUT_X };
enum { OUTPUT_Y };

/* A function of seed and position alone, so the same seed always gives the same
 * inputs. */
static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15; /* SplitMix64 (Steele, Lea, Flood 2014) */
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

static int generate(const int64_t* axes, uint32_t axis_count, uint64_t seed,
                    const kvr_tensor* inputs, uint32_t input_count, char* error,
                    size_t error_size) {
  float* x = inputs[INPUT_X].data;
  for (int64_t i = 0; i < axes[AXIS_N]; ++i) {
    x[i] = (float)(mix(mix(seed) + (uint64_t)i) >> 40) / (float)(1 << 23) - 1; /* [-1, 1) */
  }
  (void)axis_count, (void)input_count, (void)error, (void)error_size;
  return KVR_OK;
}

/* What a correct result is, in float64, and by how much a kernel may miss it: a
 * copy not at all, so `bound` keeps the 0 that it comes with. */
static int reference(const int64_t* axes, uint32_t axis_count, const kvr_tensor* inputs,
                     uint32_t input_count, uint32_t threads, kvr_expected* outputs,
                     uint32_t output_count, char* error, size_t error_size) {
  const float* x = inputs[INPUT_X].data;
  for (int64_t i = 0; i < axes[AXIS_N]; ++i) outputs[OUTPUT_Y].expected[i] = x[i];
  (void)axis_count, (void)input_count, (void)threads, (void)output_count;
  (void)error, (void)error_size;
  return KVR_OK;
}

static int64_t minimum_bytes(const int64_t* axes, uint32_t axis_count) {
  (void)axis_count;
  return axes[AXIS_N] * (int64_t)(sizeof(float) + sizeof(float)); /* read x, write y */
}

static const kvr_operation null_operation = {
    .size = sizeof(kvr_operation),
    .name = "null",
    .generate = generate,
    .reference = reference,
    .minimum_bytes = minimum_bytes,
};

static const kvr_operation* const operations[] = {&null_operation};

static const kvr_plugin plugin = {
    .size = sizeof(kvr_plugin),
    .abi_major = KVR_ABI_MAJOR,
    .abi_minor = KVR_ABI_MINOR,
    .operation_count = 1,
    .operations = operations,
};

/* The one symbol that the library exports. */
KVR_EXPORT const kvr_plugin* kvr_plugin_v1(void) { return &plugin; }
