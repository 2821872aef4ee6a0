// SPDX-License-Identifier: Apache-2.0
//
// Load, dispatch, publish, freeze: what api/runtime.h offers, on a device, catalog and compiler
// that the caller brings.
//
//   loading    Load, PrepareStream, Publish compile, load and allocate. They serialise on a mutex,
//              never run in a launch, and publish an immutable snapshot in one atomic store.
//   launching  Launch reads the snapshot: axes from the tensors, key, prepared entry, plan, kernel
//              launches. No lock, no allocation, no string; wait-free while others load or publish.
//   frozen     after Freeze() no launch compiles, loads or allocates. Publish still may: an
//              explicit swap runs on its caller's thread.
//
// All axes of a loaded key launch alike, whether these were loaded or others of their bucket. A key
// that is not loaded, or that the generation does not select for an op it speaks of, or whose
// config does not fit these very axes, is a *miss*: counted, and answered by MissPolicy. With a
// generation that says nothing about an op, the baseline serves it and nothing is missed.
//
// Capture safety: Launch alone is legal while its stream captures. What would need an allocation
// or a compile then is an error before anything is enqueued.
// Ownership: the dispatcher outlives its BoundLaunches, the work in flight and the graphs captured
// from it; modules and workspaces live until it dies. Errors of kernels surface at the stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/device.h"
#include "core/tensor.h"
#include "registry/bound_launch.h"
#include "registry/catalog.h"
#include "registry/generation.h"
#include "registry/overrides.h"
#include "registry/prepared.h"
#include "registry/workspace.h"

namespace kvr {

class Jit;

enum class MissPolicy : uint8_t {
  kBaseline,  // the baseline serves it, where it is loaded; else an error
  kError,
  // Loads it in the launch while thawed and not capturing; else, and where that failed, as
  // kBaseline. A key that failed is tried again by Load and by the next generation only.
  kJit,
};
absl::StatusOr<MissPolicy> ParseMissPolicy(std::string_view name);  // "baseline", "error", "jit"

struct DispatcherOptions {
  MissPolicy miss_policy = MissPolicy::kBaseline;
  Overrides overrides;
  std::vector<ApproximateOptIn> approximate;
};

// A dense handle of an op: what a hot caller keeps instead of the name.
struct OpHandle {
  int index = -1;
};

struct LoadItem {
  Axes axes;            // every axis of the op
  Axes key;             // its tuning key under the generation's policy
  absl::Status status;  // why it is not ready
  std::string variant;
  Config config;
  std::string why;  // "selected", "baseline: no selection for topk=512", "KVR_FORCE_…"
  bool overridden = false;
  Fingerprint binary;
  bool is_compiled = true;  // false: the variant brings its binary, or calls a function
  bool cache_hit = false;
  double compile_ms = 0;
  int64_t workspace_bytes = 0;
};

struct LoadReport {
  std::vector<LoadItem> items;  // in the order asked for
  absl::Status fallback;        // the op's baseline; not ready: misses cannot be served
  int64_t workspace_bytes = 0;  // what each stream has now
  bool ready() const;
  std::string Text() const;  // a line an item, then what failed and why
};

struct Counters {
  uint64_t misses = 0;            // keys not loaded, not selected or not fitting
  uint64_t baseline = 0;          // ... of these, served by the baseline
  uint64_t refused = 0;           // ... answered with an error
  uint64_t loaded_in_launch = 0;  // ... loaded by policy jit
  uint64_t captured = 0;          // launches given a capture workspace
  uint64_t generations = 0;       // published
};

struct Miss {  // one key, as first seen
  std::string op;
  Axes key;
  uint64_t count = 0;
};

class Dispatcher {
 public:
  // All three outlive it. A Jit without compilers serves what its cache holds.
  Dispatcher(const Catalog& catalog, Device& device, Jit& jit, DispatcherOptions options);
  ~Dispatcher();

  absl::StatusOr<OpHandle> FindOp(std::string_view op) const;

  // Makes these axes ready, and their bucket's representative; an axis left out takes the op's
  // default; no shapes at all: every key the generation selects. The report says what failed; a
  // failure leaves everything else as it was. The status is an error only when nothing could be
  // tried: unknown op, frozen.
  absl::StatusOr<LoadReport> Load(std::string_view op, absl::Span<const Axes> shapes);
  // Gives `stream` its workspaces. Streams not prepared get them at their first launch while
  // thawed and not capturing.
  absl::Status PrepareStream(Stream stream);

  // `tensors` in the op's order: inputs, then outputs. `workspace`: the caller's own instead of the
  // stream's; aligned to kWorkspaceAlign.
  absl::Status Launch(OpHandle op, absl::Span<const TensorView> tensors, Stream stream,
                      Workspace workspace = {});
  absl::Status Launch(std::string_view op, absl::Span<const TensorView> tensors, Stream stream,
                      Workspace workspace = {});
  absl::StatusOr<BoundLaunch> Bind(std::string_view op, absl::Span<const TensorView> tensors);

  // Prepares all that is loaded under `next`, then swaps. On error the old generation serves on.
  absl::StatusOr<LoadReport> Publish(GenerationPtr next);
  GenerationPtr generation() const;

  void Freeze() { frozen_.store(true, std::memory_order_release); }
  void Thaw() { frozen_.store(false, std::memory_order_release); }
  bool frozen() const { return frozen_.load(std::memory_order_acquire); }

  Counters counters() const;
  std::vector<Miss> misses() const;  // the first 64 distinct keys
  Device& device() const { return device_; }
  const Catalog& catalog() const { return catalog_; }

 private:
  friend class BoundLaunch;
  struct Impl;
  const Catalog& catalog_;
  Device& device_;
  std::atomic<bool> frozen_{false};
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr
