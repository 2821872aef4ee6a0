// SPDX-License-Identifier: Apache-2.0
//
// The loading half of the dispatcher: Load and PrepareStream.
#include <algorithm>
#include <utility>

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "registry/dispatcher_impl.h"

namespace kvr {

absl::StatusOr<MissPolicy> ParseMissPolicy(std::string_view name) {
  if (name == "baseline") return MissPolicy::kBaseline;
  if (name == "error") return MissPolicy::kError;
  if (name == "jit") return MissPolicy::kJit;
  return UnknownName("miss policy", name, {"baseline", "error", "jit"});
}

std::string_view MissReasonName(MissReason reason) {
  switch (reason) {
    case MissReason::kNotLoaded:
      return "not loaded";
    case MissReason::kNotSelected:
      return "not selected";
    case MissReason::kNotFitting:
      return "not fitting";
  }
  return "";
}

uint64_t Dispatcher::Impl::NextVersion() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

Dispatcher::Impl::Impl(Dispatcher& owner_dispatcher, Jit& jit, DispatcherOptions dispatcher_options)
    : self(owner_dispatcher),
      options(std::move(dispatcher_options)),
      loader(self.catalog_, self.device_, jit, options),
      pool(self.device_) {
  const DeviceInfo& info = self.device_.info();
  auto first = std::make_shared<Snapshot>();
  first->version = NextVersion();
  first->generation = GenerationBuilder(info.model, info.target).Build(0);
  for (const auto& op : self.catalog_.ops()) {
    first->ops.push_back(std::make_shared<const OpTable>(*op));
  }
  first->streams = std::make_shared<const Streams>();
  current.store(first.get(), std::memory_order_seq_cst);
  version.store(first->version, std::memory_order_release);
  zero = {first, absl::OkStatus()};
  owner = std::move(first);
}

Dispatcher::Dispatcher(const Catalog& catalog, Device& device, Jit& jit, DispatcherOptions options)
    : catalog_(catalog),
      device_(device),
      impl_(std::make_unique<Impl>(*this, jit, std::move(options))) {}

// What graphs that are gone have retained goes before the device, which it uses, may.
Dispatcher::~Dispatcher() { device_.Collect(); }

std::shared_ptr<const Snapshot> Dispatcher::Impl::Current() {
  const std::lock_guard<std::mutex> lock(state);
  return owner;
}

void Dispatcher::Impl::Swap(std::shared_ptr<Snapshot> next) {
  next->version = NextVersion();
  current.store(next.get(), std::memory_order_seq_cst);
  version.store(next->version, std::memory_order_release);
  limbo.Retire(std::exchange(owner, std::move(next)));
}

bool Dispatcher::Impl::IsCurrent(const Snapshot& snapshot) {
  return Current()->generation->digest() == snapshot.generation->digest();
}

absl::StatusOr<std::shared_ptr<const Streams>> Dispatcher::Impl::GrowWorkspaces(
    int64_t bytes, const Stream* add, std::string_view pool_name) {
  const std::lock_guard<std::mutex> lock(state);
  auto next = std::make_shared<Snapshot>(*owner);
  KVR_ASSIGN_OR_RETURN(std::shared_ptr<const Streams> streams, pool.Grow(bytes, add, pool_name));
  next->streams = streams;
  Swap(std::move(next));
  return streams;
}

std::unique_lock<FairLock> Dispatcher::Impl::PrepareAll(
    absl::FunctionRef<std::vector<Loader::Part>()> parts, Loader::Builds* builds) {
  std::unique_lock<FairLock> held(loading);
  // Comes to an end: each turn builds what was never built for this call.
  while (!loader.Prepare(parts(), builds)) {
    held.unlock();
    loader.Build(builds);
    held.lock();
  }
  return held;
}

namespace {

// Every key that the generation selects, at its representative; else the op's defaults.
std::vector<Axes> SelectedShapes(const Generation& generation, const Catalog::Op& op) {
  std::vector<Axes> shapes;
  if (const Generation::Op* selected = generation.FindOp(op.name()); selected != nullptr) {
    for (const auto& [key, selection] : Sorted(*selected)) {
      shapes.push_back(selected->policy.Named(key));
    }
  }
  if (shapes.empty()) shapes.emplace_back();
  return shapes;
}

}  // namespace

absl::StatusOr<LoadReport> Dispatcher::Load(std::string_view op, absl::Span<const Axes> asked) {
  KVR_ASSIGN_OR_RETURN(const Catalog::Op* found, catalog_.FindOp(op));
  if (frozen()) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat("the registry is frozen: ", found->name(), " cannot be loaded now"),
                 "Thaw() first, or Load before Freeze()");
  }
  struct Wanted {
    std::vector<AxisVector> axes;   // of the shapes that the operation has
    std::vector<LoadItem> refused;  // by position, where the status is not ok
  };
  const auto resolve = [&](const Generation& generation) {
    Wanted wanted;
    for (const Axes& shape : asked.empty() ? SelectedShapes(generation, *found)
                                           : std::vector<Axes>(asked.begin(), asked.end())) {
      absl::StatusOr<AxisVector> resolved = ResolveAxes(found->spec(), shape);
      LoadItem& item = wanted.refused.emplace_back();
      item.axes = shape;
      item.status = resolved.status();
      if (resolved.ok()) wanted.axes.push_back(*resolved);
    }
    return wanted;
  };
  // Held while it compiles: the shapes and the binaries, and nothing that may be retired meanwhile.
  Wanted wanted;
  Loader::Builds builds;
  const std::unique_lock<FairLock> loading = impl_->PrepareAll(
      [&] {
        const std::shared_ptr<const Snapshot> now = impl_->Current();
        wanted = resolve(*now->generation);
        const auto part = [&](const Snapshot& snapshot) {
          return Loader::Part{snapshot.generation, snapshot.ops[found->index], wanted.axes};
        };
        std::vector<Loader::Part> parts = {part(*now)};
        // A baseline is always there to go back to, with what is forced upon it, too.
        const Snapshot& zero = *impl_->zero.snapshot;
        if (!impl_->IsCurrent(zero)) parts.push_back(part(zero));
        return parts;
      },
      &builds);
  const std::shared_ptr<const Snapshot> before = impl_->Current();
  auto table = std::make_shared<OpTable>(*before->ops[found->index]);
  LoadReport report;
  int64_t workspace_bytes = 0;
  impl_->loader.Add(*before->generation, wanted.axes, table.get(), &report, &workspace_bytes,
                    builds);
  // Back into the order asked for.
  std::vector<LoadItem> loaded = std::exchange(report.items, {});
  size_t next_loaded = 0;
  for (LoadItem& item : wanted.refused) {
    report.items.push_back(item.status.ok() ? std::move(loaded[next_loaded++]) : std::move(item));
  }

  std::vector<AxisVector> ready;
  for (const AxisVector& shape : wanted.axes) {
    if (table->shapes.count(shape) > 0) ready.push_back(shape);
  }
  Impl::Kept zero = impl_->zero;
  std::vector<Impl::Kept> kept = impl_->kept;
  impl_->LoadForKept(found->index, ready, builds, &workspace_bytes, &zero, &kept);

  const std::lock_guard<std::mutex> state(impl_->state);
  auto next = std::make_shared<Snapshot>(*impl_->owner);  // streams may have come meanwhile
  KVR_ASSIGN_OR_RETURN(next->streams, impl_->pool.Grow(workspace_bytes, nullptr));
  next->ops[found->index] = std::move(table);
  impl_->zero = std::move(zero);
  impl_->kept = std::move(kept);
  impl_->Swap(std::move(next));
  report.workspace_bytes = impl_->pool.capacity();
  return report;
}

absl::StatusOr<LoadReport> Dispatcher::LoadRanges(std::string_view op, std::string_view ranges) {
  KVR_ASSIGN_OR_RETURN(const std::vector<Axes> shapes, ExpandAxes(ranges));
  return Load(op, shapes);
}

absl::Status Dispatcher::PrepareStream(Stream stream, std::string_view pool) {
  if (frozen()) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 "the registry is frozen: no stream can be prepared now",
                 "Thaw() first, or call PrepareStream before Freeze()");
  }
  return impl_->GrowWorkspaces(0, &stream, pool).status();
}

}  // namespace kvr
