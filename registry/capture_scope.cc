// SPDX-License-Identifier: Apache-2.0
#include "registry/capture_scope.h"

#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "registry/captured_graph.h"
#include "registry/dispatcher_impl.h"

namespace kvr {
namespace {

constexpr int kMostSpareNodes = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<CaptureScope>> Dispatcher::OpenCapture(
    Stream stream, const CaptureOptions& options) {
  if (options.spare_nodes < 0 || options.spare_nodes > kMostSpareNodes) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("spare_nodes = ", options.spare_nodes, " per launch"),
                 StrCat("give 0 to ", kMostSpareNodes));
  }
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<Recording> recording, device_.RecordingOf(stream));
  if (recording == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, "OpenCapture: the stream does not capture",
                 "open the scope between the begin and the end of the stream's capture");
  }
  auto graph =
      std::make_shared<CapturedGraph>(*impl_, options, stream, recording->id(), impl_->Current());
  KVR_RETURN_IF_ERROR(graph->Open(*recording));
  return std::unique_ptr<CaptureScope>(new CaptureScope(std::move(graph)));
}

CaptureScope::CaptureScope(std::shared_ptr<CapturedGraph> graph) : graph_(std::move(graph)) {}
CaptureScope::~CaptureScope() = default;

absl::StatusOr<GraphBinding> CaptureScope::Finish() {
  KVR_RETURN_IF_ERROR(graph_->Finish());
  return GraphBinding(graph_);
}

}  // namespace kvr
