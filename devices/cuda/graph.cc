// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/graph.h"

#include <utility>

#include "core/capture.h"
#include "core/status.h"
#include "core/strings.h"
#include "devices/cuda/context.h"
#include "devices/cuda/recording.h"

namespace kvr::cuda {
namespace {

// A graph as it was recorded; null where the capture failed.
class Recorded {
 public:
  Recorded(const Driver& driver, GraphHandle graph) : driver_(driver), graph_(graph) {}
  ~Recorded() {
    if (graph_ != nullptr) driver_.GraphDestroy(graph_);
  }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

  GraphHandle Release() { return std::exchange(graph_, nullptr); }

  absl::StatusOr<GraphExecHandle> Instantiate() const {
    size_t nodes = 0;
    Result result = driver_.GraphGetNodes(graph_, nullptr, &nodes);
    if (result != kSuccess) return ErrorFrom(driver_, result, "cuGraphGetNodes");
    if (nodes == 0) return CapturedNothing();
    GraphExecHandle exec = nullptr;
    result = driver_.GraphInstantiate(&exec, graph_, /*flags=*/0);
    if (result == kSuccess) return exec;
    return ErrorFrom(driver_, result, "cuGraphInstantiateWithFlags", StrCat(nodes, " nodes"));
  }

 private:
  const Driver& driver_;
  GraphHandle graph_;
};

class CudaGraph : public Graph {
 public:
  // `recorded`: null where it is not kept.
  CudaGraph(const Driver& driver, Context context, GraphExecHandle exec, GraphHandle recorded)
      : driver_(driver), context_(context), exec_(exec), recorded_(recorded) {}

  ~CudaGraph() override {
    const ScopedBackgroundWork current(driver_, context_);
    if (!current.ok()) return;
    driver_.GraphExecDestroy(exec_);
    if (recorded_ != nullptr) driver_.GraphDestroy(recorded_);
  }

  absl::Status Launch(Stream stream) override {
    // After an edit the driver may have to upload the graph again.
    const ScopedBackgroundWork current(driver_, context_);
    KVR_RETURN_IF_ERROR(current.status());
    const auto handle = static_cast<StreamHandle>(stream.handle);
    // The driver would take it, as a child of the graph being recorded.
    KVR_RETURN_IF_ERROR(RefuseCapturing(driver_, "Graph::Launch", handle));
    const Result result = driver_.GraphLaunch(exec_, handle);
    return result == kSuccess ? absl::OkStatus() : ErrorFrom(driver_, result, "cuGraphLaunch");
  }

  GraphExec exec() const override { return {exec_}; }

 private:
  const Driver& driver_;
  const Context context_;
  const GraphExecHandle exec_;
  const GraphHandle recorded_;
};

int ModeOf(CaptureMode mode) {
  switch (mode) {
    case CaptureMode::kGlobal:
      return kCaptureModeGlobal;
    case CaptureMode::kThreadLocal:
      return kCaptureModeThreadLocal;
    case CaptureMode::kRelaxed:
      break;
  }
  return kCaptureModeRelaxed;
}

absl::Status CannotEnd(const Driver& driver, Result result) {
  std::string_view fix = "allocate, load and synchronize before the capture";
  switch (result) {
    case kIllegalState:
      fix = "begin the capture before, and leave its end to this call";
      break;
    case kStreamCaptureUnmatched:
      fix = "end it on the stream that began it";
      break;
    case kStreamCaptureUnjoined:
      fix = "let the first stream wait for every stream that joined, before the capture ends";
      break;
    case kStreamCaptureWrongThread:
      fix = "end it on the thread that began it, or begin it in relaxed mode";
      break;
    default:
      break;
  }
  return Error(absl::StatusCode::kFailedPrecondition,
               StrCat("Capture: what ran cannot be recorded: ",
                      What(ErrorFrom(driver, result, "cuStreamEndCapture"))),
               fix);
}

// Two streams of which one would have to wait for what only a replay will run.
absl::Status RefuseCrossing(const CaptureInfo& stream, const CaptureInfo& earlier) {
  if (stream.status == kCaptureNone ||
      (earlier.status != kCaptureNone && stream.id == earlier.id)) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kFailedPrecondition,
               earlier.status == kCaptureNone
                   ? "Wait: the stream captures and the earlier one does not"
                   : "Wait: the streams record into two captures",
               "wait before the capture, or let the earlier stream join it first");
}

}  // namespace

