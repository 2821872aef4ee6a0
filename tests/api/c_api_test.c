/* SPDX-License-Identifier: Apache-2.0
 *
 * kvr.h as a C program uses it.
 *
 *   c_api_test DEVICE    "host", or "null": what needs no kernels
 *
 * Exit code: 0 if all is as said, else 1 with a line for each thing that is not.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kvr.h"

static int failures = 0;

#define EXPECT(condition)                                                                        \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      printf("%s:%d: %s\n  last error: %s\n", __FILE__, __LINE__, #condition, kvr_last_error()); \
      ++failures;                                                                                \
    }                                                                                            \
  } while (0)
#define EXPECT_OK(call) EXPECT((call) == KVR_CODE_OK)
/* The call fails with that code and says why. */
#define EXPECT_CODE(code, call, said)               \
  do {                                              \
    EXPECT((call) == (code));                       \
    EXPECT(strstr(kvr_last_error(), said) != NULL); \
  } while (0)

enum { N = 1000 };
static float x[N], y[N];
static int64_t extent[1] = {N};

static kvr_dltensor Floats(float* data) {
  kvr_dltensor tensor = {0};
  tensor.data = data;
  tensor.device_type = 1;
  tensor.ndim = 1;
  tensor.dtype_code = 2;
  tensor.dtype_bits = 32;
  tensor.dtype_lanes = 1;
  tensor.shape = extent;
  return tensor;
}

static kvr_runtime* Open(const char* device) {
  kvr_options options = {.struct_size = sizeof options, .device = device, .no_environment = 1};
  kvr_runtime* kvr = NULL;
  EXPECT_OK(kvr_open(&options, &kvr));
  EXPECT(kvr != NULL);
  return kvr;
}

static void HandlesThatAreNoneAreAnswered(kvr_runtime* kvr) {
  char storage[64] = {0};
  kvr_runtime* none[] = {NULL,
                         (kvr_runtime*)storage,
                         (kvr_runtime*)1,
                         (kvr_runtime*)UINTPTR_MAX,
                         (kvr_runtime*)((uintptr_t)kvr + 1),
                         (kvr_runtime*)((uintptr_t)kvr ^ 16)};
  for (size_t i = 0; i < sizeof none / sizeof none[0]; ++i) {
    EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_freeze(none[i]), "kvr_runtime");
    EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_launch(none[i], "null", NULL, 0, NULL),
                "kvr_runtime");
  }
  EXPECT(strlen(kvr_last_fix()) > 0);
  /* A handle of another kind. */
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_bound_launch((kvr_bound*)kvr, NULL), "kvr_bound");
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_live_begin_step((kvr_live*)kvr, ""), "kvr_live");
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_graph_close((kvr_graph*)storage), "kvr_graph");
  kvr_binding* binding = NULL;
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_capture_finish(NULL, &binding), "kvr_scope");
  EXPECT_OK(kvr_close(NULL));
  EXPECT_OK(kvr_bound_close(NULL));

  kvr_runtime* second = Open("null");
  EXPECT_OK(kvr_close(second));
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_close(second), "closed");
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_freeze(second), "closed");
}

static void SizesOfStructsAreChecked(kvr_runtime* kvr) {
  kvr_runtime* opened = NULL;
  struct {
    kvr_options options;
    char more[8];
  } large = {.options = {.device = "null"}};
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_open(&large.options, &opened), "struct_size is 0");
  large.options.struct_size = 8;
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_open(&large.options, &opened), "struct_size is 8");
  large.options.struct_size = sizeof large;
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_open(&large.options, &opened), "newer kvr.h");
  EXPECT(opened == NULL);
  large.options.struct_size = sizeof large.options;
  EXPECT_OK(kvr_open(&large.options, &opened));
  EXPECT_OK(kvr_close(opened));

  kvr_counters counters = {0};
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_count(kvr, &counters), "kvr_counters");
  counters.struct_size = sizeof counters;
  counters.misses = 77;
  EXPECT_OK(kvr_count(kvr, &counters));
  EXPECT(counters.misses == 0 && counters.struct_size == sizeof counters);
}

