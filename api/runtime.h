// SPDX-License-Identifier: Apache-2.0
//
// What a serving application includes. Boot: open, load, freeze, serve.
//
//   KVR_ASSIGN_OR_RETURN(std::unique_ptr<Runtime> kvr, Runtime::Open({.device = "cuda:0",
//                                                                  .selection_file =
//                                                                  "h200.json"}));
//   KVR_ASSIGN_OR_RETURN(LoadReport report, kvr->Load("mla_sparse_decode", shapes));
//   kvr->Freeze();
//   KVR_RETURN_IF_ERROR(kvr->Launch("mla_sparse_decode", tensors, {.handle = cuda_stream}));
//
// Threading: Launch from any thread, wait-free, a stream's launches ordered by the caller. Load,
// PrepareStream and Publish never block a launch, nor each other while they compile; but a
// publication waits for those before it. Loads compile side by side, so a boot is quickest that
// loads each operation on a thread of its own.
// Stream order: a launch is enqueued on `stream` and returns; its errors surface at the stream.
// Capture safety: Launch and BoundLaunch::Launch alone are legal while their stream captures. Load
// and PrepareStream beforehand; a key or a workspace that is missing is an error that leaves the
// capture valid.
// Shapes: tensors are contiguous, in the op's order: inputs, then outputs; scalars are host values.
// Ownership: tensors are the caller's. Runtime outlives its BoundLaunches, its launches in flight
// and the graphs captured from it. Links neither the tuner nor SQLite.
#pragma once

#include <concepts>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/axes.h"
#include "core/device.h"
#include "core/status.h"
#include "core/tensor.h"
#include "jit/cache.h"
#include "registry/dispatcher.h"
#include "registry/selection_file.h"

namespace kvr {

class Log;
class Metrics;
class Platform;

// What a person forces by hand, above the environment (registry/overrides.h).
struct ForcedOp {
  std::string op;                     // empty: nothing is forced
  std::string variant;                // empty: whatever serves the key
  std::vector<std::string> tunables;  // "BLOCK_H=16", as --set gives them
};

struct RuntimeOptions {
  std::string device = "auto";            // "cuda", "cuda:N", "host", "null", "auto"
  void* cuda_context = nullptr;           // instead: a CUcontext that outlives the runtime
  std::vector<std::string> plugin_roots;  // after the built-in ones and KVR_PLUGIN_PATH
  std::string selection_file;             // empty: generation 0, every key served by the baseline
  // Publications go to this file (registry/publication.h). Empty: beside the selection file, as
  // PATH.journal, where that can be written. "none": nowhere, until SetJournal.
  std::string journal;
  std::string cache_dir;                  // empty: KVR_CACHE_DIR, XDG_CACHE_HOME/kvr, ~/.cache/kvr
  std::vector<std::string> cache_layers;  // read-only, before those of KVR_CACHE_LAYERS
  MissPolicy miss_policy = MissPolicy::kBaseline;
  bool compilers = true;  // false: boot from selection file and cache alone
  ForcedOp forced;
  bool environment = true;  // read KVR_FORCE_<OP> and KVR_<OP>_<TUNABLE>
  std::vector<ApproximateOptIn> approximate;
  WarningSink warn;  // null: a line on standard error
};

// What happened last, for whoever asks how a running program came to serve what it serves.
class RecentPublications {
 public:
  void Add(const PublicationRecord& record);
  std::vector<PublicationRecord> Read() const;

 private:
  static constexpr size_t kMost = 32;
  mutable std::mutex mutex_;
  std::deque<PublicationRecord> records_;  // newest first
};

class Runtime {
 public:
  static absl::StatusOr<std::unique_ptr<Runtime>> Open(const RuntimeOptions& options);
  ~Runtime();

  absl::StatusOr<OpHandle> FindOp(std::string_view op) const { return dispatcher().FindOp(op); }
  absl::StatusOr<LoadReport> Load(std::string_view op, absl::Span<const Axes> shapes);
  // The shapes that `ranges` stands for: "num_tokens=1..96,topk=512" (ExpandAxes, core/axes.h).
  template <std::convertible_to<std::string_view> Text>
  absl::StatusOr<LoadReport> Load(std::string_view op, const Text& ranges) {
    KVR_ASSIGN_OR_RETURN(const std::vector<Axes> shapes, ExpandAxes(ranges));
    return Load(op, absl::MakeConstSpan(shapes));
  }
  absl::Status PrepareStream(Stream stream, std::string_view pool = {}) {
    return dispatcher().PrepareStream(stream, pool);
  }

  absl::Status Launch(OpHandle op, absl::Span<const TensorView> tensors, Stream stream,
                      Workspace workspace = {}) {
    return dispatcher().Launch(op, tensors, stream, workspace);
  }
  absl::Status Launch(std::string_view op, absl::Span<const TensorView> tensors, Stream stream,
                      Workspace workspace = {}) {
    return dispatcher().Launch(op, tensors, stream, workspace);
  }
  absl::StatusOr<BoundLaunch> Bind(std::string_view op, absl::Span<const TensorView> tensors) {
    return dispatcher().Bind(op, tensors);
  }

  // registry/capture_scope.h; the binding it ends in brings the graph to later generations.
  absl::StatusOr<std::unique_ptr<CaptureScope>> OpenCapture(Stream stream,
                                                            const CaptureOptions& options = {}) {
    return dispatcher().OpenCapture(stream, options);
  }

  absl::StatusOr<LoadReport> Publish(GenerationPtr next, PublicationRecord why = {}) {
    return dispatcher().Publish(std::move(next), std::move(why));
  }
  absl::StatusOr<LoadReport> Rollback(std::string_view digest, PublicationRecord why = {}) {
    return dispatcher().Rollback(digest, std::move(why));
  }
  GenerationPtr generation() const { return dispatcher().generation(); }
  std::vector<GenerationPtr> history() const { return dispatcher().history(); }
  void OrderHistory(const std::vector<Fingerprint>& order) { dispatcher().OrderHistory(order); }
  // Besides the log and the metrics, which are told of publications in any case; null: these alone.
  void SetJournal(std::shared_ptr<PublicationSink> journal);
  void Collect() { dispatcher().Collect(); }
  void Freeze() { dispatcher().Freeze(); }
  void Thaw() { dispatcher().Thaw(); }
  Counters counters() const { return dispatcher().counters(); }
  std::vector<Miss> misses() const { return dispatcher().misses(); }
  std::vector<ServedInfo> served() const { return dispatcher().served(); }

  Device& device() const { return dispatcher().device(); }
  const Catalog& catalog() const { return dispatcher().catalog(); }
  Platform& platform() const { return *platform_; }
  Dispatcher& dispatcher() const { return *dispatcher_; }
  Metrics& metrics() const { return *metrics_; }
  // What the journal was told of, failures too, newest first: the last 32.
  std::vector<PublicationRecord> publications() const { return publications_->Read(); }
  Log* log() const { return log_.get(); }  // null: off
  // Selections of the file that could not be taken over, with reasons.
  const std::vector<DroppedSelection>& dropped() const { return dropped_; }

 private:
  Runtime();
  std::unique_ptr<Platform> platform_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::shared_ptr<Metrics> metrics_;
  std::shared_ptr<RecentPublications> publications_;
  std::shared_ptr<Log> log_;
  std::vector<DroppedSelection> dropped_;
};

}  // namespace kvr