absl::Status RefuseCapturing(const Driver& driver, std::string_view call, StreamHandle stream) {
  int status = kCaptureNone;
  if (const Result result = driver.StreamIsCapturing(stream, &status); result != kSuccess) {
    return ErrorFrom(driver, result, "cuStreamIsCapturing");
  }
  return status == kCaptureNone ? absl::OkStatus() : RefusedWhileCapturing(call);
}

absl::Status BeginCapture(const Driver& driver, Context context, StreamHandle stream,
                          CaptureMode mode) {
  if (stream == nullptr) return DefaultStreamCannotCapture();
  const ScopedContext current(driver, context);
  KVR_RETURN_IF_ERROR(current.status());
  KVR_RETURN_IF_ERROR(RefuseCapturing(driver, "BeginCapture", stream));
  const Result result = driver.StreamBeginCapture(stream, ModeOf(mode));
  return result == kSuccess ? absl::OkStatus() : ErrorFrom(driver, result, "cuStreamBeginCapture");
}

absl::StatusOr<std::unique_ptr<Graph>> EndCapture(const Driver& driver, Context context,
                                                  StreamHandle stream, bool keep_graph) {
  const ScopedContext current(driver, context);
  KVR_RETURN_IF_ERROR(current.status());
  GraphHandle handle = nullptr;
  const Result ended = driver.StreamEndCapture(stream, &handle);
  // Instantiating allocates.
  const ScopedBackgroundWork background(driver, context);
  Recorded recorded(driver, handle);
  if (ended != kSuccess) return CannotEnd(driver, ended);
  KVR_ASSIGN_OR_RETURN(const GraphExecHandle exec, recorded.Instantiate());
  auto graph =
      std::make_unique<CudaGraph>(driver, context, exec, keep_graph ? recorded.Release() : nullptr);
  // So that the first launch takes no longer than the others.
  if (const Result result = driver.GraphUpload(exec, stream); result != kSuccess) {
    return ErrorFrom(driver, result, "cuGraphUpload");
  }
  return graph;
}

absl::Status Wait(const Driver& driver, Context context, StreamHandle stream,
                  StreamHandle earlier) {
  if (stream == earlier) return absl::OkStatus();
  const ScopedBackgroundWork current(driver, context);
  KVR_RETURN_IF_ERROR(current.status());
  // The driver would invalidate the capture.
  KVR_ASSIGN_OR_RETURN(const CaptureInfo into, GetCaptureInfo(driver, stream));
  KVR_ASSIGN_OR_RETURN(const CaptureInfo from, GetCaptureInfo(driver, earlier));
  KVR_RETURN_IF_ERROR(RefuseCrossing(into, from));
  if (stream == nullptr && from.status != kCaptureNone) return DefaultStreamCannotCapture();

  EventHandle event = nullptr;
  Result result = driver.EventCreate(&event, kEventDisableTiming);
  if (result != kSuccess) return ErrorFrom(driver, result, "cuEventCreate");
  std::string_view call = "cuEventRecord";
  result = driver.EventRecord(event, earlier);
  if (result == kSuccess) {
    call = "cuStreamWaitEvent";
    result = driver.StreamWaitEvent(stream, event, /*flags=*/0);
  }
  driver.EventDestroy(event);  // what waits for it does not need it any more
  return result == kSuccess ? absl::OkStatus() : ErrorFrom(driver, result, call);
}

}  // namespace kvr::cuda