static void WhatIsNullOrUnknownIsSaid(kvr_runtime* kvr) {
  kvr_runtime* opened = NULL;
  kvr_options options = {.struct_size = sizeof options, .device = "cudda"};
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_open(&options, &opened), "cudda");
  EXPECT(strstr(kvr_last_fix(), "cuda") != NULL);
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_open(&options, NULL), "runtime");
  options.device = "null";
  options.miss_policy = "baselin";
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_open(&options, &opened), "baselin");
  options.miss_policy = NULL;
  const char* opt_in[] = {"nothing", NULL};
  options.approximate = opt_in;
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_open(&options, &opened), "nothing");
  options.approximate = NULL;
  options.forced_variant = "planned";
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_open(&options, &opened), "forced_op");

  char* report = NULL;
  EXPECT_CODE(KVR_CODE_NOT_FOUND, kvr_load(kvr, "nul", NULL, &report), "nul");
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_load(kvr, NULL, NULL, &report), "op");
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_load(kvr, "null", "", &report), "shapes");
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_load(kvr, "null", "n=12x", &report), "12x");
  EXPECT(report == NULL);
  EXPECT_CODE(KVR_CODE_NOT_FOUND, kvr_launch(kvr, "nul", NULL, 0, NULL), "nul");
  EXPECT_CODE(KVR_CODE_NOT_FOUND, kvr_publish_file(kvr, "/nonexistent.json", NULL), "nonexistent");
  kvr_swap_options swap = {.struct_size = sizeof swap, .op = "null"};
  uint64_t id = 0;
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_swap(kvr, &swap, &id), "swap");
  kvr_scope* scope = NULL;
  EXPECT_CODE(KVR_CODE_FAILED_PRECONDITION, kvr_capture_open(kvr, NULL, NULL, &scope), "captur");
  EXPECT(scope == NULL);

  EXPECT(strcmp(kvr_code_name(KVR_CODE_DATA_LOSS), "DATA_LOSS") == 0);
  EXPECT(kvr_code_name((kvr_code)99) != NULL && kvr_code_name((kvr_code)-1) != NULL);
}

static void TensorsAreChecked(kvr_runtime* kvr, int needs_cpu) {
  kvr_dltensor from = Floats(x), to = Floats(y), wrong = from;
  const kvr_dltensor* tensors[2] = {&from, &to};
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_launch(kvr, "null", tensors, 1, NULL), "2 tensors");
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_launch(kvr, "null", NULL, 2, NULL), "tensors");
  tensors[1] = NULL;
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_launch(kvr, "null", tensors, 2, NULL), "(y)");
  tensors[1] = &to;
  tensors[0] = &wrong;
#define EXPECT_WRONG(change, said)                                                           \
  do {                                                                                       \
    wrong = from;                                                                            \
    change;                                                                                  \
    EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_launch(kvr, "null", tensors, 2, NULL), said); \
  } while (0)
  int64_t two[1] = {2}, negative[1] = {-1}, vast[2] = {INT64_MAX, 4};
  EXPECT_WRONG(wrong.strides = two, "contiguous");
  EXPECT_WRONG(wrong.shape = NULL, "shape");
  EXPECT_WRONG(wrong.shape = negative, "extent");
  EXPECT_WRONG((wrong.shape = vast, wrong.ndim = 2), "extent");
  EXPECT_WRONG(wrong.ndim = 7, "dimensions");
  EXPECT_WRONG(wrong.ndim = -1, "dimensions");
  EXPECT_WRONG(wrong.dtype_lanes = 2, "lanes");
  EXPECT_WRONG(wrong.dtype_code = 77, "77");
  EXPECT_WRONG(wrong.dtype_code = 4, "x");  /* bfloat of 32 bits: no such type */
  EXPECT_WRONG(wrong.dtype_bits = 64, "x"); /* a float64, known and not this op's */
  EXPECT_WRONG(wrong.byte_offset = 1, "x"); /* misaligned */
  EXPECT_WRONG(wrong.data = NULL, "x");
  if (needs_cpu) EXPECT_WRONG(wrong.device_type = 2, "cuda:0");
}

