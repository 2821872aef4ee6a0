/* SPDX-License-Identifier: Apache-2.0
 *
 * KVR for C, and for whatever calls C (python/kvr.py): libkvr.so. Boot: open, load, freeze, serve.
 *
 *   kvr_options options = {.struct_size = sizeof options, .device = "cuda:0"};
 *   kvr_runtime* kvr;
 *   if (kvr_open(&options, &kvr) != KVR_CODE_OK) die(kvr_last_error(), kvr_last_fix());
 *   kvr_load(kvr, "mla_sparse_decode", "num_tokens=1..96,topk=512", NULL);
 *   kvr_prepare_stream(kvr, stream, NULL);
 *   kvr_freeze(kvr);
 *   kvr_launch(kvr, "mla_sparse_decode", tensors, 8, stream);
 *
 * Errors: every function returns a code and prints nothing; kvr_last_error() and kvr_last_fix() say
 * what is wrong and what would be right. No exception leaves. What an output points at is set on
 * success only, but for reports, which say so.
 *
 * Handles: pointers that are never followed. NULL, a handle of another kind, one that was closed
 * and plain garbage are answered with KVR_CODE_INVALID_ARGUMENT; closing NULL does nothing. What
 * was made of a runtime keeps it alive: the order of closing does not matter.
 *
 * Threading: every function from any thread. A handle other than kvr_runtime* and kvr_live* belongs
 * to one thread at a time, and closing waits for nobody's call. Launches are wait-free beside loads
 * and swaps.
 *
 * Stream order: a launch is enqueued on `stream` and returns; its errors surface at the stream.
 * Streams are raw handles: a CUstream or cudaStream_t on cuda, what kvr_stream_create gives on
 * host.
 *
 * Capture safety: kvr_launch, kvr_bound_launch, kvr_bound_set and the kvr_capture_ functions alone
 * are legal while their stream captures. Load and prepare beforehand; what is missing then is an
 * error that leaves the capture valid.
 *
 * Ownership: strings and structs that are passed in are the caller's and valid during the call.
 * Text that comes back is the caller's: kvr_free. Tensors stay alive until the stream has passed
 * their launch; the runtime, until the graphs captured from it are gone.
 *
 * Versions: the first member of a struct is its size as the caller compiled it. Structs and
 * functions are only added, so older programs run with newer libraries; a struct larger than the
 * library knows is refused with both sizes.
 *
 * Place: what KVR needs lies around the library, as an install has it: <prefix>/lib/libkvr.so. Load
 * it by an absolute path, or open a runtime before the process changes its directory.
 *
 * One copy a process: all state lies in the library, which exports kvr_ functions and nothing else.
 * A program that links the C++ library and loads libkvr.so has two registries that share no cache
 * in memory, workspace or generation; each works, but a capture scope sees the launches of its own
 * only.
 *
 * fork(): the child inherits no threads and no CUDA context. Handles made before are dead there,
 * and say so; open anew, or fork before. The library stays loaded until the process ends.
 */
#ifndef KVR_H_
#define KVR_H_

#include <stddef.h>
#include <stdint.h>

/* Of this header; kvr_abi_version() is the library's. Another major is another interface. */
#define KVR_API_MAJOR 1
#define KVR_API_MINOR 0
#define KVR_API_VERSION (KVR_API_MAJOR * 1000 + KVR_API_MINOR)

