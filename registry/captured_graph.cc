// SPDX-License-Identifier: Apache-2.0
//
// The capturing half: launches become slots.
#include "registry/captured_graph.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "registry/dispatcher_impl.h"

namespace kvr {

CapturedGraph::CapturedGraph(Dispatcher::Impl& dispatcher, const CaptureOptions& options,
                             Stream stream, uint64_t capture,
                             std::shared_ptr<const Snapshot> pinned)
    : dispatcher_(dispatcher),
      device_(dispatcher.self.device()),
      options_(options),
      stream_(stream),
      capture_(capture),
      pinned_(std::move(pinned)),
      captured_{pinned_->version, pinned_->generation->digest()} {}

CapturedGraph::~CapturedGraph() {
  const std::lock_guard<std::mutex> lock(dispatcher_.captures);
  // One that never came to be has nothing there, or another's.
  const auto it = dispatcher_.graphs.find(capture_);
  if (it != dispatcher_.graphs.end() && it->second.expired()) dispatcher_.graphs.erase(it);
}

absl::Status CapturedGraph::Open(Recording& recording) {
  {
    const std::lock_guard<std::mutex> lock(dispatcher_.captures);
    std::weak_ptr<CapturedGraph>& known = dispatcher_.graphs[capture_];
    if (!known.expired()) {
      return Error(absl::StatusCode::kFailedPrecondition, "this capture has a scope already",
                   "open one scope per capture; it records the launches of all its streams");
    }
    known = weak_from_this();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  auto hold = std::make_shared<Hold>();
  hold->captured = std::make_shared<Runs>();
  hold->captured->version = captured_.version;
  hold->captured->digest = captured_.digest;
  hold->copy = {hold->captured};
  hold_ = hold;
  return recording.Retain(std::move(hold));
}

absl::Status CapturedGraph::FindMemory(const Launch& launch, int64_t bytes, Served* served) {
  if (bytes == 0) {
    served->buffer = nullptr;
    served->memory = nullptr;
    return absl::OkStatus();
  }
  if (launch.own.data != nullptr || launch.own.bytes != 0) {
    served->memory = launch.own.data;
    return CheckWorkspace(launch.own, bytes);
  }
  if (served->buffer == nullptr || served->buffer->workspace().bytes < bytes) {
    KVR_ASSIGN_OR_RETURN(served->buffer,
                         dispatcher_.CapturedBuffer(launch.stream, options_.pool, bytes));
  }
  served->memory = served->buffer->workspace().data;
  return absl::OkStatus();
}

absl::StatusOr<bool> CapturedGraph::Record(Recording& recording, int op,
                                           absl::Span<const TensorView> tensors, Stream stream,
                                           Workspace own) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Catalog::Op& catalog_op = *dispatcher_.self.catalog().ops()[op];
  if (pinned_ == nullptr) {
    unpatchable_ = StrCat(catalog_op.name(),
                          " was launched after Finish(), which must be the last call of a capture");
    return false;
  }

  // 1. All that can fail, before anything is recorded.
  Kind kind;
  kind.op = op;
  KVR_RETURN_IF_ERROR(pinned_->ops[op]->reader.Read(tensors, &kind.axes));
  Launch launch;
  launch.stream = stream;
  launch.own = own;
  PlanScratch scratch;
  Resolved resolved;
  KVR_RETURN_IF_ERROR(
      dispatcher_.Resolve(pinned_.get(), op, kind.axes, stream, scratch.get(), &resolved));
  Served served;
  served.prepared = resolved.prepared->shared_from_this();
  KVR_RETURN_IF_ERROR(FindMemory(launch, resolved.plan.workspace_bytes, &served));
  launch.tensors.assign(tensors.begin(), tensors.end());
  launch.scalars.resize(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& spec = catalog_op.spec().tensor(static_cast<int>(i));
    if (!spec.is_scalar || tensors[i].data == nullptr) continue;
    std::memcpy(launch.scalars[i].data(), tensors[i].data,
                static_cast<size_t>(DTypeSize(spec.dtype)));
    launch.tensors[i].data = launch.scalars[i].data();
  }
  kind.fixed = served.prepared->calls();
  LaunchWork work;
  if (!kind.fixed) {
    KVR_RETURN_IF_ERROR(work.Set(*served.prepared, resolved.plan, launch.tensors, served.memory));
  }
  const std::shared_ptr<Hold> hold = hold_.lock();
  if (hold == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, "the scope's capture has ended",
                 "open a scope inside each capture");
  }

  // 2. Held before it is recorded, so that whatever becomes of the rest, the graph can be launched.
  hold->captured->launches.push_back(served);
  const absl::Status status = Enqueue(recording, resolved.plan, served, work, &kind, &launch);
  if (!status.ok()) {
    unpatchable_ = StrCat(catalog_op.name(), " was recorded in part: ", What(status));
  }
  const auto known = std::find(kinds_.begin(), kinds_.end(), kind);
  launch.kind = static_cast<size_t>(known - kinds_.begin());
  if (known == kinds_.end()) kinds_.push_back(std::move(kind));
  launches_.push_back(std::move(launch));
  KVR_RETURN_IF_ERROR(status);
  dispatcher_.counters.captured.fetch_add(1, std::memory_order_relaxed);
  CountLaunch();
  return true;
}

absl::Status CapturedGraph::Enqueue(Recording& recording, const PlanView& plan,
                                    const Served& served, const LaunchWork& work, Kind* kind,
                                    Launch* launch) {
  if (kind->fixed) {
    return served.prepared->Launch(plan, launch->tensors, served.memory, launch->stream);
  }
  const auto add = [&](const NodeWork& item) -> absl::Status {
    KVR_ASSIGN_OR_RETURN(const Node node, recording.Add(item, launch->stream));
    launch->nodes.push_back(node);
    kind->slots.push_back({item.attributes, ClusterOf(item)});
    return absl::OkStatus();
  };
  for (const NodeWork& item : work.items()) KVR_RETURN_IF_ERROR(add(item));
  for (int i = 0; i < options_.spare_nodes; ++i) KVR_RETURN_IF_ERROR(add({}));
  return absl::OkStatus();
}

absl::Status CapturedGraph::Finish() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (pinned_ == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, "Finish was called before",
                 "keep the GraphBinding that it gave");
  }
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<Recording> recording, device_.RecordingOf(stream_));
  if (recording == nullptr || recording->id() != capture_) {
    return Error(absl::StatusCode::kFailedPrecondition, "the scope's capture has ended",
                 "call Finish before the capture ends, as its last call");
  }
  KVR_ASSIGN_OR_RETURN(copy_, recording->Copy());
  pinned_ = nullptr;
  return absl::OkStatus();
}

}  // namespace kvr