static void ReportsAreJson(kvr_runtime* kvr) {
  char* report = NULL;
  EXPECT_OK(kvr_scan(kvr, &report));
  EXPECT(report != NULL && strstr(report, "\"mla_sparse_decode\"") != NULL);
  EXPECT(report != NULL && strstr(report, "\"refused\"") != NULL);
  kvr_free(report);
  report = NULL;
  EXPECT_OK(kvr_status(kvr, &report));
  EXPECT(report != NULL && report[0] == '{');
  kvr_free(report);
  EXPECT_OK(kvr_scan(kvr, NULL));
  kvr_free(NULL);
  int64_t number = -1;
  char digest[KVR_DIGEST_SIZE] = "";
  EXPECT_OK(kvr_generation(kvr, &number, digest));
  EXPECT(number == 0 && strlen(digest) == 64);
}

static void ClosingARuntimeFirstIsFine(kvr_runtime* kvr) {
  kvr_dltensor from = Floats(x), to = Floats(y);
  const kvr_dltensor* tensors[2] = {&from, &to};
  void* stream = NULL;
  kvr_graph* graph = NULL;
  EXPECT_OK(kvr_load(kvr, "null", "n=1000", NULL));
  EXPECT_OK(kvr_stream_create(kvr, &stream));
  EXPECT_OK(kvr_prepare_stream(kvr, stream, NULL));
  EXPECT_OK(kvr_stream_begin_capture(kvr, stream));
  EXPECT_OK(kvr_launch(kvr, "null", tensors, 2, stream));
  EXPECT_OK(kvr_stream_end_capture(kvr, stream, 0, &graph));
  EXPECT_OK(kvr_stream_destroy(kvr, stream));
  EXPECT_OK(kvr_close(kvr));
  void* exec = NULL;
  EXPECT_OK(kvr_graph_exec(graph, &exec));
  EXPECT(exec != NULL);
  EXPECT_OK(kvr_graph_close(graph));
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_graph_close(graph), "closed");
}

static void HandlesAreDeadAfterFork(kvr_runtime* kvr) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    failures = 0;
    EXPECT_CODE(KVR_CODE_FAILED_PRECONDITION, kvr_freeze(kvr), "fork");
    EXPECT_CODE(KVR_CODE_FAILED_PRECONDITION, kvr_close(kvr), "fork");
    kvr_runtime* second = Open("null");
    EXPECT_OK(kvr_freeze(second));
    EXPECT_OK(kvr_close(second));
    fflush(stdout);
    _exit(failures);
  }
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT(status == 0);
  EXPECT_OK(kvr_thaw(kvr));
}

static void* FailElsewhere(void* unused) {
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_freeze(NULL), "NULL");
  return unused;
}

static void ErrorsAreTheThreadsOwn(kvr_runtime* kvr) {
  EXPECT_CODE(KVR_CODE_NOT_FOUND, kvr_load(kvr, "nul", NULL, NULL), "nul");
  pthread_t thread;
  pthread_create(&thread, NULL, FailElsewhere, NULL);
  pthread_join(thread, NULL);
  EXPECT(strstr(kvr_last_error(), "nul") != NULL);
}

static void Fill(float* to, float first) {
  for (int i = 0; i < N; ++i) to[i] = first + (float)i;
}