#if defined(__GNUC__)
#define KVR_API __attribute__((visibility("default")))
#else
#define KVR_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The canonical codes of absl::StatusCode and gRPC. */
typedef enum kvr_code {
  KVR_CODE_OK = 0,
  KVR_CODE_CANCELLED = 1,
  KVR_CODE_UNKNOWN = 2,
  KVR_CODE_INVALID_ARGUMENT = 3,
  KVR_CODE_DEADLINE_EXCEEDED = 4,
  KVR_CODE_NOT_FOUND = 5,
  KVR_CODE_ALREADY_EXISTS = 6,
  KVR_CODE_PERMISSION_DENIED = 7,
  KVR_CODE_RESOURCE_EXHAUSTED = 8,
  KVR_CODE_FAILED_PRECONDITION = 9,
  KVR_CODE_ABORTED = 10,
  KVR_CODE_OUT_OF_RANGE = 11,
  KVR_CODE_UNIMPLEMENTED = 12,
  KVR_CODE_INTERNAL = 13,
  KVR_CODE_UNAVAILABLE = 14,
  KVR_CODE_DATA_LOSS = 15,
  KVR_CODE_UNAUTHENTICATED = 16
} kvr_code;

typedef struct kvr_runtime kvr_runtime;
typedef struct kvr_bound kvr_bound;     /* a launch whose shapes are fixed */
typedef struct kvr_scope kvr_scope;     /* open inside a capture */
typedef struct kvr_binding kvr_binding; /* the launches of one captured graph */
typedef struct kvr_live kvr_live;       /* control from outside */
typedef struct kvr_graph kvr_graph;     /* one that kvr_stream_end_capture made */

KVR_API int32_t kvr_abi_version(void);
KVR_API const char* kvr_version(void); /* "0.1.0" */
KVR_API const char* kvr_code_name(kvr_code code);

/* Of the last call on this thread that failed; never NULL, valid until the next one fails. */
KVR_API const char* kvr_last_error(void);
KVR_API const char* kvr_last_fix(void);

KVR_API void kvr_free(char* text);

/* --- Open ------------------------------------------------------------------------------------ */

/* All zero but struct_size: everything by default. Lists of strings end with NULL. */
typedef struct kvr_options {
  size_t struct_size;
  const char* device; /* "cuda", "cuda:N" (the primary context, as the CUDA runtime and PyTorch use
                         it), "host", "null"; NULL: "auto", the first GPU, else host */
  void* cuda_context; /* instead: the application's CUcontext, which outlives the runtime */
  const char* const* plugin_roots; /* after the built-in variants and KVR_PLUGIN_PATH */
  const char* selection_file;      /* NULL: the baseline serves every key */
  const char* cache_dir;           /* NULL: KVR_CACHE_DIR, XDG_CACHE_HOME/kvr, ~/.cache/kvr */
  const char* const* cache_layers; /* read-only, before those of KVR_CACHE_LAYERS */
  const char* miss_policy;         /* "baseline" (also NULL), "error", "jit" */
  const char* forced_op;           /* the op of the two below, which come before the environment */
  const char* forced_variant;
  const char* const* forced_tunables; /* "BLOCK_H=16" */
  const char* const* approximate;     /* opt-ins, with their quality: "op/variant{K0=4}" */
  const char* journal;  /* publications go: NULL: to the ledger (KVR_LEDGER_DIR), where there may be
                           one; "none": nowhere; else the file that lines of JSON are appended to */
  int32_t no_compilers; /* 1: boot from selection file and cache alone */
  int32_t no_environment; /* 1: KVR_FORCE_<OP> and KVR_<OP>_<TUNABLE> are not read */
  /* Called, from any thread, where the command would print a warning, and throws nothing; NULL: it
   * is dropped. */
  void (*warn)(void* warn_context, const char* text);
  void* warn_context;
} kvr_options;

KVR_API kvr_code kvr_open(const kvr_options* options, kvr_runtime** runtime);
KVR_API kvr_code kvr_close(kvr_runtime* runtime);

/* JSON: the device; every op with axes, tensors and variants; what was refused, and why; selections
 * of the file that were dropped. */
KVR_API kvr_code kvr_scan(kvr_runtime* runtime, char** report);

/* --- Load ------------------------------------------------------------------------------------ */

