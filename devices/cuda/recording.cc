// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/recording.h"

#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "devices/cuda/context.h"
#include "devices/cuda/graph_copy.h"
#include "devices/cuda/launch.h"

namespace kvr::cuda {
namespace {

absl::Status Invalidated(std::string_view call) {
  return Error(absl::StatusCode::kFailedPrecondition,
               StrCat(call, ": the capture was invalidated by a call that cannot be recorded"),
               "end it, and allocate, load and synchronize before the next one");
}

// Forgets a capture's slots when what retained this is gone, and lets go of their kernels: a graph
// that outlives its device does not replay what was unloaded.
class SlotsOfCapture {
 public:
  SlotsOfCapture(std::shared_ptr<Slots> slots, uint64_t capture,
                 std::shared_ptr<const void> kernels)
      : slots_(std::move(slots)), capture_(capture), kernels_(std::move(kernels)) {}
  ~SlotsOfCapture() { slots_->Forget(capture_); }
  SlotsOfCapture(const SlotsOfCapture&) = delete;
  SlotsOfCapture& operator=(const SlotsOfCapture&) = delete;

 private:
  const std::shared_ptr<Slots> slots_;
  const uint64_t capture_;
  const std::shared_ptr<const void> kernels_;
};

}  // namespace

absl::StatusOr<CaptureInfo> GetCaptureInfo(const Driver& driver, StreamHandle stream) {
  CaptureInfo info;
  const EdgeData* edges = nullptr;
  // The newer form exists where edges may be programmatic; the older one answers with an error if
  // one is.
  const Result result =
      driver.StreamGetCaptureInfo != nullptr
          ? driver.StreamGetCaptureInfo(stream, &info.status, &info.id, &info.graph,
                                        &info.dependencies, &edges, &info.dependency_count)
          : driver.StreamGetCaptureInfoV2(stream, &info.status, &info.id, &info.graph,
                                          &info.dependencies, &info.dependency_count);
  if (result != kSuccess) return ErrorFrom(driver, result, "cuStreamGetCaptureInfo");
  return info;
}

class CudaRecording : public Recording {
 public:
  CudaRecording(Captures& captures, StreamHandle stream, uint64_t id)
      : captures_(captures), driver_(captures.driver_), stream_(stream), id_(id) {}

  uint64_t id() const override { return id_; }

  absl::StatusOr<Node> Add(const NodeWork& work, Stream stream) override {
    const auto handle = static_cast<StreamHandle>(stream.handle);
    const ScopedContext current(driver_, captures_.context_);
    KVR_RETURN_IF_ERROR(current.status());
    KVR_RETURN_IF_ERROR(Here("Recording::Add", handle).status());
    SlotLaunch slot;
    KVR_RETURN_IF_ERROR(captures_.kernels_.As(work, Dim3{}, &slot));
    KVR_RETURN_IF_ERROR(
        CheckFits(driver_, captures_.info_, slot.function, *slot.launch, work.attributes));
    KVR_RETURN_IF_ERROR(
        LaunchKernel(driver_, slot.function, *slot.launch, work.attributes, slot.params, handle));
    // What a stream's next node will depend on is what was launched on it last.
    KVR_ASSIGN_OR_RETURN(const CaptureInfo after, Here("Recording::Add", handle));
    if (after.dependency_count != 1) {
      return Error(absl::StatusCode::kInternal,
                   StrCat("Recording::Add: ", after.dependency_count,
                          " dependencies after one launch on the stream"),
                   "use the stream from one thread at a time");
    }
    const GraphNode node = after.dependencies[0];
    captures_.slots_->Add(id_, node, {work.attributes, slot.launch->cluster});
    return Node{node};
  }

  absl::StatusOr<std::unique_ptr<GraphCopy>> Copy() override {
    const ScopedContext current(driver_, captures_.context_);
    KVR_RETURN_IF_ERROR(current.status());
    KVR_ASSIGN_OR_RETURN(const CaptureInfo info, Here("Recording::Copy", stream_));
    return CopyGraph(driver_, captures_.context_, captures_.kernels_, captures_.slots_, id_,
                     info.graph);
  }

  absl::Status Retain(std::shared_ptr<const void> object) override {
    const ScopedContext current(driver_, captures_.context_);
    KVR_RETURN_IF_ERROR(current.status());
    KVR_ASSIGN_OR_RETURN(const CaptureInfo info, Here("Recording::Retain", stream_));
    return captures_.Retain(info, std::move(object));
  }

 private:
  absl::StatusOr<CaptureInfo> Here(std::string_view call, StreamHandle stream) {
    KVR_ASSIGN_OR_RETURN(const CaptureInfo info, GetCaptureInfo(driver_, stream));
    if (info.status == kCaptureInvalidated) return Invalidated(call);
    if (info.status == kCaptureActive && info.id == id_) return info;
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat(call, ": the stream does not record into this capture"),
                 "let it wait for a stream of the capture first, and do this before the capture "
                 "ends");
  }

  Captures& captures_;
  const Driver& driver_;
  const StreamHandle stream_;
  const uint64_t id_;
};

absl::StatusOr<std::unique_ptr<Recording>> Captures::RecordingOf(StreamHandle stream) {
  const ScopedContext current(driver_, context_);
  KVR_RETURN_IF_ERROR(current.status());
  KVR_ASSIGN_OR_RETURN(const CaptureInfo info, GetCaptureInfo(driver_, stream));
  if (info.status == kCaptureNone) return nullptr;
  if (info.status == kCaptureInvalidated) return Invalidated("RecordingOf");
  KVR_RETURN_IF_ERROR(kernels_.Load());
  if (slots_->Open(info.id)) {
    KVR_RETURN_IF_ERROR(
        Retain(info, std::make_shared<const SlotsOfCapture>(slots_, info.id, kernels_.module())));
  }
  return std::make_unique<CudaRecording>(*this, stream, info.id);
}

absl::Status Captures::Retain(const CaptureInfo& capture, std::shared_ptr<const void> object) {
  const ScopedBackgroundWork current(driver_, context_);
  KVR_RETURN_IF_ERROR(current.status());
  KVR_ASSIGN_OR_RETURN(RetainedObject retained,
                       RetainedQueue::Retain(driver_, queue_, capture.graph, std::move(object)));
  slots_->AddObject(capture.id, std::move(retained));
  return absl::OkStatus();
}

absl::Status Captures::SetNode(GraphExecHandle exec, GraphNode node, const NodeWork& work) {
  Slot slot;
  if (!slots_->Find(node, &slot)) return NoSlot("SetNode");
  KVR_RETURN_IF_ERROR(CheckAttributes("SetNode", work, slot));
  SlotLaunch launch;
  KVR_RETURN_IF_ERROR(kernels_.As(work, slot.cluster, &launch));
  if (launch.launch->cluster != slot.cluster) {
    return Error(absl::StatusCode::kUnimplemented,
                 StrCat("SetNode: the node was recorded with cluster ", Text(slot.cluster),
                        ", this launch wants ", Text(launch.launch->cluster)),
                 "use a GraphCopy, which can change it");
  }
  const KernelNodeParams params = NodeParams(launch.function, *launch.launch, launch.params);
  const ScopedBackgroundWork current(driver_, context_);
  KVR_RETURN_IF_ERROR(current.status());
  const Result result = driver_.GraphExecKernelNodeSetParams(exec, node, &params);
  if (result == kSuccess) return absl::OkStatus();
  return ErrorFrom(driver_, result, "cuGraphExecKernelNodeSetParams", Text(*launch.launch));
}

}  // namespace kvr::cuda
