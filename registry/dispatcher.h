// SPDX-License-Identifier: Apache-2.0
//
// Load, dispatch, publish, freeze: what api/runtime.h offers, on a device, catalog and compiler
// that the caller brings.
//
//   loading    Load, PrepareStream, Publish compile, load and allocate. They never run in a launch,
//              and publish an immutable snapshot in one atomic store, under a mutex that nobody
//              holds while he compiles: who loads each operation on a thread of its own waits for
//              the slowest kernel of all, not for that of each in turn, and what is loaded while a
//              generation compiles is published with it. Publications follow each other whole,
//              compiles included.
//   launching  Launch reads the snapshot: axes from the tensors, key, prepared entry, plan, kernel
//              launches. No lock, no allocation, no string; wait-free while others load or publish.
//   frozen     after Freeze() no launch compiles, loads or allocates. Publish still may: an
//              explicit swap runs on its caller's thread.
//   captured   a launch whose stream captures is recorded: in the scope of its capture
//              (registry/capture_scope.h), else fixed for good.
//   retired    a binary is unloaded when no key, no generation of the history, no BoundLaunch and
//              no graph has it, and its work in flight has ended; on the thread that publishes or
//              collects, never in a launch. A BoundLaunch lets go of an old one at its next launch,
//              so one that lies idle keeps what it launched last.
//
// All axes of a loaded key launch alike, whether these were loaded or others of their bucket. A key
// that is not loaded, or that the generation does not select for an op it speaks of, or whose
// config does not fit these very axes, is a *miss*: counted, and answered by MissPolicy. With a
// generation that says nothing about an op, the baseline serves it and nothing is missed.
//
// Capture safety: Launch alone is legal while its stream captures. What would need an allocation
// or a compile then is an error before anything is enqueued.
// Ownership: the dispatcher outlives its BoundLaunches, the work in flight, scopes, bindings and
// the graphs captured from it. Errors of kernels surface at the stream.
#pragma once

#include <atomic>
#include <concepts>
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
#include "registry/capture_scope.h"
#include "registry/catalog.h"
#include "registry/generation.h"
#include "registry/overrides.h"
#include "registry/prepared.h"
#include "registry/publication.h"
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
  bool unchanged = false;       // a publication of what serves already: nothing was done
  bool ready() const;
  // A line for all shapes of one key with one answer, then what failed and why.
  std::string Text() const;
};

struct Counters {
  uint64_t misses = 0;      // the next three together
  uint64_t not_loaded = 0;  // by MissReason
  uint64_t not_selected = 0;
  uint64_t not_fitting = 0;
  uint64_t baseline = 0;          // ... of these, served by the baseline
  uint64_t refused = 0;           // ... answered with an error
  uint64_t loaded_in_launch = 0;  // ... loaded by policy jit
  uint64_t captured = 0;          // launches recorded in a scope
  uint64_t unscoped = 0;          // launches captured outside one: fixed, never unloaded
  uint64_t generations = 0;       // published
  uint64_t unchanged = 0;         // publications of what served already
  uint64_t failed = 0;            // publications that failed, and applies
  uint64_t rollbacks = 0;         // ... of the published, back to an older one
  uint64_t applied = 0;           // executables brought to another generation
  uint64_t recaptures = 0;        // Apply answered kNeedsRecapture
  uint64_t retired = 0;           // configs no longer held
};

// What serves one loaded key now: what `kvr status` shows.
struct ServedInfo {
  std::string op;
  Axes key;
  std::vector<Axes> shapes;  // loaded under this key, every axis each
  std::string variant, version;
  Fingerprint fingerprint;  // of the variant
  Config config;
  Fingerprint binary;
  bool missed = false;      // the baseline, for lack of a selection
  bool overridden = false;  // --set or the environment decided it
  std::string why;
};

enum class MissReason : uint8_t {
  kNotLoaded,    // the key
  kNotSelected,  // the generation speaks of the op, not of this key
  kNotFitting,   // what serves the key has no plan for these very axes
};
std::string_view MissReasonName(MissReason reason);  // "not loaded", "not selected", "not fitting"

