/* SPDX-License-Identifier: Apache-2.0
 *
 * The plugin ABI, version 1, for C and C++: what a compiled plugin (a shared library) shares with
 * KVR. Everything that is data stays data: manifests, CUDA sources, cubins and operation
 * definitions lie in a section of the library, as the same files that a bundle directory holds
 * (docs/bundles.md), and KVR reads them without loading anything. Only what has to be code goes
 * through this header: plan functions, launch functions, and an operation's reference and
 * generator. A plugin without code is the section alone.
 *
 *   KVR_PLUGIN("my-kernels", "1.0.0");
 *   KVR_PLUGIN_FILE("w8/variant.toml", "/abs/path/w8/variant.toml");
 *   KVR_EXPORT const kvr_plugin* kvr_plugin_v1(void) { return &plugin; }
 *
 * The CMake function kvr_add_plugin() writes the first two kinds of line; the third is needed
 * only where the plugin has code.
 *
 * Loading: KVR checks section, ABI version and trust, then loads a uniquely named copy of the file
 * when code of it is first needed, so a rebuilt library may be copied over a loaded one. Unloaded
 * when nothing refers to it any more.
 * Versions: `size` of every struct is sizeof as the one who fills it compiled it. Structs only
 * grow, at their end. A smaller struct than KVR knows is complete as it is (what it lacks counts as
 * null or 0), down to the fields of version 1.0; of a larger one, the rest must be zero. Another
 * KVR_ABI_MAJOR is refused.
 * Threading: every function may be called from several threads at once.
 * Ownership: what is passed in is the caller's and valid during the call; what kvr_plugin_v1
 * returns is the library's, constant, and valid while it is loaded.
 * Errors: a function returns KVR_OK or another code and writes one line (what is wrong, what would
 * be right) to `error`, NUL-terminated, within `error_size` bytes. Exceptions must not leave.
 */
#ifndef KVR_PLUGIN_H_
#define KVR_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#define KVR_ABI_MAJOR 1
#define KVR_ABI_MINOR 1