static void KernelsRun(kvr_runtime* kvr) {
  char* report = NULL;
  EXPECT_OK(kvr_load(kvr, "null", "n=1000; n=1..3", &report));
  EXPECT(report != NULL && strstr(report, "\"ready\":true") != NULL);
  kvr_free(report);
  void* stream = NULL;
  EXPECT_OK(kvr_stream_create(kvr, &stream));
  EXPECT_OK(kvr_prepare_stream(kvr, stream, NULL));
  EXPECT_OK(kvr_freeze(kvr));
  EXPECT_CODE(KVR_CODE_FAILED_PRECONDITION, kvr_load(kvr, "null", "n=7", NULL), "frozen");

  int64_t one[1] = {1};
  kvr_dltensor from = Floats(x), to = Floats(y);
  const kvr_dltensor* tensors[2] = {&from, &to};
  from.strides = one;
  Fill(x, 1);
  EXPECT_OK(kvr_launch(kvr, "null", tensors, 2, stream));
  EXPECT_OK(kvr_stream_synchronize(kvr, stream));
  EXPECT(memcmp(x, y, sizeof x) == 0);

  /* An offset, and the default stream. */
  int64_t few[1] = {3};
  from.shape = to.shape = few;
  from.byte_offset = 8;
  memset(y, 0, sizeof y);
  EXPECT_OK(kvr_launch(kvr, "null", tensors, 2, NULL));
  EXPECT_OK(kvr_stream_synchronize(kvr, NULL));
  EXPECT(y[0] == x[2] && y[2] == x[4] && y[3] == 0);
  from = Floats(x);
  to = Floats(y);

  kvr_bound* bound = NULL;
  EXPECT_OK(kvr_bind(kvr, "null", tensors, 2, &bound));
  EXPECT_OK(kvr_bound_launch(bound, stream));
  static float other[N];
  kvr_dltensor elsewhere = Floats(other);
  EXPECT_OK(kvr_bound_set(bound, 1, &elsewhere));
  EXPECT_OK(kvr_bound_launch(bound, stream));
  EXPECT_OK(kvr_stream_synchronize(kvr, stream));
  EXPECT(memcmp(x, y, sizeof x) == 0 && memcmp(x, other, sizeof x) == 0);
  elsewhere.shape = few;
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_bound_set(bound, 1, &elsewhere), "shape");
  EXPECT_CODE(KVR_CODE_OUT_OF_RANGE, kvr_bound_set(bound, 2, &elsewhere), "no tensor 2");
  EXPECT_OK(kvr_bound_close(bound));
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_bound_launch(bound, stream), "closed");
  EXPECT_OK(kvr_stream_destroy(kvr, stream));
  EXPECT_OK(kvr_thaw(kvr));
}

static void AScopeIsClosedByWhateverEndsIt(kvr_runtime* kvr) {
  void* stream = NULL;
  EXPECT_OK(kvr_stream_create(kvr, &stream));
  EXPECT_OK(kvr_load(kvr, "null", "n=1000", NULL));
  EXPECT_OK(kvr_prepare_stream(kvr, stream, NULL));
  kvr_dltensor from = Floats(x), to = Floats(y);
  const kvr_dltensor* tensors[2] = {&from, &to};
  kvr_scope* scope = NULL;
  kvr_graph* graph = NULL;
  EXPECT_OK(kvr_stream_begin_capture(kvr, stream));
  EXPECT_OK(kvr_capture_open(kvr, stream, NULL, &scope));
  EXPECT_OK(kvr_launch(kvr, "null", tensors, 2, stream));
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_capture_finish(scope, NULL), "binding");
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_capture_drop(scope), "closed");
  EXPECT_OK(kvr_stream_end_capture(kvr, stream, 0, &graph));
  EXPECT_OK(kvr_graph_close(graph));
  EXPECT_OK(kvr_stream_destroy(kvr, stream));
}

