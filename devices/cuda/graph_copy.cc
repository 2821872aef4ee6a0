// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/graph_copy.h"

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/status.h"
#include "core/strings.h"
#include "devices/cuda/context.h"
#include "devices/cuda/launch.h"

namespace kvr::cuda {
namespace {

std::string_view KindOf(const LaunchAttributes& attributes) {
  if (attributes.cooperative) {
    return attributes.programmatic ? "cooperative and programmatic" : "cooperative";
  }
  return attributes.programmatic ? "programmatic" : "neither cooperative nor programmatic";
}

// The driver's reason, in the words of who made the copy.
absl::Status Refused(const GraphUpdateInfo& info) {
  std::string_view reason = "for a reason that the driver does not give";
  std::string_view fix = "record the graph again with what it shall run";
  switch (info.result) {
    case kGraphUpdateTopologyChanged:
    case kGraphUpdateNodeTypeChanged:
      reason = "it has other nodes or edges than the copy";
      fix = "make the copy by the last call of the capture, and update executables of that graph";
      break;
    case kGraphUpdateParametersChanged:
    case kGraphUpdateAttributesChanged:
      reason = "a node's parameters or attributes cannot change in place";
      break;
    case kGraphUpdateNotSupported:
    case kGraphUpdateFunctionUnsupported:
      reason = "a node cannot take another function in place";
      break;
    default:
      break;
  }
  return Error(absl::StatusCode::kFailedPrecondition,
               StrCat("GraphCopy::Update: the executable cannot be brought to this copy: ", reason,
                      " (cuGraphExecUpdate: ", info.result, "); it keeps what it had"),
               fix);
}

class CudaGraphCopy : public GraphCopy {
 public:
  CudaGraphCopy(const Driver& driver, Context context, const SlotKernels& kernels,
                std::shared_ptr<const Slots> slots, uint64_t capture, GraphHandle clone)
      : driver_(driver),
        context_(context),
        kernels_(kernels),
        known_(std::move(slots)),
        capture_(capture),
        clone_(clone) {}

  ~CudaGraphCopy() override {
    const ScopedBackgroundWork current(driver_, context_);
    if (current.ok()) driver_.GraphDestroy(clone_);
  }

  absl::Status Init() {
    KVR_RETURN_IF_ERROR(Release(known_->ObjectsOf(capture_)));
    for (const auto& [node, slot] : known_->OfCapture(capture_)) {
      GraphNode copy = nullptr;
      const Result result = driver_.GraphNodeFindInClone(&copy, node, clone_);
      if (result != kSuccess) return ErrorFrom(driver_, result, "cuGraphNodeFindInClone");
      slots_.emplace(node, Copied{copy, slot});
    }
    return absl::OkStatus();
  }

  absl::Status Set(Node node, const NodeWork& work) override {
    const auto found = slots_.find(static_cast<GraphNode>(node.handle));
    if (found == slots_.end()) return NoSlot("GraphCopy::Set");
    Copied& copy = found->second;
    KVR_RETURN_IF_ERROR(CheckAttributes("GraphCopy::Set", work, copy.slot));
    SlotLaunch launch;
    KVR_RETURN_IF_ERROR(kernels_.As(work, copy.slot.cluster, &launch));
    const ScopedBackgroundWork current(driver_, context_);
    KVR_RETURN_IF_ERROR(current.status());
    const Dim3 before = copy.slot.cluster;
    const Dim3 after = launch.launch->cluster;
    // A grid has to be a multiple of the cluster at every moment, and of 1x1x1 every grid is.
    if (after != before) KVR_RETURN_IF_ERROR(SetCluster(Dim3{}, &copy));
    const KernelNodeParams params = NodeParams(launch.function, *launch.launch, launch.params);
    if (const Result result = driver_.GraphKernelNodeSetParams(copy.node, &params);
        result != kSuccess) {
      const absl::Status status =
          ErrorFrom(driver_, result, "cuGraphKernelNodeSetParams", Text(*launch.launch));
      if (after != before) SetCluster(before, &copy).IgnoreError();  // as it was
      return status;
    }
    return SetCluster(after, &copy);
  }