#ifdef __cplusplus
extern "C" {
#endif

/* Codes are those of absl::StatusCode. */
enum {
  KVR_OK = 0,
  KVR_INVALID_ARGUMENT = 3,    /* the request is wrong */
  KVR_FAILED_PRECONDITION = 9, /* this config does not fit these axes: another may */
  KVR_UNIMPLEMENTED = 12,      /* not on this device */
  KVR_INTERNAL = 13
};

/* Element types. */
enum {
  KVR_BOOL = 1,
  KVR_U8 = 2,
  KVR_I32 = 3,
  KVR_I64 = 4,
  KVR_F8_E4M3 = 5,
  KVR_F8_E8M0 = 6,
  KVR_F16 = 7,
  KVR_BF16 = 8,
  KVR_F32 = 9,
  KVR_F64 = 10
};

/* Row-major and contiguous. A scalar has rank 0 and its data in host memory. An optional tensor
 * that is absent has null data. */
typedef struct kvr_tensor {
  void* data;
  int32_t dtype;
  int32_t rank;
  int64_t shape[6];
} kvr_tensor;

/* As core/device_info.h has it. Units: counts, bytes. */
typedef struct kvr_device {
  uint32_t size;
  const char* kind;   /* "cuda", "host", "null", or "profile": planning without the hardware */
  const char* name;   /* "NVIDIA H200" */
  const char* target; /* "sm_90a", "host" */
  int32_t sms;
  int32_t max_threads_per_block;
  int64_t smem_per_block;
  int64_t l2_bytes;
} kvr_device;

/* --- Variants ------------------------------------------------------------------------------- */

/* Axes in the order of the op's definition, tunables in that of the manifest. */
typedef struct kvr_plan_request {
  uint32_t size;
  uint32_t axis_count;
  uint32_t tunable_count;
  uint32_t value_count; /* of the manifest's plan_values */
  const int64_t* axes;
  const int64_t* tunables;
  const kvr_device* device;
} kvr_plan_request;

/* A launch of a variant that states `launch_function = true`. `tensors` in the op's order: inputs,
 * then outputs. `workspace[i]` is the manifest's i-th [[workspace]], aligned to 256 bytes.
 * cuda: called on the launching thread with the context current; enqueue on `stream` (a
 * CUstream), allocate nothing and wait for nothing: the stream may be capturing.
 * host: called in stream order on a thread of the device, `stream` is null; the work is done when
 * the function returns.
 * Not called where every output is empty. */
typedef struct kvr_launch_request {
  uint32_t size;
  uint32_t axis_count;
  uint32_t tensor_count;
  uint32_t workspace_count;
  const int64_t* axes;
  const kvr_tensor* tensors;
  void* const* workspace;
  const int64_t* workspace_bytes;
  void* stream;
} kvr_launch_request;

/* Values of one output in float64: |out - expected| <= bound, element by element. KVR provides both
 * arrays, one element for each of the tensor's. An infinite `expected` must be met exactly.
 * `cosine_limit`: most 1 - cosine similarity of the whole tensor; 0: not checked. */
typedef struct kvr_expected {
  double* expected;
  double* bound;
  double cosine_limit;
} kvr_expected;

/* The code of one variant, found by op and name; its manifest says which functions it has. */
typedef struct kvr_variant {
  uint32_t size;
  const char* op;
  const char* name;

  /* Computes the values that the manifest names in plan_values, for its expressions to use. Pure:
   * the same request gives the same values. On the launch path: no lock, no allocation. */
  int (*plan)(const kvr_plan_request* request, int64_t* values, char* error, size_t error_size);

  /* Makes whatever the launches of one config on one device need (a cuBLAS handle, a loaded
   * module), when KVR loads the config; the context is current. `open` and `close` may be null. */
  int (*open)(const kvr_device* device, const int64_t* tunables, uint32_t tunable_count,
              void** state, char* error, size_t error_size);
  int (*launch)(void* state, const kvr_launch_request* request, char* error, size_t error_size);
  void (*close)(void* state); /* nothing launched through `state` is in flight any more */

  /* Since 1.1. What an approximate variant computes with one config, in float64, on up to `threads`
   * threads: its own algorithm, which verification holds its kernels to. As kvr_operation's.
   * `quality`: the values of its tunables of scope quality, in the manifest's order, since no
   * others may change what it says. */
  int (*reference)(const int64_t* axes, uint32_t axis_count, const int64_t* quality,
                   uint32_t quality_count, const kvr_tensor* inputs, uint32_t input_count,
                   uint32_t threads, kvr_expected* outputs, uint32_t output_count, char* error,
                   size_t error_size);
} kvr_variant;

/* --- Operations ----------------------------------------------------------------------------- */

/* The code of one operation, found by name; its definition (<name>/definition.json) says the
 * rest. All memory is host memory. */
typedef struct kvr_operation {
  uint32_t size;
  const char* name;

  /* Fills every input, deterministically from `seed`. */
  int (*generate)(const int64_t* axes, uint32_t axis_count, uint64_t seed, const kvr_tensor* inputs,
                  uint32_t input_count, char* error, size_t error_size);

  /* The reference, on up to `threads` threads. `outputs` are preset to expected 0, bound 0. */
  int (*reference)(const int64_t* axes, uint32_t axis_count, const kvr_tensor* inputs,
                   uint32_t input_count, uint32_t threads, kvr_expected* outputs,
                   uint32_t output_count, char* error, size_t error_size);

  /* Bytes that any implementation must move: each distinct input byte read once, outputs
   * written once. Null: all tensors whole. */
  int64_t (*minimum_bytes)(const int64_t* axes, uint32_t axis_count);

  /* Since 1.1. How far an approximate result is from the exact one in the operation's own terms,
   * beside the cosine and the relative error that KVR computes of every output: the share of tokens
   * whose experts changed, for example. `outputs` are what a kernel wrote, `exact` is what
   * `reference` gave; `values[i]` is the measure quality_names[i] (lower_snake_case). Null: none. */
  uint32_t quality_count;
  const char* const* quality_names;
  int (*quality)(const int64_t* axes, uint32_t axis_count, const kvr_tensor* inputs,
                 uint32_t input_count, const kvr_tensor* outputs, const kvr_expected* exact,
                 uint32_t output_count, double* values, char* error, size_t error_size);
} kvr_operation;

/* --- The plugin ----------------------------------------------------------------------------- */

typedef struct kvr_plugin {
  uint32_t size;
  uint32_t abi_major; /* KVR_ABI_MAJOR */
  uint32_t abi_minor; /* KVR_ABI_MINOR */
  uint32_t operation_count;
  uint32_t variant_count;
  const kvr_operation* const* operations;
  const kvr_variant* const* variants;
} kvr_plugin;

/* The one symbol that a plugin with code exports. */
const kvr_plugin* kvr_plugin_v1(void);

#define KVR_EXPORT __attribute__((visibility("default")))

/* --- The section ---------------------------------------------------------------------------- */

/* Section ".kvr_plugin": records one after another, each aligned to 8 bytes, little-endian:
 *
 *   char magic[8]           "KVRPLUG1" first of all, once; "KVRFILE1" for every file
 *   uint32_t abi_major, abi_minor
 *   uint64_t name_size      without a NUL
 *   uint64_t content_size
 *   name, then content      of the first record: the plugin's name, and its version
 *
 * File names are relative paths; each directory with a variant.toml is a bundle, each with a
 * definition.json an operation. KVR_PLUGIN_FILE takes `path` from the compiler's working
 * directory, or absolute. */
#define KVR_STRINGIFY_(x) #x
#define KVR_STRINGIFY(x) KVR_STRINGIFY_(x)

#define KVR_RECORD_(magic, name, content) \
  __asm__(".pushsection .kvr_plugin,\"aR\",@progbits\n"                         \
          ".balign 8\n"                                                         \
          ".ascii \"" magic "\"\n"                                              \
          ".long " KVR_STRINGIFY(KVR_ABI_MAJOR) ", " KVR_STRINGIFY(KVR_ABI_MINOR) "\n" \
          ".quad 2f - 1f, 3f - 2f\n"                                            \
          "1: .ascii \"" name "\"\n"                                            \
          "2: " content "\n"                                                    \
          "3:\n"                                                                \
          ".popsection\n")

#define KVR_PLUGIN(name, version) KVR_RECORD_("KVRPLUG1", name, ".ascii \"" version "\"")
#define KVR_PLUGIN_FILE(name, path) KVR_RECORD_("KVRFILE1", name, ".incbin \"" path "\"")

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVR_PLUGIN_H_ */
