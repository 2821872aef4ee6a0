// SPDX-License-Identifier: Apache-2.0
//
// The launching half of the dispatcher.
#include "registry/dispatcher.h"

#include <array>
#include <memory>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "core/thread_end.h"
#include "registry/dispatcher_impl.h"

namespace kvr {

absl::Status CheckWorkspace(const Workspace& workspace, int64_t bytes) {
  if (workspace.bytes < bytes || workspace.data == nullptr) {
    return Error(
        absl::StatusCode::kInvalidArgument,
        StrCat("the workspace given has ", workspace.bytes, " bytes, the launch needs ", bytes),
        "give a larger one (LoadReport and BoundLaunch::workspace_bytes say how large)");
  }
  if (reinterpret_cast<uintptr_t>(workspace.data) % kWorkspaceAlign != 0) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("the workspace given is not aligned to ", kWorkspaceAlign, " bytes"),
                 "align it");
  }
  return absl::OkStatus();
}

namespace {

// This thread's last plan of an op: a model launches the same shape layer after layer. Valid while
// the snapshot it was made under is current, which then keeps `prepared`.
struct LastPlan {
  uint64_t version = 0;  // 0: none
  int op = 0;
  const Prepared* prepared = nullptr;
  AxisVector axes{};
  LaunchPlan plan;
};
constexpr size_t kLastPlans = 4;  // by op; ops that share one evaluate anew
using LastPlans = std::array<LastPlan, kLastPlans>;

// Made at the thread's first launch, since a library that a running program loads (libkvr.so) may
// have little thread-local storage of its own.
constinit thread_local LastPlans* last_plans = nullptr;

[[gnu::noinline]] LastPlans& MakeLastPlans() {
  last_plans = new LastPlans;
  AtThreadEnd([](void*) { delete std::exchange(last_plans, nullptr); });
  return *last_plans;
}

}  // namespace

absl::Status Dispatcher::Launch(OpHandle op, absl::Span<const TensorView> tensors, Stream stream,
                                Workspace workspace) {
  KVR_ASSIGN_OR_RETURN(const bool capturing, device_.IsCapturing(stream));
  if (capturing) [[unlikely]] {
    return impl_->LaunchCaptured(op, tensors, stream, workspace);
  }
  KVR_RETURN_IF_ERROR(impl_->CheckOp(op));
  EpochGuard guard;
  const Snapshot& snapshot = *impl_->current.load(std::memory_order_seq_cst);
  const OpTable& table = *snapshot.ops[op.index];
  LastPlans& plans = last_plans != nullptr ? *last_plans : MakeLastPlans();
  LastPlan& last = plans[static_cast<size_t>(op.index) % kLastPlans];
  // Invalid until this launch has its plan: the axes are read in place.
  const uint64_t version = std::exchange(last.version, 0);
  AxisVector& axes = last.axes;
  bool changed = true;
  if (version == snapshot.version && last.op == op.index) {
    KVR_RETURN_IF_ERROR(table.reader.Reread(tensors, &axes, &changed));
  } else {
    KVR_RETURN_IF_ERROR(table.reader.Read(tensors, &axes));
  }
  if (changed) {
    const KeyTable::Entry served = table.index.Find(table.policy.Bucket(axes));
    last.op = op.index;
    last.prepared = served.missed ? nullptr : served.prepared;
    if (last.prepared != nullptr &&
        last.prepared->TryPlan(axes, &last.plan) != PlanCode::Outcome::kPlanned) {
      last.prepared = nullptr;
    }
  }
  if (last.prepared != nullptr) {
    last.version = snapshot.version;
    return impl_->Enqueue(*last.prepared, last.plan, *snapshot.streams, tensors, stream, workspace);
  }
  const AxisVector own = axes;  // whatever a load may run on this thread
  PlanScratch scratch;
  Resolved resolved;
  KVR_RETURN_IF_ERROR(impl_->Resolve(nullptr, op.index, own, stream, scratch.get(), &resolved));
  return impl_->Enqueue(*resolved.prepared, resolved.plan, *resolved.snapshot->streams, tensors,
                        stream, workspace);
}

absl::Status Dispatcher::Launch(std::string_view op, absl::Span<const TensorView> tensors,
                                Stream stream, Workspace workspace) {
  for (const auto& candidate : catalog_.ops()) {
    if (candidate->name() == op) {
      return Launch(OpHandle{candidate->index}, tensors, stream, workspace);
    }
  }
  return catalog_.FindOp(op).status();
}