static void CapturedLaunchesFollowSwaps(kvr_runtime* kvr, int keep_graph) {
  void *stream = NULL, *joined = NULL, *exec = NULL;
  EXPECT_OK(kvr_stream_create(kvr, &stream));
  EXPECT_OK(kvr_stream_create(kvr, &joined));
  EXPECT_OK(kvr_load(kvr, "null", "n=1000", NULL));
  EXPECT_OK(kvr_prepare_stream(kvr, stream, "pool"));
  EXPECT_OK(kvr_prepare_stream(kvr, joined, "pool"));
  char before[KVR_DIGEST_SIZE], after[KVR_DIGEST_SIZE], runs[KVR_DIGEST_SIZE];
  EXPECT_OK(kvr_generation(kvr, NULL, before));

  static float other[N];
  kvr_dltensor from = Floats(x), to = Floats(y), elsewhere = Floats(other);
  const kvr_dltensor *tensors[2] = {&from, &to}, *others[2] = {&from, &elsewhere};
  kvr_capture_options options = {
      .struct_size = sizeof options, .pool = "pool", .spare_nodes = 1, .keeps_graph = keep_graph};
  kvr_scope* scope = NULL;
  kvr_binding* binding = NULL;
  kvr_graph* graph = NULL;
  EXPECT_OK(kvr_stream_begin_capture(kvr, stream));
  EXPECT_OK(kvr_capture_open(kvr, stream, &options, &scope));
  EXPECT_OK(kvr_launch(kvr, "null", tensors, 2, stream));
  EXPECT_OK(kvr_stream_wait(kvr, joined, stream));
  EXPECT_OK(kvr_launch(kvr, "null", others, 2, joined));
  EXPECT_OK(kvr_stream_wait(kvr, stream, joined));
  EXPECT_OK(kvr_capture_finish(scope, &binding));
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_capture_finish(scope, &binding), "closed");
  EXPECT_OK(kvr_stream_end_capture(kvr, stream, keep_graph, &graph));
  EXPECT_OK(kvr_graph_exec(graph, &exec));

  Fill(x, 100);
  EXPECT_OK(kvr_graph_launch(graph, stream));
  EXPECT_OK(kvr_stream_synchronize(kvr, stream));
  EXPECT(memcmp(x, y, sizeof x) == 0 && memcmp(x, other, sizeof x) == 0);

  kvr_swap_options swap = {.struct_size = sizeof swap, .op = "null", .variant = "planned"};
  uint64_t id = 0;
  char* result = NULL;
  EXPECT_OK(kvr_swap(kvr, &swap, &id));
  EXPECT_OK(kvr_swap_wait(kvr, id, &result));
  EXPECT(result != NULL && strstr(result, "\"published\"") != NULL);
  kvr_free(result);
  EXPECT_OK(kvr_generation(kvr, NULL, after));
  EXPECT(strcmp(before, after) != 0);
  EXPECT_OK(kvr_binding_digest(binding, exec, runs));
  EXPECT(strcmp(before, runs) == 0);

  kvr_applied applied = {.struct_size = sizeof applied};
  EXPECT_OK(kvr_binding_apply(binding, exec, NULL, &applied));
  EXPECT(applied.outcome == KVR_APPLIED && applied.nodes >= 2);
  EXPECT(applied.whole_graph == !keep_graph);
  EXPECT(strcmp(applied.digest, after) == 0);
  EXPECT_OK(kvr_binding_apply(binding, exec, NULL, &applied));
  EXPECT(applied.outcome == KVR_UNCHANGED);
  Fill(x, 200);
  EXPECT_OK(kvr_graph_launch(graph, stream));
  EXPECT_OK(kvr_stream_synchronize(kvr, stream));
  EXPECT(memcmp(x, y, sizeof x) == 0 && memcmp(x, other, sizeof x) == 0);

  EXPECT_OK(kvr_binding_apply(binding, exec, before, NULL));
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_binding_apply(binding, exec, "xyz", NULL), "xyz");
  before[0] = before[0] == '0' ? '1' : '0';
  EXPECT_CODE(KVR_CODE_NOT_FOUND, kvr_binding_apply(binding, exec, before, NULL), "");
  EXPECT_OK(kvr_rollback(kvr, NULL, NULL));
  EXPECT_CODE(KVR_CODE_NOT_FOUND, kvr_swap_wait(kvr, id + 1000, NULL), "");
  swap.variant = "plannd";
  EXPECT_OK(kvr_swap(kvr, &swap, &id));
  result = NULL;
  EXPECT_CODE(KVR_CODE_NOT_FOUND, kvr_swap_wait(kvr, id, &result), "plannd");
  EXPECT(result != NULL && strstr(result, "\"failed\"") != NULL);
  kvr_free(result);

  kvr_counters counters = {.struct_size = sizeof counters};
  EXPECT_OK(kvr_count(kvr, &counters));
  EXPECT(counters.captured >= 2 && counters.unscoped == 0 && counters.applied >= 2);
  EXPECT_OK(kvr_binding_forget(binding, exec));
  EXPECT_OK(kvr_binding_close(binding));
  EXPECT_OK(kvr_graph_close(graph));
  EXPECT_OK(kvr_collect(kvr));

  /* A scope that is dropped leaves its launches in the graph. */
  EXPECT_OK(kvr_stream_begin_capture(kvr, stream));
  EXPECT_OK(kvr_capture_open(kvr, stream, NULL, &scope));
  EXPECT_OK(kvr_launch(kvr, "null", tensors, 2, stream));
  EXPECT_OK(kvr_capture_drop(scope));
  EXPECT_OK(kvr_stream_end_capture(kvr, stream, 0, &graph));
  Fill(x, 300);
  EXPECT_OK(kvr_graph_launch(graph, stream));
  EXPECT_OK(kvr_stream_synchronize(kvr, stream));
  EXPECT(memcmp(x, y, sizeof x) == 0);
  EXPECT_OK(kvr_graph_close(graph));
  EXPECT_OK(kvr_stream_destroy(kvr, joined));
  EXPECT_OK(kvr_stream_destroy(kvr, stream));
}

