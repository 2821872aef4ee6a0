// SPDX-License-Identifier: Apache-2.0
//
// The patching half of a captured graph: executables go from generation to generation.
#include <chrono>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "registry/captured_graph.h"
#include "registry/dispatcher_impl.h"

namespace kvr {
namespace {

// Perhaps loaded twice: forgotten by the dispatcher, and selected again while a graph has it.
bool IsSame(const Prepared& a, const Prepared& b) {
  return &a == &b || (a.variant().fingerprint == b.variant().fingerprint &&
                      a.config() == b.config() && a.binary()->key == b.binary()->key);
}

}  // namespace

const CapturedGraph::Stamp& CapturedGraph::StampOf(GraphExec exec) const {
  const auto it = applied_.find(exec.handle);
  return it == applied_.end() ? captured_ : it->second;
}

Fingerprint CapturedGraph::digest(GraphExec exec) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return StampOf(exec).digest;
}

int CapturedGraph::launches() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(launches_.size());
}

void CapturedGraph::Forget(GraphExec exec) {
  const std::lock_guard<std::mutex> lock(mutex_);
  applied_.erase(exec.handle);
  if (const std::shared_ptr<Hold> hold = hold_.lock(); hold != nullptr) {
    hold->applied.erase(exec.handle);
  }
}

absl::StatusOr<Applied> CapturedGraph::Apply(GraphExec exec) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Stamp& stamp = StampOf(exec);
  if (stamp.version == dispatcher_.version.load(std::memory_order_acquire)) {
    Applied unchanged;
    unchanged.digest = stamp.digest;
    return unchanged;
  }
  const EpochGuard guard;
  return ApplySnapshot(exec, *dispatcher_.current.load(std::memory_order_seq_cst));
}

absl::StatusOr<Applied> CapturedGraph::Apply(GraphExec exec, const Fingerprint& digest) {
  const std::lock_guard<std::mutex> lock(mutex_);
  {
    const EpochGuard guard;
    const Snapshot& current = *dispatcher_.current.load(std::memory_order_seq_cst);
    if (current.generation->digest() == digest) return ApplySnapshot(exec, current);
  }
  KVR_ASSIGN_OR_RETURN(const std::shared_ptr<const Snapshot> snapshot,
                       dispatcher_.SnapshotOf(digest));
  return ApplySnapshot(exec, *snapshot);
}

absl::Status CapturedGraph::PlanKind(const Kind& kind, PreparedPtr prepared,
                                     Planned* planned) const {
  KVR_RETURN_IF_ERROR(prepared->Plan(kind.axes, &planned->plan));
  LaunchWork work;
  work.Outline(*prepared, planned->plan);
  KVR_ASSIGN_OR_RETURN(planned->order, AssignSlots(kind.slots, work.items(), options_.spare_nodes));
  planned->recorded_clusters = true;
  for (size_t i = 0; i < kind.slots.size(); ++i) {
    planned->recorded_clusters &= kind.slots[i].cluster == ClusterOf(work.At(planned->order[i]));
  }
  planned->prepared = std::move(prepared);
  return absl::OkStatus();
}

std::string CapturedGraph::Change(const Kind& kind, const Snapshot& snapshot, const Prepared& now,
                                  const Prepared& next) const {
  const OpTable& table = *snapshot.ops[kind.op];
  return StrCat(table.op->name(), " {",
                AxesText(table.policy.Named(table.policy.Bucket(kind.axes))),
                "}: ", now.variant().name, " -> ", next.variant().name, " {",
                ConfigText(next.config()), "}: ");
}

absl::Status CapturedGraph::Choose(const Kind& kind, const Snapshot& snapshot, const Prepared& now,
                                   std::unique_ptr<Planned>* planned, std::string* recapture) {
  PlanScratch scratch;
  Resolved resolved;
  KVR_RETURN_IF_ERROR(
      dispatcher_.Resolve(&snapshot, kind.op, kind.axes, stream_, scratch.get(), &resolved));
  const Prepared& next = *resolved.prepared;
  if (IsSame(next, now)) return absl::OkStatus();
  if (kind.fixed || next.calls()) {
    *recapture = StrCat(Change(kind, snapshot, now, next),
                        "the work of a launch function is fixed when it is captured; capture the "
                        "graph again");
    return absl::OkStatus();
  }
  *planned = std::make_unique<Planned>();
  const absl::Status status = PlanKind(kind, next.shared_from_this(), planned->get());
  if (absl::IsFailedPrecondition(status)) {
    *recapture = StrCat(Change(kind, snapshot, now, next), What(status), "; ", Fix(status));
    return absl::OkStatus();
  }
  return status;
}

