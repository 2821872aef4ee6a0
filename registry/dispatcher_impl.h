// SPDX-License-Identifier: Apache-2.0
//
// The dispatcher's state, shared by its loading, launching and bound halves.
//
// Locks, in this order: `loading` (held through compiles; Load and Publish), then `state` (short:
// pool, snapshot, limbo). Launches take neither, but for a miss or a growth while thawed.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "registry/dispatcher.h"
#include "registry/epoch.h"
#include "registry/loader.h"
#include "registry/snapshot.h"

namespace kvr {

// What serves a launch; the pointers hold as long as the EpochGuard, or point at `scratch`.
struct Resolved {
  // Where all of it is from. Whatever else the launch needs is taken from here as well: `current`
  // may have moved on.
  const Snapshot* snapshot = nullptr;
  const Prepared* prepared = nullptr;
  PlanView plan;
  bool missed = false;
};

struct Dispatcher::Impl {
  Impl(Dispatcher& owner, Jit& jit, DispatcherOptions dispatcher_options);

  // --- launching
  // Other axes than those loaded, and misses, by policy. `scratch` holds a plan made here.
  absl::Status Resolve(int op, const AxisVector& axes, Stream stream, LaunchPlan* scratch,
                       Resolved* resolved);
  absl::Status Enqueue(const Prepared& prepared, const PlanView& plan, const Streams& streams,
                       absl::Span<const TensorView> tensors, Stream stream, Workspace workspace);
  // The stream's buffer of at least `bytes`: eager or, while it captures, captured.
  absl::StatusOr<void*> PickWorkspace(const Streams& streams, Stream stream, int64_t bytes);
  void CountMiss(const std::shared_ptr<const OpTable>& table, const BucketedKey& key);

  // --- loading
  std::shared_ptr<const Snapshot> Current();
  // `state` is held. Makes `next` current and retires what was.
  void Swap(std::shared_ptr<Snapshot> next);
  // Adds the stream and grows to `bytes`; publishes and returns the new table.
  absl::StatusOr<std::shared_ptr<const Streams>> GrowWorkspaces(int64_t bytes, const Stream* add);

  Dispatcher& self;
  const DispatcherOptions options;

  std::atomic<const Snapshot*> current{nullptr};
  std::atomic<uint64_t> version{0};

  std::mutex loading;
  Loader loader;

  std::mutex state;
  WorkspacePool pool;
  std::shared_ptr<const Snapshot> owner;
  Limbo limbo;

  struct AtomicCounters {
    std::atomic<uint64_t> misses{0}, baseline{0}, refused{0}, loaded_in_launch{0}, captured{0},
        generations{0};
  };
  AtomicCounters counters;

  // Which keys were missed, for people. A record is taken by whoever first finds it free; table and
  // key are written before it is kKnown, and never again.
  struct MissRecord {
    enum State : uint8_t { kFree, kTaken, kKnown };
    std::atomic<State> state{kFree};
    std::shared_ptr<const OpTable> table;  // gives the key its names
    BucketedKey key;
    std::atomic<uint64_t> count{0};
  };
  std::array<MissRecord, 64> miss_records;
};

}  // namespace kvr
