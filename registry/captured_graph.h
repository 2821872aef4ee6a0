// SPDX-License-Identifier: Apache-2.0
//
// One graph that was captured in a scope: its launches, their slots, and what each executable made
// of it runs. CaptureScope records into it, GraphBinding applies generations to it; both are
// handles of it.
//
// Ownership: what the graph and its executables run (binaries, workspaces) is owned by one Hold,
// which the device keeps until all of them are gone; this object has a weak reference. What a Hold
// lets go of is dropped by Dispatcher::Collect: the dispatcher keeps everything that it loaded or
// allocated until nobody else has it.
// Threading: its functions lock; a capture's own calls are ordered by whoever captures.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "registry/capture_scope.h"
#include "registry/catalog.h"
#include "registry/dispatcher.h"
#include "registry/graph_binding.h"
#include "registry/launch_work.h"

namespace kvr {

struct Snapshot;

class CapturedGraph : public std::enable_shared_from_this<CapturedGraph> {
 public:
  // `pinned`: what its launches are resolved under.
  CapturedGraph(Dispatcher::Impl& dispatcher, const CaptureOptions& options, Stream stream,
                uint64_t capture, std::shared_ptr<const Snapshot> pinned);
  ~CapturedGraph();
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  // Lets the launches of this capture find it, and the graph keep what it uses. An error if the
  // capture has a scope already.
  absl::Status Open(Recording& recording);
  // A launch of this capture. Errors come before anything is recorded, but for the device's own.
  // False: Finish was called before; the launch is the caller's to make, fixed.
  absl::StatusOr<bool> Record(Recording& recording, int op, absl::Span<const TensorView> tensors,
                              Stream stream, Workspace own);
  absl::Status Finish();

  absl::StatusOr<Applied> Apply(GraphExec exec);
  absl::StatusOr<Applied> Apply(GraphExec exec, const Fingerprint& digest);
  Fingerprint digest(GraphExec exec);
  void Forget(GraphExec exec);
  int launches();

 private:
  // What a launch is planned by. A model launches the same shape layer after layer, so a graph has
  // few kinds.
  struct Kind {
    int op = 0;
    AxisVector axes{};
    std::vector<Slot> slots;
    bool fixed = false;  // a launch function's: recorded as it came
    bool operator==(const Kind&) const = default;
  };
  struct Launch {
    size_t kind = 0;  // of `kinds_`
    std::vector<TensorView> tensors;
    std::vector<std::array<std::byte, 8>> scalars;  // what the scalars among them point at
    Stream stream;
    Workspace own;            // the caller's
    std::vector<Node> nodes;  // by Kind::slots
  };
  // What serves one launch.
  struct Served {
    PreparedPtr prepared;
    BufferPtr buffer;  // null: no workspace, or the caller's
    void* memory = nullptr;
    bool recorded_clusters = true;  // every slot has the cluster dimensions that it was recorded by
    bool operator==(const Served& other) const {
      return prepared == other.prepared && memory == other.memory;
    }
  };
  // What a whole graph runs.
  struct Runs {
    uint64_t version = 0;  // of the snapshot; 0: a failed patch left several
    Fingerprint digest;
    std::vector<Served> launches;
    std::shared_ptr<const Runs> before;  // version 0: what the rest may be
  };
  using RunsPtr = std::shared_ptr<const Runs>;
  struct Hold {
    std::shared_ptr<Runs> captured;               // until the graph is gone
    absl::flat_hash_map<void*, RunsPtr> applied;  // by executable, where it is not as captured
    std::vector<RunsPtr> copy;                    // what the copy's slots may have; one: all of it
  };
  // A kind under one config.
  struct Planned {
    PreparedPtr prepared;
    LaunchPlan plan;
    SlotWork order;
    bool recorded_clusters = true;
  };
  // Of one Apply: each kind is planned once.
  struct Plans {
    std::vector<std::unique_ptr<Planned>> by_kind;  // null: not needed yet
    LaunchWork work;
  };
  struct Stamp {
    uint64_t version = 0;
    Fingerprint digest;
  };

  using SetSlot = absl::FunctionRef<absl::Status(Node, const NodeWork&)>;

  // `mutex_` is held in all of them.
  absl::Status FindMemory(const Launch& launch, int64_t bytes, Served* served);
  absl::Status Enqueue(Recording& recording, const PlanView& plan, const Served& served,
                       const LaunchWork& work, Kind* kind, Launch* launch);
  const Stamp& StampOf(GraphExec exec) const;
  // What can go wrong with a graph that is there is told to the journal, once a generation.
  absl::StatusOr<Applied> ApplySnapshot(GraphExec exec, const Snapshot& snapshot);
  absl::StatusOr<Applied> Patch(GraphExec exec, const Snapshot& snapshot, Hold& hold);
  absl::Status PlanKind(const Kind& kind, PreparedPtr prepared, Planned* planned) const;
  // What `snapshot` serves `kind` by; null: `now`, still. `*recapture`: why only another capture
  // can have that; else empty.
  absl::Status Choose(const Kind& kind, const Snapshot& snapshot, const Prepared& now,
                      std::unique_ptr<Planned>* planned, std::string* recapture);
  std::string Change(const Kind& kind, const Snapshot& snapshot, const Prepared& now,
                     const Prepared& next) const;
  // All slots of one launch; counts them.
  absl::Status SetSlots(const Launch& launch, const Served& served, Plans* plans, SetSlot set,
                        int* nodes);
  absl::Status SetNodes(GraphExec exec, const RunsPtr& from, const RunsPtr& to,
                        absl::Span<const size_t> changed, Hold* hold, Plans* plans, int* nodes);
  absl::Status SetCopy(GraphExec exec, const RunsPtr& to, Hold* hold, Plans* plans, int* nodes);
  absl::StatusOr<Applied> NeedsRecapture(GraphExec exec, std::string reason);

  Dispatcher::Impl& dispatcher_;
  Device& device_;
  const CaptureOptions options_;
  const Stream stream_;
  const uint64_t capture_;  // Recording::id

  std::mutex mutex_;
  std::shared_ptr<const Snapshot> pinned_;  // until Finish
  std::vector<Kind> kinds_;
  std::vector<Launch> launches_;
  std::string unpatchable_;  // why it can only be captured again; empty: nothing yet
  std::unique_ptr<GraphCopy> copy_;
  std::weak_ptr<Hold> hold_;
  Stamp captured_;
  absl::flat_hash_map<void*, Stamp> applied_;
  Fingerprint refused_;  // the generation that the last Apply failed to bring; else empty
};

}  // namespace kvr