absl::StatusOr<Applied> CapturedGraph::NeedsRecapture(GraphExec exec, std::string reason) {
  dispatcher_.counters.recaptures.fetch_add(1, std::memory_order_relaxed);
  Applied applied;
  applied.outcome = Applied::kNeedsRecapture;
  applied.reason = std::move(reason);
  applied.digest = StampOf(exec).digest;
  return applied;
}

absl::StatusOr<Applied> CapturedGraph::ApplySnapshot(GraphExec exec, const Snapshot& snapshot) {
  if (exec.handle == nullptr) {
    return Error(absl::StatusCode::kInvalidArgument, "no executable is given",
                 "instantiate the captured graph first");
  }
  const Stamp before = StampOf(exec);
  const Fingerprint& next = snapshot.generation->digest();
  if (before.version == snapshot.version) {
    Applied unchanged;
    unchanged.digest = next;
    return unchanged;
  }
  const std::shared_ptr<Hold> hold = hold_.lock();
  if (hold == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, "the graph and its executables are gone",
                 "capture again, and drop this binding");
  }
  absl::StatusOr<Applied> applied = Patch(exec, snapshot, *hold);
  if (applied.ok()) {
    refused_ = {};
  } else if (refused_ != next) {  // an application tries again at every step
    refused_ = next;
    dispatcher_.TellFailure({.trigger = "apply",
                             .before = before.digest.Hex(),
                             .after = next.Hex(),
                             .reason = std::string(What(applied.status()))});
  }
  return applied;
}

absl::StatusOr<Applied> CapturedGraph::Patch(GraphExec exec, const Snapshot& snapshot, Hold& hold) {
  const auto begun = std::chrono::steady_clock::now();
  const Fingerprint before = StampOf(exec).digest;
  Applied applied;
  applied.digest = snapshot.generation->digest();

  // 1. What each launch should run. Nothing is changed yet.
  const auto it = hold.applied.find(exec.handle);
  const RunsPtr from = it == hold.applied.end() ? RunsPtr(hold.captured) : it->second;
  const auto to = std::make_shared<Runs>();
  *to = {snapshot.version, applied.digest, from->launches, nullptr};
  const bool is_mixed = from->version == 0;
  bool one_by_one = options_.keeps_graph && !is_mixed;
  Plans plans;
  plans.by_kind.resize(kinds_.size());
  std::vector<bool> is_chosen(kinds_.size());
  std::vector<size_t> changed;
  for (size_t i = 0; i < launches_.size(); ++i) {
    const Launch& launch = launches_[i];
    const Served& now = from->launches[i];
    std::unique_ptr<Planned>& planned = plans.by_kind[launch.kind];
    if (!is_chosen[launch.kind]) {
      is_chosen[launch.kind] = true;
      std::string recapture;
      KVR_RETURN_IF_ERROR(
          Choose(kinds_[launch.kind], snapshot, *now.prepared, &planned, &recapture));
      if (!recapture.empty()) return NeedsRecapture(exec, std::move(recapture));
    }
    if (planned != nullptr) {
      Served& served = to->launches[i];
      const int64_t bytes = planned->plan.workspace_bytes;
      if (launch.own.data != nullptr && launch.own.bytes < bytes) {
        return NeedsRecapture(
            exec, StrCat(Change(kinds_[launch.kind], snapshot, *now.prepared, *planned->prepared),
                         "it needs a workspace of ", bytes, " bytes, the caller's has ",
                         launch.own.bytes, "; capture the graph again with a larger one"));
      }
      KVR_RETURN_IF_ERROR(FindMemory(launch, bytes, &served));
      served.prepared = planned->prepared;
      served.recorded_clusters = planned->recorded_clusters;
      one_by_one = one_by_one && served.recorded_clusters && now.recorded_clusters;
    }
    if (planned != nullptr || is_mixed) changed.push_back(i);
  }
  const bool same = changed.empty() && applied.digest == before;
  if (!unpatchable_.empty() && !same) return NeedsRecapture(exec, unpatchable_);

  // 2. Set it, all or nothing.
  if (!changed.empty()) {
    // The context is entered once rather than for each node.
    const absl::Status status = device_.WithContext([&] {
      if (one_by_one) {
        absl::Status set = SetNodes(exec, from, to, changed, &hold, &plans, &applied.nodes);
        if (!absl::IsUnimplemented(set)) return set;
      }
      applied.nodes = 0;
      applied.whole_graph = true;
      return SetCopy(exec, to, &hold, &plans, &applied.nodes);
    });
    if (applied.whole_graph && absl::IsFailedPrecondition(status)) {
      return NeedsRecapture(exec, StrCat(What(status), "; ", Fix(status)));
    }
    KVR_RETURN_IF_ERROR(status);
  }
  hold.applied.insert_or_assign(exec.handle, to);
  applied_.insert_or_assign(exec.handle, Stamp{to->version, to->digest});
  if (same) return applied;
  applied.outcome = Applied::kApplied;
  dispatcher_.counters.applied.fetch_add(1, std::memory_order_relaxed);
  applied.microseconds =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begun).count();
  return applied;
}