absl::Status Dispatcher::Impl::Enqueue(const Prepared& prepared, const PlanView& plan,
                                       const Streams& streams, absl::Span<const TensorView> tensors,
                                       Stream stream, Workspace workspace) {
  void* memory = nullptr;
  if (plan.workspace_bytes > 0) {
    if (workspace.data != nullptr || workspace.bytes != 0) {
      KVR_RETURN_IF_ERROR(CheckWorkspace(workspace, plan.workspace_bytes));
      memory = workspace.data;
    } else {
      memory = EagerWorkspace(streams, stream, plan.workspace_bytes);
      if (memory == nullptr) {
        // Current once, and the guard is older than that: it stays allocated.
        KVR_ASSIGN_OR_RETURN(const std::shared_ptr<const Streams> grown,
                             MakeRoom(stream, plan.workspace_bytes));
        memory = EagerWorkspace(*grown, stream, plan.workspace_bytes);
      }
    }
  }
  CountLaunch();
  return prepared.Launch(plan, tensors, memory, stream);
}

absl::StatusOr<std::shared_ptr<const Streams>> Dispatcher::Impl::MakeRoom(Stream stream,
                                                                          int64_t bytes) {
  if (!self.frozen()) return GrowWorkspaces(bytes, &stream);
  const std::shared_ptr<const Streams> streams = Current()->streams;
  const auto it = streams->find(stream.handle);
  if (it == streams->end()) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 "the stream has no workspace and is used by a frozen registry: nothing may be "
                 "allocated now",
                 "call PrepareStream before capturing or freezing, or pass a workspace");
  }
  if (it->second.eager.bytes >= bytes) return streams;  // prepared meanwhile
  return Error(absl::StatusCode::kFailedPrecondition,
               StrCat("the stream's workspace of ", it->second.eager.bytes,
                      " bytes is too small for a launch that needs ", bytes),
               "Load these axes before capturing or freezing, or pass a workspace");
}

