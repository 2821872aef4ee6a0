// SPDX-License-Identifier: Apache-2.0
//
// The cold half of a launch: its stream captures.
#include <utility>

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "registry/dispatcher_impl.h"

namespace kvr {

absl::Status Dispatcher::Impl::LaunchCaptured(OpHandle op, absl::Span<const TensorView> tensors,
                                              Stream stream, Workspace workspace) {
  KVR_RETURN_IF_ERROR(CheckOp(op));
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<Recording> recording,
                       self.device_.RecordingOf(stream));
  std::shared_ptr<CapturedGraph> graph;
  if (recording != nullptr) {
    const std::lock_guard<std::mutex> lock(captures);
    const auto it = graphs.find(recording->id());
    if (it != graphs.end()) graph = it->second.lock();
  }
  if (graph != nullptr) {
    KVR_ASSIGN_OR_RETURN(const bool recorded,
                         graph->Record(*recording, op.index, tensors, stream, workspace));
    if (recorded) return absl::OkStatus();
  }
  return LaunchUnscoped(op.index, tensors, stream, workspace);
}

absl::Status Dispatcher::Impl::LaunchUnscoped(int op, absl::Span<const TensorView> tensors,
                                              Stream stream, Workspace workspace) {
  const EpochGuard guard;
  const Snapshot& snapshot = *current.load(std::memory_order_seq_cst);
  AxisVector axes;
  KVR_RETURN_IF_ERROR(snapshot.ops[op]->reader.Read(tensors, &axes));
  PlanScratch scratch;
  Resolved resolved;
  KVR_RETURN_IF_ERROR(Resolve(&snapshot, op, axes, stream, scratch.get(), &resolved));
  BufferPtr buffer;
  void* memory = nullptr;
  if (const int64_t bytes = resolved.plan.workspace_bytes; bytes > 0) {
    if (workspace.data != nullptr || workspace.bytes != 0) {
      KVR_RETURN_IF_ERROR(CheckWorkspace(workspace, bytes));
      memory = workspace.data;
    } else {
      KVR_ASSIGN_OR_RETURN(buffer, CapturedBuffer(stream, {}, bytes));
      memory = buffer->workspace().data;
    }
  }
  {
    const std::lock_guard<std::mutex> lock(captures);
    pinned.insert(resolved.prepared->shared_from_this());
    if (buffer != nullptr) pinned.insert(std::move(buffer));
  }
  KVR_RETURN_IF_ERROR(resolved.prepared->Launch(resolved.plan, tensors, memory, stream));
  counters.unscoped.fetch_add(1, std::memory_order_relaxed);
  CountLaunch();
  return absl::OkStatus();
}

absl::StatusOr<BufferPtr> Dispatcher::Impl::CapturedBuffer(Stream stream,
                                                           std::string_view pool_name,
                                                           int64_t bytes) {
  const EpochGuard guard;
  const Streams& streams = *current.load(std::memory_order_seq_cst)->streams;
  const auto it = streams.find(stream.handle);
  const BufferPtr* buffer = it == streams.end() ? nullptr : it->second.Captured(pool_name);
  if (buffer == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat("the stream has no workspace for captures",
                        pool_name.empty() ? "" : StrCat(" into pool ", Quoted(pool_name)),
                        ", and is capturing: nothing may be allocated now"),
                 StrCat("call PrepareStream(stream",
                        pool_name.empty() ? "" : StrCat(", ", Quoted(pool_name)),
                        ") before capturing, or pass a workspace"));
  }
  const int64_t has = *buffer == nullptr ? 0 : (*buffer)->workspace().bytes;
  if (has < bytes) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat("the stream's workspace of ", has,
                        " bytes is too small for a launch that needs ", bytes),
                 "Load these axes before capturing, or pass a workspace");
  }
  return *buffer;
}

}  // namespace kvr