/* One slot for each token: the output is that slot's row, and the scalar's value is in lse. */
static void ScalarsAreHostValues(kvr_runtime* kvr) {
  enum { kCkv = 512, kKpe = 64 };
  static uint16_t q_nope[kCkv], q_pe[kKpe], ckv[2 * kCkv], kpe[2 * kKpe], output[kCkv];
  static float lse[1];
  static int32_t slots[1] = {1};
  float f32 = 0.5f;
  double f64 = 0.5, not_f32 = 1e300;
  int64_t i64 = 2;
  for (int i = 0; i < 2 * kCkv; ++i) ckv[i] = (uint16_t)(0x3f80 + i % 64); /* 1 to 1.5 */
  q_nope[0] = 0x3f80;                                                      /* 1 */
  int64_t s_nope[3] = {1, 1, kCkv}, s_pe[3] = {1, 1, kKpe}, s_ckv[3] = {2, 1, kCkv},
          s_kpe[3] = {2, 1, kKpe}, s_slots[2] = {1, 1};
  const kvr_dltensor bf16 = {
      .device_type = 1, .ndim = 3, .dtype_code = 4, .dtype_bits = 16, .dtype_lanes = 1};
  kvr_dltensor all[8] = {bf16, bf16, bf16, bf16, bf16, bf16, bf16, bf16};
  void* data[8] = {q_nope, q_pe, ckv, kpe, slots, &f32, output, lse};
  int64_t* shapes[8] = {s_nope, s_pe, s_ckv, s_kpe, s_slots, NULL, s_nope, s_slots};
  const kvr_dltensor* tensors[8];
  for (int i = 0; i < 8; ++i) {
    all[i].data = data[i];
    all[i].shape = shapes[i];
    tensors[i] = &all[i];
  }
  all[4].ndim = all[7].ndim = 2;
  all[4].dtype_code = 0;
  all[5].ndim = 0;
  all[5].dtype_code = all[7].dtype_code = 2;
  all[4].dtype_bits = all[5].dtype_bits = all[7].dtype_bits = 32;

  EXPECT_OK(kvr_load(kvr, "mla_sparse_decode",
                     "num_tokens=1,num_qo_heads=1,topk=1,page_size=1,num_pages=2", NULL));
  struct {
    void* value;
    uint8_t code, bits;
    double scale;
  } scalars[] = {{&f32, 2, 32, 0.5}, {&f64, 2, 64, 0.5}, {&i64, 0, 64, 2}};
  for (size_t i = 0; i < 3; ++i) {
    all[5].data = scalars[i].value;
    all[5].dtype_code = scalars[i].code;
    all[5].dtype_bits = scalars[i].bits;
    memset(output, 0, sizeof output);
    EXPECT_OK(kvr_launch(kvr, "mla_sparse_decode", tensors, 8, NULL));
    EXPECT_OK(kvr_stream_synchronize(kvr, NULL));
    EXPECT(memcmp(output, ckv + kCkv, sizeof output) == 0);
    /* The score is ckv[slot 1][0] = 1, times the scale; lse is base 2. */
    EXPECT(lse[0] > scalars[i].scale * 1.4426 && lse[0] < scalars[i].scale * 1.4428);
  }
  all[5].dtype_code = 2;
  all[5].data = &not_f32;
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_launch(kvr, "mla_sparse_decode", tensors, 8, NULL),
              "sm_scale");
  all[5].device_type = 2;
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_launch(kvr, "mla_sparse_decode", tensors, 8, NULL),
              "scalar");
}