/* Makes `shapes` ready to launch: compiles or reads the cache, loads, sizes workspaces. Not while
 * frozen.
 *
 * One shape is "num_tokens=1..96,topk=512"; a range stands for every value in it. Several are
 * separated by ';'. An axis left out takes the op's default; NULL: every key that the generation
 * selects. Loads on several threads compile side by side.
 *
 * KVR_CODE_OK: all are ready. Else the code and error are those of the first that is not, and the
 * rest is loaded nevertheless. `report` (or NULL) is set whenever anything was tried: JSON with
 * `ready`, `text` for people, and an item for every shape. */
KVR_API kvr_code kvr_load(kvr_runtime* runtime, const char* op, const char* shapes, char** report);

/* From now on no launch compiles, loads or allocates. Swaps go on. */
KVR_API kvr_code kvr_freeze(kvr_runtime* runtime);
KVR_API kvr_code kvr_thaw(kvr_runtime* runtime);

/* Gives `stream` its workspaces, that of captures into `pool` (NULL: "") among them. Streams that
 * are not prepared get them at their first launch, unless frozen or capturing. */
KVR_API kvr_code kvr_prepare_stream(kvr_runtime* runtime, void* stream, const char* pool);

/* --- Launch ---------------------------------------------------------------------------------- */

/* The layout of DLPack's DLTensor: a DLTensor* may be cast. Row-major and contiguous, `strides` may
 * be NULL. Device types 1 (CPU) on host, 2 or 13 (CUDA, managed) on cuda, with the device's
 * ordinal. A scalar has ndim 0 and a value in host memory, read during the call; besides its own
 * type it may be a float64 or an int64 whose value fits. An optional tensor that is absent is a
 * NULL pointer. */
typedef struct kvr_dltensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t ndim;
  uint8_t dtype_code; /* 0 int, 1 unsigned, 2 float, 4 bfloat, 6 bool, 10 e4m3fn, 14 e8m0fnu */
  uint8_t dtype_bits;
  uint16_t dtype_lanes; /* 1 */
  int64_t* shape;
  int64_t* strides; /* in elements */
  uint64_t byte_offset;
} kvr_dltensor;

/* `tensors` in the op's order: inputs, then outputs. */
KVR_API kvr_code kvr_launch(kvr_runtime* runtime, const char* op,
                            const kvr_dltensor* const* tensors, size_t count, void* stream);

/* Checks and plans once; a launch is then little more than the driver's own. It follows swaps. */
KVR_API kvr_code kvr_bind(kvr_runtime* runtime, const char* op, const kvr_dltensor* const* tensors,
                          size_t count, kvr_bound** bound);
KVR_API kvr_code kvr_bound_launch(kvr_bound* bound, void* stream);
/* Other memory of the same shape and type for tensor `index`, or a scalar's new value. */
KVR_API kvr_code kvr_bound_set(kvr_bound* bound, int32_t index, const kvr_dltensor* tensor);
KVR_API kvr_code kvr_bound_close(kvr_bound* bound);

/* --- Capture --------------------------------------------------------------------------------- */

/* Opened inside the application's capture, around its launches, so that the graph can be brought to
 * later generations without capturing again:
 *
 *   cudaStreamBeginCapture(stream, mode);
 *   kvr_capture_open(kvr, stream, NULL, &scope);
 *   kvr_launch(kvr, op, tensors, 8, stream);        as ever, also on streams that have joined
 *   kvr_capture_finish(scope, &binding);            the last call of the capture
 *   cudaStreamEndCapture(stream, &graph);
 *   cudaGraphInstantiate(&exec, graph, 0);
 *   ... at a step boundary:
 *   kvr_binding_apply(binding, exec, NULL, &applied);
 *   cudaGraphLaunch(exec, stream);
 */
typedef struct kvr_capture_options {
  size_t struct_size;
  const char* pool;    /* graphs of one pool replay one after another and share its workspaces */
  int32_t spare_nodes; /* per launch, for later plans with more kernels; each costs about 0.6 us */
  int32_t keeps_graph; /* 1: the graph lives as long as the binding (torch: keep_graph=True) */
} kvr_capture_options;