  absl::Status Update(GraphExec exec) override {
    const ScopedBackgroundWork current(driver_, context_);
    KVR_RETURN_IF_ERROR(current.status());
    const std::vector<RetainedObject> objects = known_->ObjectsOf(capture_);
    KVR_RETURN_IF_ERROR(Retain(objects));
    GraphUpdateInfo info{};
    const Result result =
        driver_.GraphExecUpdate(static_cast<GraphExecHandle>(exec.handle), clone_, &info);
    // Whatever this says, the executable has been updated or has not.
    Release(objects).IgnoreError();
    if (result == kSuccess) return absl::OkStatus();
    if (result == kGraphUpdateFailure) return Refused(info);
    return ErrorFrom(driver_, result, "cuGraphExecUpdate");
  }

 private:
  struct Copied {
    GraphNode node = nullptr;
    Slot slot;
  };

  // The executable that is to be updated has a reference to each, so none has fired.
  absl::Status Retain(absl::Span<const RetainedObject> objects) {
    bool fired = objects.empty();  // forgotten after it fired: the device has one in each capture
    for (const RetainedObject& object : objects) fired |= object.fired->load();
    if (fired) {
      return Error(absl::StatusCode::kFailedPrecondition,
                   "GraphCopy::Update: the graph of this copy and all its executables are gone",
                   "update an executable that was made of this copy's graph");
    }
    for (size_t i = 0; i < objects.size(); ++i) {
      const Result result =
          driver_.GraphRetainUserObject(clone_, objects[i].handle, 1, /*flags=*/0);
      if (result == kSuccess) continue;
      Release(objects.first(i)).IgnoreError();
      return ErrorFrom(driver_, result, "cuGraphRetainUserObject");
    }
    return absl::OkStatus();
  }

  absl::Status Release(absl::Span<const RetainedObject> objects) {
    for (const RetainedObject& object : objects) {
      const Result result = driver_.GraphReleaseUserObject(clone_, object.handle, 1);
      if (result != kSuccess) return ErrorFrom(driver_, result, "cuGraphReleaseUserObject");
    }
    return absl::OkStatus();
  }

  absl::Status SetCluster(const Dim3& cluster, Copied* copy) {
    if (cluster == copy->slot.cluster) return absl::OkStatus();
    LaunchAttribute attribute;
    attribute.value.cluster = {cluster.x, cluster.y, cluster.z};
    const Result result =
        driver_.GraphKernelNodeSetAttribute(copy->node, kLaunchCluster, &attribute.value);
    if (result != kSuccess) {
      return ErrorFrom(driver_, result, "cuGraphKernelNodeSetAttribute",
                       StrCat("cluster ", Text(cluster)));
    }
    copy->slot.cluster = cluster;
    return absl::OkStatus();
  }

  const Driver& driver_;
  const Context context_;
  const SlotKernels& kernels_;
  const std::shared_ptr<const Slots> known_;
  const uint64_t capture_;
  const GraphHandle clone_;
  std::unordered_map<GraphNode, Copied> slots_;  // by the node of the graph that was recorded
};

}  // namespace

absl::Status CheckAttributes(std::string_view call, const NodeWork& work, const Slot& slot) {
  if (work.kind != NodeWork::Kind::kKernel || work.attributes == slot.attributes) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kFailedPrecondition,
               StrCat(call, ": the node was recorded for a launch that is ",
                      KindOf(slot.attributes), "; this one is ", KindOf(work.attributes)),
               "record the graph again: a node keeps its kind of edge and of launch");
}

absl::Status NoSlot(std::string_view call) {
  return Error(absl::StatusCode::kInvalidArgument,
               StrCat(call, ": the node is no slot of a graph that is known"),
               "pass a node that Recording::Add of this graph gave");
}

absl::StatusOr<std::unique_ptr<GraphCopy>> CopyGraph(const Driver& driver, Context context,
                                                     const SlotKernels& kernels,
                                                     std::shared_ptr<const Slots> slots,
                                                     uint64_t capture, GraphHandle graph) {
  const ScopedBackgroundWork current(driver, context);
  KVR_RETURN_IF_ERROR(current.status());
  GraphHandle clone = nullptr;
  if (const Result result = driver.GraphClone(&clone, graph); result != kSuccess) {
    return ErrorFrom(driver, result, "cuGraphClone");
  }
  auto copy =
      std::make_unique<CudaGraphCopy>(driver, context, kernels, std::move(slots), capture, clone);
  KVR_RETURN_IF_ERROR(copy->Init());
  return copy;
}

}  // namespace kvr::cuda