static void LiveControlStartsAndEnds(kvr_runtime* kvr) {
  char socket[] = "/tmp/kvr-c-XXXXXX";
  kvr_live* live = NULL;
  if (mkdtemp(socket) == NULL) return;
  char path[64];
  snprintf(path, sizeof path, "%s/live.sock", socket);
  kvr_live_options options = {.struct_size = sizeof options, .name = "c_api_test"};
  EXPECT_CODE(KVR_CODE_INVALID_ARGUMENT, kvr_live_start(kvr, &options, &live), "socket");
  options.socket = path;
  EXPECT_OK(kvr_live_start(kvr, &options, &live));
  EXPECT(access(path, F_OK) == 0);
  EXPECT_OK(kvr_live_begin_step(live, "8"));
  EXPECT_OK(kvr_live_end_step(live, "8", 12.5));
  EXPECT_OK(kvr_live_count_error(live));
  EXPECT_OK(kvr_live_close(live));
  EXPECT(access(path, F_OK) != 0);
  rmdir(socket);
}

int main(int argc, char** argv) {
  const char* device = argc > 1 ? argv[1] : "null";
  const int host = strcmp(device, "host") == 0;
  EXPECT(kvr_abi_version() == KVR_API_VERSION);
  EXPECT(strlen(kvr_version()) >= 5);
  EXPECT(kvr_last_error()[0] == '\0' && kvr_last_fix()[0] == '\0');

  kvr_runtime* kvr = Open(device);
  HandlesThatAreNoneAreAnswered(kvr);
  SizesOfStructsAreChecked(kvr);
  WhatIsNullOrUnknownIsSaid(kvr);
  TensorsAreChecked(kvr, host);
  ReportsAreJson(kvr);
  ErrorsAreTheThreadsOwn(kvr);
  LiveControlStartsAndEnds(kvr);
  HandlesAreDeadAfterFork(kvr);
  if (host) {
    KernelsRun(kvr);
    AScopeIsClosedByWhateverEndsIt(kvr);
    CapturedLaunchesFollowSwaps(kvr, 1);
    CapturedLaunchesFollowSwaps(kvr, 0);
    ScalarsAreHostValues(kvr);
    ClosingARuntimeFirstIsFine(Open(device));
  }
  EXPECT_OK(kvr_close(kvr));
  if (failures > 0) printf("%d failures\n", failures);
  return failures > 0;
}