KVR_API kvr_code kvr_capture_open(kvr_runtime* runtime, void* stream,
                                  const kvr_capture_options* options, kvr_scope** scope);
/* Either closes the scope, also when it fails; then the launches stay in the graph, fixed. */
KVR_API kvr_code kvr_capture_finish(kvr_scope* scope, kvr_binding** binding);
KVR_API kvr_code kvr_capture_drop(kvr_scope* scope);

#define KVR_DIGEST_SIZE 65 /* 64 hex digits and NUL */

typedef enum kvr_outcome {
  KVR_UNCHANGED = 0,
  KVR_APPLIED = 1,
  KVR_NEEDS_RECAPTURE = 2 /* the executable runs what it ran */
} kvr_outcome;

typedef struct kvr_applied {
  size_t struct_size;
  int32_t outcome;
  int32_t nodes;       /* set */
  int32_t whole_graph; /* 1: by whole-graph update, 0: node by node */
  double microseconds;
  char digest[KVR_DIGEST_SIZE]; /* of the generation that `exec` runs now */
  char reason[511];             /* of KVR_NEEDS_RECAPTURE: which launch, what changed */
} kvr_applied;

/* Brings `exec`, a CUgraphExec made of the captured graph, to the generation `digest`: the current
 * one, generation 0 or one of the history; NULL: the current. All or nothing. Externally
 * synchronised with the launches of `exec`; a replay in flight finishes with what it had. `applied`
 * may be NULL; then a graph that needs a recapture is KVR_CODE_FAILED_PRECONDITION. */
KVR_API kvr_code kvr_binding_apply(kvr_binding* binding, void* exec, const char* digest,
                                   kvr_applied* applied);
/* What `exec` runs: as captured until it is applied. */
KVR_API kvr_code kvr_binding_digest(kvr_binding* binding, void* exec, char digest[KVR_DIGEST_SIZE]);
/* The application has destroyed `exec`. */
KVR_API kvr_code kvr_binding_forget(kvr_binding* binding, void* exec);
KVR_API kvr_code kvr_binding_close(kvr_binding* binding);

/* --- Generations ----------------------------------------------------------------------------- */

KVR_API kvr_code kvr_generation(kvr_runtime* runtime, int64_t* number,
                                char digest[KVR_DIGEST_SIZE]);
/* Prepares what the file selects on this thread, then publishes it; the report as kvr_load's. On
 * error the old generation serves on. */
KVR_API kvr_code kvr_publish_file(kvr_runtime* runtime, const char* selection_file, char** report);
/* `digest`: of the history, or generation 0's; at least 8 digits. NULL: the one before. At once. */
KVR_API kvr_code kvr_rollback(kvr_runtime* runtime, const char* digest, char** report);
/* Unloads what no key, graph or handle holds any more. Publishing and rolling back do so, too. */
KVR_API kvr_code kvr_collect(kvr_runtime* runtime);

/* A swap in the background: built, verified in a worker process, published. One of the first four.
 */
typedef struct kvr_swap_options {
  size_t struct_size;
  const char* selection_file; /* what it selects, in place of everything */
  const char* variant;        /* of `op`: "w8" or "w8{BLOCK_H=16}" */
  const char* bundle;         /* a bundle's directory or a plugin */
  const char* rollback;       /* a digest, or "previous" */
  const char* op;
  const char* keys;  /* for `variant`: as kvr_load's shapes; NULL: every loaded key of `op` */
  int32_t no_verify; /* 1: publish unverified */
  int32_t canary;    /* 1: a quick verdict first; a LOSS refuses the swap */
  const char* who;   /* for the journal; NULL: this process */
} kvr_swap_options;

KVR_API kvr_code kvr_swap(kvr_runtime* runtime, const kvr_swap_options* options, uint64_t* id);
/* Waits until it is done; the code is that of the swap. The result is JSON, set also when the swap
 * has failed. */
