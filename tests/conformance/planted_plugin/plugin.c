/* SPDX-License-Identifier: Apache-2.0
 *
 * Operation planted_scale and launch functions for it, one of which does not keep the order of its
 * stream: it works on what its input held when it was launched there before. And two approximate
 * variants that say they give half, one of which does.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_plugin.h"

static int generate(const int64_t* axes, uint32_t axis_count, uint64_t seed,
                    const kvr_tensor* inputs, uint32_t input_count, char* error,
                    size_t error_size) {
  float* x = inputs[0].data;
  for (int64_t i = 0; i < axes[0]; ++i) x[i] = (float)((uint64_t)i * 17 + seed * 31) / 8;
  (void)axis_count, (void)input_count, (void)error, (void)error_size;
  return KVR_OK;
}

static int reference(const int64_t* axes, uint32_t axis_count, const kvr_tensor* inputs,
                     uint32_t input_count, uint32_t threads, kvr_expected* outputs,
                     uint32_t output_count, char* error, size_t error_size) {
  const float* x = inputs[0].data;
  for (int64_t i = 0; i < axes[0]; ++i) outputs[0].expected[i] = 2.0 * x[i];
  (void)axis_count, (void)input_count, (void)threads, (void)output_count;
  (void)error, (void)error_size;
  return KVR_OK;
}

static int on_time_launch(void* state, const kvr_launch_request* request, char* error,
                          size_t error_size) {
  const float* x = request->tensors[0].data;
  float* y = request->tensors[1].data;
  for (int64_t i = 0; i < request->axes[0]; ++i) y[i] = 2 * x[i];
  (void)state, (void)error, (void)error_size;
  return KVR_OK;
}

/* What was at `x` before. One input is remembered, the last. */
typedef struct {
  pthread_mutex_t mutex;
  const void* x;
  int64_t n;
  float* values;
} early_state;

static int early_open(const kvr_device* device, const int64_t* tunables, uint32_t tunable_count,
                      void** state, char* error, size_t error_size) {
  early_state* opened = calloc(1, sizeof *opened);
  if (opened == NULL) return KVR_INTERNAL;
  pthread_mutex_init(&opened->mutex, NULL);
  *state = opened;
  (void)device, (void)tunables, (void)tunable_count, (void)error, (void)error_size;
  return KVR_OK;
}

static int early_launch(void* state, const kvr_launch_request* request, char* error,
                        size_t error_size) {
  early_state* early = state;
  const float* x = request->tensors[0].data;
  float* y = request->tensors[1].data;
  const int64_t n = request->axes[0];
  float* now = malloc((size_t)n * sizeof *now);
  if (now == NULL) return KVR_INTERNAL;
  memcpy(now, x, (size_t)n * sizeof *now);
  pthread_mutex_lock(&early->mutex);
  const float* used = early->x == x && early->n == n ? early->values : now;
  for (int64_t i = 0; i < n; ++i) y[i] = 2 * used[i];
  free(early->values);
  early->x = x, early->n = n, early->values = now;
  pthread_mutex_unlock(&early->mutex);
  (void)error, (void)error_size;
  return KVR_OK;
}

static void early_close(void* state) {
  early_state* early = state;
  pthread_mutex_destroy(&early->mutex);
  free(early->values);
  free(early);
}

static int half_reference(const int64_t* axes, uint32_t axis_count, const int64_t* tunables,
                          uint32_t tunable_count, const kvr_tensor* inputs, uint32_t input_count,
                          uint32_t threads, kvr_expected* outputs, uint32_t output_count,
                          char* error, size_t error_size) {
  const float* x = inputs[0].data;
  for (int64_t i = 0; i < axes[0]; ++i) outputs[0].expected[i] = x[i];
  (void)axis_count, (void)tunables, (void)tunable_count, (void)input_count, (void)threads;
  (void)output_count, (void)error, (void)error_size;
  return KVR_OK;
}

static int half_launch(void* state, const kvr_launch_request* request, char* error,
                       size_t error_size) {
  memcpy(request->tensors[1].data, request->tensors[0].data,
         (size_t)request->axes[0] * sizeof(float));
  (void)state, (void)error, (void)error_size;
  return KVR_OK;
}

static const kvr_operation planted_scale = {
    .size = sizeof(kvr_operation),
    .name = "planted_scale",
    .generate = generate,
    .reference = reference,
};
static const kvr_variant on_time = {
    .size = sizeof(kvr_variant),
    .op = "planted_scale",
    .name = "on_time",
    .launch = on_time_launch,
};
static const kvr_variant early = {
    .size = sizeof(kvr_variant),
    .op = "planted_scale",
    .name = "early",
    .open = early_open,
    .launch = early_launch,
    .close = early_close,
};
static const kvr_variant half = {
    .size = sizeof(kvr_variant),
    .op = "planted_scale",
    .name = "half",
    .launch = half_launch,
    .reference = half_reference,
};
static const kvr_variant not_half = {
    .size = sizeof(kvr_variant),
    .op = "planted_scale",
    .name = "not_half",
    .launch = on_time_launch,
    .reference = half_reference,
};

static const kvr_operation* const operations[] = {&planted_scale};
static const kvr_variant* const variants[] = {&on_time, &early, &half, &not_half};
static const kvr_plugin plugin = {
    .size = sizeof(kvr_plugin),
    .abi_major = KVR_ABI_MAJOR,
    .abi_minor = KVR_ABI_MINOR,
    .operation_count = 1,
    .variant_count = 4,
    .operations = operations,
    .variants = variants,
};

KVR_EXPORT const kvr_plugin* kvr_plugin_v1(void) { return &plugin; }
