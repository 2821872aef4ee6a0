// SPDX-License-Identifier: Apache-2.0
//
// Opened inside the application's capture around its launches, so that the graph can be brought to
// another generation later, without capturing again.
//
//   cudaStreamBeginCapture(stream, ...);                       // the application's own capture
//   KVR_ASSIGN_OR_RETURN(auto scope, runtime.OpenCapture({stream}, {.spare_nodes = 1}));
//   KVR_RETURN_IF_ERROR(runtime.Launch(op, tensors, {stream}));  // also on streams that joined
//   KVR_ASSIGN_OR_RETURN(GraphBinding binding, scope->Finish());  // the capture's last call
//   cudaStreamEndCapture(stream, &graph);
//
// From OpenCapture on, every Launch and BoundLaunch::Launch of this registry whose stream belongs
// to the capture is recorded here, from whatever thread. All of them see the generation that was
// current when the scope was opened, whatever is published meanwhile. The graph keeps modules and
// workspaces alive as long as it and its executables live. A launch captured outside a scope works
// too, but is fixed for good and its module is never unloaded (Counters::unscoped).
//
// A key that is not loaded is an error before anything is recorded, and the capture stays valid; or
// the baseline serves it, by miss policy. Nothing compiles, loads a variant or allocates.
//
// Threading: as its capture. Ownership: the Dispatcher outlives scope and binding. A scope that is
// destroyed without Finish leaves its launches in the graph, fixed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "registry/graph_binding.h"

namespace kvr {

class CapturedGraph;

struct CaptureOptions {
  // Graphs captured with one pool replay one after another: they share its workspaces. Give each
  // graph that may run beside others a pool of its own. PrepareStream(stream, pool) comes first.
  std::string pool;
  // Nodes that do nothing, per launch, for a later plan with more kernels. Each costs a replay
  // about 0.6 us.
  int spare_nodes = 0;
  // The application keeps the graph as long as the binding (torch: keep_graph=True), so single
  // nodes may be set.
  bool keeps_graph = false;
};

class CaptureScope {
 public:
  ~CaptureScope();
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

  // kFailedPrecondition: the capture has ended or was invalidated, or this was called before.
  absl::StatusOr<GraphBinding> Finish();

 private:
  friend class Dispatcher;
  explicit CaptureScope(std::shared_ptr<CapturedGraph> graph);
  std::shared_ptr<CapturedGraph> graph_;
};

}  // namespace kvr
