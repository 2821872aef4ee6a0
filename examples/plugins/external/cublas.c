/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm/cublas: work that a library enqueues. KVR gives tensors, workspace and stream, and takes
 * part in nothing else. cuBLAS is loaded when a config is opened on a GPU, so the plugin builds,
 * and runs on the host device, where there is no CUDA.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gemm.h"

/* What is used of cublas_v2.h. */
typedef struct cublasContext* cublasHandle_t;
typedef int (*cublasCreate_t)(cublasHandle_t*);
typedef int (*cublasDestroy_t)(cublasHandle_t);
typedef int (*cublasSetStream_t)(cublasHandle_t, void* stream);
typedef int (*cublasSetWorkspace_t)(cublasHandle_t, void* workspace, size_t bytes);
typedef int (*cublasSgemm_t)(cublasHandle_t, int transa, int transb, int m, int n, int k,
                             const float* alpha, const float* a, int lda, const float* b, int ldb,
                             const float* beta, float* c, int ldc);
enum { CUBLAS_OP_N = 0 };

typedef struct {
  void* library;         /* null: the host device */
  cublasHandle_t handle; /* serves one stream at a time */
  pthread_mutex_t mutex;
  cublasDestroy_t destroy;
  cublasSetStream_t set_stream;
  cublasSetWorkspace_t set_workspace;
  cublasSgemm_t sgemm;
} gemm_state;

static void close_gemm(void* opened) {
  gemm_state* state = opened;
  if (state->handle != NULL) state->destroy(state->handle);
  /* The library stays: others in this process may use it, and it does not unload cleanly. */
  pthread_mutex_destroy(&state->mutex);
  free(state);
}

static void* load_cublas(void) {
  static const char* const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
  void* library = NULL;
  for (size_t i = 0; i < sizeof names / sizeof *names && library == NULL; ++i) {
    library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  }
  return library;
}

static int open_cublas(gemm_state* state, char* error, size_t error_size) {
  state->library = load_cublas();
  if (state->library == NULL) {
    snprintf(error, error_size, "%s; put the directory of libcublas.so into LD_LIBRARY_PATH",
             dlerror());
    return KVR_FAILED_PRECONDITION;
  }
  cublasCreate_t create = (cublasCreate_t)dlsym(state->library, "cublasCreate_v2");
  state->destroy = (cublasDestroy_t)dlsym(state->library, "cublasDestroy_v2");
  state->set_stream = (cublasSetStream_t)dlsym(state->library, "cublasSetStream_v2");
  state->set_workspace = (cublasSetWorkspace_t)dlsym(state->library, "cublasSetWorkspace_v2");
  state->sgemm = (cublasSgemm_t)dlsym(state->library, "cublasSgemm_v2");
  if (create == NULL || state->destroy == NULL || state->set_stream == NULL ||
      state->set_workspace == NULL || state->sgemm == NULL) {
    snprintf(error, error_size, "libcublas.so lacks a function of version 12; install 12 or 13");
    return KVR_FAILED_PRECONDITION;
  }
  const int status = create(&state->handle);
  if (status != 0) {
    state->handle = NULL;
    snprintf(error, error_size, "cublasCreate failed with status %d", status);
    return KVR_INTERNAL;
  }
  return KVR_OK;
}

static int open_gemm(const kvr_device* device, const int64_t* tunables, uint32_t tunable_count,
                     void** state, char* error, size_t error_size) {
  (void)tunables, (void)tunable_count;
  gemm_state* opened = calloc(1, sizeof *opened);
  if (opened == NULL) return KVR_INTERNAL;
  pthread_mutex_init(&opened->mutex, NULL);
  if (strcmp(device->kind, "cuda") == 0) {
    const int code = open_cublas(opened, error, error_size);
    if (code != KVR_OK) {
      close_gemm(opened);
      return code;
    }
  } else if (strcmp(device->kind, "host") != 0) {
    close_gemm(opened);
    snprintf(error, error_size, "gemm/cublas runs on cuda and host, not on %s", device->kind);
    return KVR_UNIMPLEMENTED;
  }
  *state = opened;
  return KVR_OK;
}

static void host_gemm(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k) {
  for (int64_t row = 0; row < m; ++row) {
    float* out = c + row * n;
    memset(out, 0, (size_t)n * sizeof *out);
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t column = 0; column < n; ++column)
        out[column] += a[row * k + i] * b[i * n + column];
    }
  }
}

static int launch_gemm(void* opened, const kvr_launch_request* request, char* error,
                       size_t error_size) {
  gemm_state* state = opened;
  const float* a = request->tensors[TENSOR_A].data;
  const float* b = request->tensors[TENSOR_B].data;
  float* c = request->tensors[TENSOR_C].data;
  const int64_t m = request->axes[AXIS_M], n = request->axes[AXIS_N], k = request->axes[AXIS_K];
  if (state->library == NULL) {
    host_gemm(a, b, c, m, n, k);
    return KVR_OK;
  }

  /* cuBLAS is column-major, where these very bytes are the transposes: c' = b' a'. */
  const float one = 1, zero = 0;
  pthread_mutex_lock(&state->mutex);
  int status = state->set_stream(state->handle, request->stream);
  /* After the stream, which resets it. */
  if (status == 0) {
    status = state->set_workspace(state->handle, request->workspace[0],
                                  (size_t)request->workspace_bytes[0]);
  }
  if (status == 0) {
    status = state->sgemm(state->handle, CUBLAS_OP_N, CUBLAS_OP_N, (int)n, (int)m, (int)k, &one, b,
                          (int)n, a, (int)k, &zero, c, (int)n);
  }
  pthread_mutex_unlock(&state->mutex);
  if (status == 0) return KVR_OK;
  snprintf(error, error_size, "cublasSgemm failed with status %d", status);
  return KVR_INTERNAL;
}

const kvr_variant gemm_cublas = {
    .size = sizeof(kvr_variant),
    .op = "gemm",
    .name = "cublas",
    .open = open_gemm,
    .launch = launch_gemm,
    .close = close_gemm,
};
