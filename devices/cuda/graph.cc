// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/graph.h"

#include <utility>

#include "core/capture.h"
#include "core/status.h"
#include "core/strings.h"
#include "devices/cuda/context.h"

namespace kvr::cuda {
namespace {

class CudaGraph : public Graph {
 public:
  CudaGraph(const Driver& driver, Context context, GraphExecHandle exec)
      : driver_(driver), context_(context), exec_(exec) {}

  ~CudaGraph() override {
    const ScopedBackgroundWork current(driver_, context_);
    if (current.ok()) driver_.GraphExecDestroy(exec_);
  }

  absl::Status Launch(Stream stream) override {
    const ScopedContext current(driver_, context_);
    KVR_RETURN_IF_ERROR(current.status());
    const auto handle = static_cast<StreamHandle>(stream.handle);
    // The driver would take it, as a child of the graph being recorded.
    KVR_RETURN_IF_ERROR(RefuseCapturing(driver_, "Graph::Launch", handle));
    const Result result = driver_.GraphLaunch(exec_, handle);
    return result == kSuccess ? absl::OkStatus() : ErrorFrom(driver_, result, "cuGraphLaunch");
  }

 private:
  const Driver& driver_;
  const Context context_;
  const GraphExecHandle exec_;
};

// The recorded graph, no longer needed once it is instantiated.
class Recorded {
 public:
  explicit Recorded(const Driver& driver) : driver_(driver) {}
  ~Recorded() {
    if (graph_ != nullptr) driver_.GraphDestroy(graph_);
  }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

  absl::Status Record(StreamHandle stream, absl::FunctionRef<absl::Status()> enqueue) {
    if (const Result result = driver_.StreamBeginCapture(stream, kCaptureModeThreadLocal);
        result != kSuccess) {
      return ErrorFrom(driver_, result, "cuStreamBeginCapture");
    }
    const absl::Status status = enqueue();
    const Result result = driver_.StreamEndCapture(stream, &graph_);
    KVR_RETURN_IF_ERROR(status);  // the reason, where both failed
    if (result == kSuccess) return absl::OkStatus();
    return Error(
        absl::StatusCode::kFailedPrecondition,
        StrCat("Capture: what ran cannot be recorded: ",
               What(ErrorFrom(driver_, result, "cuStreamEndCapture"))),
        "allocate, load and synchronize before the capture, and join every stream it forks into");
  }

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
  GraphHandle graph_ = nullptr;
};

}  // namespace

absl::Status RefuseCapturing(const Driver& driver, std::string_view call, StreamHandle stream) {
  int status = kCaptureNone;
  if (const Result result = driver.StreamIsCapturing(stream, &status); result != kSuccess) {
    return ErrorFrom(driver, result, "cuStreamIsCapturing");
  }
  return status == kCaptureNone ? absl::OkStatus() : RefusedWhileCapturing(call);
}

absl::StatusOr<std::unique_ptr<Graph>> CaptureGraph(const Driver& driver, Context context,
                                                    StreamHandle stream,
                                                    absl::FunctionRef<absl::Status()> enqueue) {
  if (stream == nullptr) return DefaultStreamCannotCapture();
  const ScopedContext current(driver, context);
  KVR_RETURN_IF_ERROR(current.status());
  KVR_RETURN_IF_ERROR(RefuseCapturing(driver, "Capture", stream));
  Recorded recorded(driver);
  KVR_RETURN_IF_ERROR(recorded.Record(stream, enqueue));
  // Instantiating allocates.
  const ScopedBackgroundWork background(driver, context);
  KVR_ASSIGN_OR_RETURN(const GraphExecHandle exec, recorded.Instantiate());
  auto graph = std::make_unique<CudaGraph>(driver, context, exec);
  // So that the first launch takes no longer than the others.
  if (const Result result = driver.GraphUpload(exec, stream); result != kSuccess) {
    return ErrorFrom(driver, result, "cuGraphUpload");
  }
  return graph;
}

}  // namespace kvr::cuda