KVR_API kvr_code kvr_swap_wait(kvr_runtime* runtime, uint64_t id, char** result);
/* Swaps whenever a bundle or plugin in `directory`, or the file, has changed and rests. */
KVR_API kvr_code kvr_watch_bundles(kvr_runtime* runtime, const char* directory);
KVR_API kvr_code kvr_watch_selection_file(kvr_runtime* runtime, const char* path);

/* --- Seeing ---------------------------------------------------------------------------------- */

/* JSON, as `kvr status --json` shows it of a live process. */
KVR_API kvr_code kvr_status(kvr_runtime* runtime, char** status);

typedef struct kvr_counters {
  size_t struct_size;
  uint64_t misses;           /* keys not loaded, not selected or not fitting */
  uint64_t baseline;         /* ... of these, served by the baseline */
  uint64_t refused;          /* ... answered with an error */
  uint64_t loaded_in_launch; /* ... loaded by policy "jit" */
  uint64_t captured;         /* launches recorded in a scope */
  uint64_t unscoped;         /* launches captured outside one: fixed, never unloaded */
  uint64_t generations;      /* published */
  uint64_t failed;           /* publications that failed */
  uint64_t rollbacks;
  uint64_t applied;    /* executables brought to another generation */
  uint64_t recaptures; /* kvr_binding_apply found KVR_NEEDS_RECAPTURE */
  uint64_t retired;    /* configs no longer held */
} kvr_counters;

/* The caller sets counters->struct_size. */
KVR_API kvr_code kvr_count(kvr_runtime* runtime, kvr_counters* counters);

/* The program made visible and changeable from outside: `kvr status`, `kvr swap`, `kvr rollback`
 * and `kvr ab --live` talk to the socket, mode 0600, peers of the same user or root only. */
typedef struct kvr_live_options {
  size_t struct_size;
  const char* socket;  /* path */
  const char* metrics; /* "127.0.0.1:9464": Prometheus text; NULL: none. Loopback only */
  const char* name;    /* of the program */
} kvr_live_options;

KVR_API kvr_code kvr_live_start(kvr_runtime* runtime, const kvr_live_options* options,
                                kvr_live** live);
/* Both from the serving thread, around a step: apply after the first. `bucket`: what steps are
 * comparable, a batch size say. */
KVR_API kvr_code kvr_live_begin_step(kvr_live* live, const char* bucket);
KVR_API kvr_code kvr_live_end_step(kvr_live* live, const char* bucket, double microseconds);
KVR_API kvr_code kvr_live_count_error(kvr_live* live); /* a step that went wrong */
KVR_API kvr_code kvr_live_close(kvr_live* live);

/* --- Streams and graphs ---------------------------------------------------------------------- */

/* For programs without a CUDA runtime: the host device's streams and graphs, and tests. On cuda
 * they are the driver's own. */
KVR_API kvr_code kvr_stream_create(kvr_runtime* runtime, void** stream);
KVR_API kvr_code kvr_stream_destroy(kvr_runtime* runtime, void* stream);
KVR_API kvr_code kvr_stream_synchronize(kvr_runtime* runtime, void* stream);
/* What is enqueued on `stream` from now on waits for what is on `earlier` now; where that captures,
 * `stream` joins the capture. */
KVR_API kvr_code kvr_stream_wait(kvr_runtime* runtime, void* stream, void* earlier);
KVR_API kvr_code kvr_stream_begin_capture(kvr_runtime* runtime, void* stream); /* thread-local */
KVR_API kvr_code kvr_stream_end_capture(kvr_runtime* runtime, void* stream, int32_t keep_graph,
                                        kvr_graph** graph);
KVR_API kvr_code kvr_graph_exec(kvr_graph* graph, void** exec); /* for kvr_binding_apply */
KVR_API kvr_code kvr_graph_launch(kvr_graph* graph, void* stream);
KVR_API kvr_code kvr_graph_close(kvr_graph* graph); /* after its launches have ended */

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVR_H_ */