absl::Status CapturedGraph::SetSlots(const Launch& launch, const Served& served, Plans* plans,
                                     SetSlot set, int* nodes) {
  const Kind& kind = kinds_[launch.kind];
  if (kind.fixed) return absl::OkStatus();
  std::unique_ptr<Planned>& planned = plans->by_kind[launch.kind];
  if (planned == nullptr || planned->prepared != served.prepared) {
    planned = std::make_unique<Planned>();
    KVR_RETURN_IF_ERROR(PlanKind(kind, served.prepared, planned.get()));
  }
  LaunchWork& work = plans->work;
  KVR_RETURN_IF_ERROR(work.Set(*served.prepared, planned->plan, launch.tensors, served.memory));
  for (size_t i = 0; i < launch.nodes.size(); ++i) {
    KVR_RETURN_IF_ERROR(set(launch.nodes[i], work.At(planned->order[i])));
    ++*nodes;
  }
  return absl::OkStatus();
}

absl::Status CapturedGraph::SetNodes(GraphExec exec, const RunsPtr& from, const RunsPtr& to,
                                     absl::Span<const size_t> changed, Hold* hold, Plans* plans,
                                     int* nodes) {
  const auto set = [&](Node node, const NodeWork& work) {
    return device_.SetNode(exec, node, work);
  };
  for (size_t done = 0; done < changed.size(); ++done) {
    const size_t at = changed[done];
    const absl::Status status = SetSlots(launches_[at], to->launches[at], plans, set, nodes);
    if (status.ok()) continue;
    absl::Status restored;
    int ignored = 0;
    for (size_t i = 0; i <= done; ++i) {
      restored.Update(
          SetSlots(launches_[changed[i]], from->launches[changed[i]], plans, set, &ignored));
    }
    if (restored.ok()) return status;
    const auto mixed = std::make_shared<Runs>();
    *mixed = {0, {}, to->launches, from};
    hold->applied.insert_or_assign(exec.handle, mixed);
    applied_.insert_or_assign(exec.handle, Stamp{});
    return Error(absl::StatusCode::kInternal,
                 StrCat(What(status), "; nor could what it ran be restored: ", What(restored),
                        ": the executable mixes two generations"),
                 "do not launch it before an Apply of it has succeeded; else capture again");
  }
  return absl::OkStatus();
}

absl::Status CapturedGraph::SetCopy(GraphExec exec, const RunsPtr& to, Hold* hold, Plans* plans,
                                    int* nodes) {
  // The copy follows all executables in turn: what it has tells what to set.
  const RunsPtr has = hold->copy.size() == 1 ? hold->copy[0] : nullptr;
  // Else a try that failed before has left it there.
  if (hold->copy.back()->launches != to->launches) hold->copy.push_back(to);
  for (size_t i = 0; i < launches_.size(); ++i) {
    if (has != nullptr && has->launches[i] == to->launches[i]) continue;
    KVR_RETURN_IF_ERROR(SetSlots(
        launches_[i], to->launches[i], plans,
        [&](Node node, const NodeWork& work) { return copy_->Set(node, work); }, nodes));
  }
  hold->copy = {to};
  return copy_->Update(exec);
}

}  // namespace kvr