void Dispatcher::Impl::CountMiss(const Catalog::Op& op,
                                 const std::shared_ptr<const KeyPolicy>& names,
                                 const BucketedKey& key, MissReason reason) {
  std::atomic<uint64_t>* const by_reason[] = {&counters.not_loaded, &counters.not_selected,
                                              &counters.not_fitting};
  by_reason[static_cast<size_t>(reason)]->fetch_add(1, std::memory_order_relaxed);
  const auto matches = [&](const MissRecord& record) {
    return record.key == key &&
           (record.names == names || (record.op == &op && record.names->text() == names->text()));
  };
  for (MissRecord& record : miss_records) {
    MissRecord::State seen = record.state.load(std::memory_order_acquire);
    if (seen == MissRecord::kFree &&
        record.state.compare_exchange_strong(seen, MissRecord::kTaken, std::memory_order_acquire)) {
      record.op = &op;
      record.names = names;
      record.key = key;
      record.reason = reason;
      record.count.store(1, std::memory_order_relaxed);
      record.state.store(MissRecord::kKnown, std::memory_order_release);
      return;
    }
    // Taken, and being written: it is counted above only. Waiting is what a launch never does.
    if (seen == MissRecord::kTaken) return;
    if (matches(record)) {
      record.count.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
}

absl::Status Dispatcher::Impl::Resolve(const Snapshot* under, int op, const AxisVector& axes,
                                       Stream stream, LaunchPlan* scratch, Resolved* resolved) {
  const Snapshot* snapshot = under != nullptr ? under : current.load(std::memory_order_seq_cst);
  const std::shared_ptr<const OpTable>* table = &snapshot->ops[op];
  BucketedKey key = (*table)->policy.Bucket(axes);
  MissReason missed{};
  // Twice at most: the second time after policy `jit` has loaded the shape, or has failed to.
  for (bool tried = false;; tried = true) {
    resolved->snapshot = snapshot;
    const KeyTable::Entry served = (*table)->index.Find(key);
    const MissReason reason = served.prepared == nullptr ? MissReason::kNotLoaded
                              : served.missed            ? MissReason::kNotSelected
                                                         : MissReason::kNotFitting;
    missed = reason;
    if (served.prepared != nullptr) {
      PlanCode::Outcome outcome = served.prepared->TryPlan(axes, scratch);
      if (outcome == PlanCode::Outcome::kFailed) {
        const absl::Status status = served.prepared->Plan(axes, scratch);
        if (!status.ok() && !absl::IsFailedPrecondition(status)) return status;
        if (status.ok()) outcome = PlanCode::Outcome::kPlanned;
      }
      if (outcome == PlanCode::Outcome::kPlanned) {
        *resolved = {snapshot, served.prepared, *scratch, {}};
        if (!served.missed) return absl::OkStatus();
        resolved->missed = missed;
      }
    }
    if (!tried) CountMiss(*(*table)->op, (*table)->names, key, reason);
    // A key that is loaded gains nothing by loading: what was selected for its bucket does not fit
    // these axes.
    if (under != nullptr || served.prepared != nullptr || tried ||
        options.miss_policy != MissPolicy::kJit || self.frozen() ||
        (*table)->failed.count(key) > 0) {
      break;
    }
    KVR_ASSIGN_OR_RETURN(const bool capturing, self.device_.IsCapturing(stream));
    if (capturing) break;
    const OpSpec& spec = (*table)->op->spec();
    Axes free_axes = NamedAxes(spec, axes);
    for (const AxisSpec& axis : spec.axes) {
      if (axis.is_const) free_axes.erase(axis.name);
    }
    // Axes that the op itself rules out are the caller's mistake, and nothing to load.
    KVR_RETURN_IF_ERROR(ResolveAxes(spec, free_axes).status());
    {
      const EpochPause pause;  // it may compile
      // A failure is in the new table: the launches after this one do not try again.
      const absl::StatusOr<LoadReport> report = self.Load(spec.name, {free_axes});
      if (report.ok() && report->ready()) {
        counters.loaded_in_launch.fetch_add(1, std::memory_order_relaxed);
      }
    }
    snapshot = current.load(std::memory_order_seq_cst);
    table = &snapshot->ops[op];
    key = (*table)->policy.Bucket(axes);  // under another policy, if one was published meanwhile
  }

  const bool serve = options.miss_policy != MissPolicy::kError;
  if (serve && resolved->prepared == nullptr && (*table)->baseline != nullptr) {
    KVR_RETURN_IF_ERROR((*table)->baseline->Plan(axes, scratch));
    *resolved = {snapshot, (*table)->baseline.get(), *scratch, missed};
  }
  if (serve && resolved->prepared != nullptr) {
    counters.baseline.fetch_add(1, std::memory_order_relaxed);
    return absl::OkStatus();
  }
  counters.refused.fetch_add(1, std::memory_order_relaxed);
  const std::string what =
      StrCat((*table)->op->name(), ": key {", AxesText((*table)->policy.Named(key)), "} (",
             AxesText(NamedAxes((*table)->op->spec(), axes)), ") is not loaded",
             serve ? ", nor is the baseline" : " and the miss policy is 'error'");
  if (const auto failure = (*table)->failed.find(key); serve && failure != (*table)->failed.end()) {
    return Error(absl::StatusCode::kFailedPrecondition, StrCat(what, ": ", What(failure->second)),
                 Fix(failure->second));
  }
  return Error(absl::StatusCode::kFailedPrecondition, what,
               "Load these axes before capturing or freezing");
}

absl::StatusOr<OpHandle> Dispatcher::FindOp(std::string_view op) const {
  KVR_ASSIGN_OR_RETURN(const Catalog::Op* found, catalog_.FindOp(op));
  return OpHandle{found->index};
}

Counters Dispatcher::counters() const {
  const Impl::AtomicCounters& c = impl_->counters;
  Counters now{.not_loaded = c.not_loaded.load(),
               .not_selected = c.not_selected.load(),
               .not_fitting = c.not_fitting.load(),
               .baseline = c.baseline.load(),
               .refused = c.refused.load(),
               .loaded_in_launch = c.loaded_in_launch.load(),
               .captured = c.captured.load(),
               .unscoped = c.unscoped.load(),
               .generations = c.generations.load(),
               .unchanged = c.unchanged.load(),
               .failed = c.failed.load(),
               .rollbacks = c.rollbacks.load(),
               .applied = c.applied.load(),
               .recaptures = c.recaptures.load(),
               .retired = c.retired.load()};
  now.misses = now.not_loaded + now.not_selected + now.not_fitting;
  return now;
}

std::vector<Miss> Dispatcher::misses() const {
  std::vector<Miss> misses;
  for (const Impl::MissRecord& record : impl_->miss_records) {
    if (record.state.load(std::memory_order_acquire) != Impl::MissRecord::kKnown) continue;
    misses.push_back({record.op->name(), record.names->Named(record.key), record.reason,
                      record.count.load(std::memory_order_relaxed)});
  }
  return misses;
}

}  // namespace kvr