struct Miss {  // one key
  std::string op;
  Axes key;
  MissReason reason = MissReason::kNotLoaded;  // as first seen
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
  // The shapes that `ranges` stands for: "num_tokens=1..96,topk=512" (ExpandAxes, core/axes.h).
  template <std::convertible_to<std::string_view> Text>
  absl::StatusOr<LoadReport> Load(std::string_view op, const Text& ranges) {
    return LoadRanges(op, ranges);
  }
  // Gives `stream` its workspaces: for eager launches and for captures into `pool`
  // (CaptureOptions::pool). Streams not prepared get the eager one, and that of the pool "", at
  // their first launch while thawed and not capturing.
  absl::Status PrepareStream(Stream stream, std::string_view pool = {});

  // `tensors` in the op's order: inputs, then outputs. `workspace`: the caller's own instead of the
  // stream's; aligned to kWorkspaceAlign.
  absl::Status Launch(OpHandle op, absl::Span<const TensorView> tensors, Stream stream,
                      Workspace workspace = {});
  absl::Status Launch(std::string_view op, absl::Span<const TensorView> tensors, Stream stream,
                      Workspace workspace = {});
  absl::StatusOr<BoundLaunch> Bind(std::string_view op, absl::Span<const TensorView> tensors);

  // Opened inside the capture of `stream`, before its launches. kFailedPrecondition: it does not
  // capture, the capture was invalidated, or has a scope already.
  absl::StatusOr<std::unique_ptr<CaptureScope>> OpenCapture(Stream stream,
                                                            const CaptureOptions& options = {});

  // Prepares all that is loaded under `next`, then swaps. On error the old generation serves on.
  // One of the digest that serves already changes nothing, generation() included, and its report
  // says so. In any case the journal is told; `why` says trigger, who and reason, the rest is
  // filled in.
  absl::StatusOr<LoadReport> Publish(GenerationPtr next, PublicationRecord why = {});
  // Publishes an older generation again, at once: nothing is compiled or loaded, unless shapes were
  // loaded after it had served whose binaries no generation kept. `digest`: of history(), or of
  // generation 0 (the baseline everywhere; "baseline" names it, too); empty text: the one before
  // the current. A unique prefix of at least 8 digits does. kNotFound lists what there is.
  absl::StatusOr<LoadReport> Rollback(std::string_view digest, PublicationRecord why = {});
  GenerationPtr generation() const;
  // Generations that can be had back at once, newest first: the last kKeptGenerations different
  // ones before the current, and generation 0 at the end, always.
  static constexpr int kKeptGenerations = 8;
  std::vector<GenerationPtr> history() const;
  // Puts those of the history that `order` names in front, as they stand there. For who has
  // published generations in turn, to compare them: the one before the current is again that which
  // really served.
  void OrderHistory(const std::vector<Fingerprint>& order);
  void SetJournal(std::shared_ptr<PublicationSink> journal);  // null: none
  // Counts a publication that failed before it came to Publish, and tells the journal.
  void RecordFailure(PublicationRecord why);
  // Unloads what is retired and idle. Publish and Rollback do it as well.
  void Collect();

  void Freeze() { frozen_.store(true, std::memory_order_release); }
  void Thaw() { frozen_.store(false, std::memory_order_release); }
  bool frozen() const { return frozen_.load(std::memory_order_acquire); }

  Counters counters() const;
  std::vector<Miss> misses() const;  // the first 64 distinct keys
  std::vector<ServedInfo> served() const;
  Device& device() const { return device_; }
  const Catalog& catalog() const { return catalog_; }
  const DispatcherOptions& options() const;

 private:
  friend class BoundLaunch;
  friend class CapturedGraph;
  struct Impl;
  absl::StatusOr<LoadReport> LoadRanges(std::string_view op, std::string_view ranges);
  const Catalog& catalog_;
  Device& device_;
  std::atomic<bool> frozen_{false};
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr
