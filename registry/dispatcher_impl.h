// SPDX-License-Identifier: Apache-2.0
//
// The dispatcher's state, shared by its loading, launching and bound halves.
//
// Locks, in this order: `publishing` (Publish and Rollback, whole: they follow each other), then
// `loading` (the loader and the tables; never held while anything is compiled), then `state`
// (short: pool, snapshot, limbo). Launches take neither, but for a miss or a growth while thawed.
// `telling` and `captures` are leaves.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "core/fair_lock.h"
#include "core/status.h"
#include "registry/captured_graph.h"
#include "registry/dispatcher.h"
#include "registry/epoch.h"
#include "registry/loader.h"
#include "registry/snapshot.h"

namespace kvr {

// Of `bytes` at least and aligned, or why not.
absl::Status CheckWorkspace(const Workspace& workspace, int64_t bytes);

// The stream's eager buffer; null: none of `bytes`.
inline void* EagerWorkspace(const Streams& streams, Stream stream, int64_t bytes) {
  const auto it = streams.find(stream.handle);
  return it != streams.end() && it->second.eager.bytes >= bytes ? it->second.eager.data : nullptr;
}

// What serves a launch; the pointers hold as long as the EpochGuard, or point at `scratch`.
struct Resolved {
  // Where all of it is from. Whatever else the launch needs is taken from here as well: `current`
  // may have moved on.
  const Snapshot* snapshot = nullptr;
  const Prepared* prepared = nullptr;
  PlanView plan;
  std::optional<MissReason> missed;
};

struct Dispatcher::Impl {
  Impl(Dispatcher& owner, Jit& jit, DispatcherOptions dispatcher_options);

  // --- launching
  absl::Status CheckOp(OpHandle op) const {
    if (op.index >= 0 && static_cast<size_t>(op.index) < self.catalog_.ops().size()) [[likely]] {
      return absl::OkStatus();
    }
    return Error(absl::StatusCode::kInvalidArgument, "the op handle is not of this registry",
                 "take it from FindOp");
  }
  // Other axes than those loaded, and misses, by policy. `scratch` holds a plan made here.
  // `under`: nothing is loaded; null: what is current.
  absl::Status Resolve(const Snapshot* under, int op, const AxisVector& axes, Stream stream,
                       LaunchPlan* scratch, Resolved* resolved);
  absl::Status Enqueue(const Prepared& prepared, const PlanView& plan, const Streams& streams,
                       absl::Span<const TensorView> tensors, Stream stream, Workspace workspace);
  // A table in which the stream has an eager buffer of at least `bytes`, which it lacked.
  absl::StatusOr<std::shared_ptr<const Streams>> MakeRoom(Stream stream, int64_t bytes);
  void CountMiss(const Catalog::Op& op, const std::shared_ptr<const KeyPolicy>& names,
                 const BucketedKey& key, MissReason reason);

  // --- captures (captured_launch.cc)
  // A launch whose stream captures: into the scope of that capture, else fixed for good.
  absl::Status LaunchCaptured(OpHandle op, absl::Span<const TensorView> tensors, Stream stream,
                              Workspace workspace);
  absl::Status LaunchUnscoped(int op, absl::Span<const TensorView> tensors, Stream stream,
                              Workspace workspace);
  // What captures on `stream` into `pool_name` have now, of at least `bytes`.
  absl::StatusOr<BufferPtr> CapturedBuffer(Stream stream, std::string_view pool_name,
                                           int64_t bytes);

  // --- loading
  std::shared_ptr<const Snapshot> Current();
  static uint64_t NextVersion();
  // `loading` is held.
  bool IsCurrent(const Snapshot& snapshot);
  // `state` is held. Makes `next` current and retires what was.
  void Swap(std::shared_ptr<Snapshot> next);
  // Adds the stream, with a buffer for captures into `pool_name`, and grows to `bytes`; publishes
  // and returns the new table.
  absl::StatusOr<std::shared_ptr<const Streams>> GrowWorkspaces(int64_t bytes, const Stream* add,
                                                                std::string_view pool_name = {});

  // Has all that `parts` names in memory, or knows why not, and returns with `loading` held. It is
  // not held while that is compiled: who loads or publishes meanwhile waits for no compile, so
  // `parts` is asked again, under the lock, until nothing is left to compile.
  std::unique_lock<FairLock> PrepareAll(absl::FunctionRef<std::vector<Loader::Part>()> parts,
                                        Loader::Builds* builds);

  // --- publishing (publish.cc)
  // `publishing` is held, `loading` is not.
  absl::StatusOr<LoadReport> PublishAndTell(GenerationPtr next, PublicationRecord why);
  absl::StatusOr<LoadReport> Publish(GenerationPtr next, PublicationRecord* why);
  // These two need no lock: an Apply that fails waits for no compile.
  void TellFailure(PublicationRecord why);
  void Tell(const PublicationRecord& why);
  absl::StatusOr<GenerationPtr> FindKept(std::string_view digest);
  struct Kept;
  // Adds `shapes` of op `op`, of what is in memory, to what these serve. `loading` is held.
  void LoadForKept(int op, const std::vector<AxisVector>& shapes, const Loader::Builds& builds,
                   int64_t* workspace_bytes, Kept* zero_next, std::vector<Kept>* kept_next);
  // Lets the loader forget what no table needs. `loading` is held.
  void Sweep();
  // Drops what is retired and held by nobody, and outgrown buffers. No lock is held: unloading and
  // freeing wait for work in flight.
  void Drop();
  // What serves, or would serve at once, by digest: the current generation, generation 0, or one of
  // the history, with all that is loaded now; of others than the current `streams` is empty.
  // kNotFound: none of these; kFailedPrecondition: it lacks something that was loaded after it had
  // served. No lock is held; never waits for a compile.
  absl::StatusOr<std::shared_ptr<const Snapshot>> SnapshotOf(const Fingerprint& digest);

  Dispatcher& self;
  const DispatcherOptions options;

  std::atomic<const Snapshot*> current{nullptr};
  std::atomic<uint64_t> version{0};

  FairLock publishing;
  FairLock loading;
  Loader loader;

  std::mutex telling;  // leaf lock of the journal
  std::shared_ptr<PublicationSink> journal;

  std::mutex state;
  WorkspacePool pool;
  std::shared_ptr<const Snapshot> owner;
  Limbo limbo;
  // A generation that can be had back. Its tables keep its binaries.
  struct Kept {
    // As it served, with what has been loaded since; no streams.
    std::shared_ptr<const Snapshot> snapshot;
    absl::Status ready;  // why it cannot serve all that is loaded now
  };
  Kept zero;               // generation 0; while that is current, `owner` is it
  std::vector<Kept> kept;  // others before the current, newest first
  // Held by nothing here any more; still by launches, graphs and limbo, maybe.
  std::vector<PreparedPtr> retired;

  // Leaf lock of the two below.
  std::mutex captures;
  // Captures that have, or had, a scope whose launches can be found: by Recording::id.
  absl::flat_hash_map<uint64_t, std::weak_ptr<CapturedGraph>> graphs;
  // What launches captured outside a scope use: nobody knows when their graphs end.
  absl::flat_hash_set<std::shared_ptr<const void>> pinned;

  struct AtomicCounters {
    std::atomic<uint64_t> not_loaded{0}, not_selected{0}, not_fitting{0};
    std::atomic<uint64_t> baseline{0}, refused{0}, loaded_in_launch{0};
    std::atomic<uint64_t> captured{0}, unscoped{0}, applied{0}, recaptures{0};
    std::atomic<uint64_t> generations{0}, unchanged{0}, failed{0}, rollbacks{0}, retired{0};
  };
  AtomicCounters counters;

  // Which keys were missed, for people. A record is taken by whoever first finds it free; the rest
  // is written before it is kKnown, and never again.
  struct MissRecord {
    enum State : uint8_t { kFree, kTaken, kKnown };
    std::atomic<State> state{kFree};
    const Catalog::Op* op = nullptr;
    std::shared_ptr<const KeyPolicy> names;
    BucketedKey key;
    MissReason reason = MissReason::kNotLoaded;  // as first seen
    std::atomic<uint64_t> count{0};
  };
  std::array<MissRecord, 64> miss_records;
};

}  // namespace kvr
