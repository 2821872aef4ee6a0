// SPDX-License-Identifier: Apache-2.0
#include "core/capture.h"

#include <memory>

#include "core/device.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {

absl::Status RefusedWhileCapturing(std::string_view call) {
  return Error(absl::StatusCode::kFailedPrecondition, StrCat(call, " while a stream captures"),
               "do it before the capture, or after it");
}

absl::Status DefaultStreamCannotCapture() {
  return Error(absl::StatusCode::kFailedPrecondition, "Capture: the default stream cannot capture",
               "capture a stream made for it");
}

absl::Status CapturedNothing() {
  return Error(absl::StatusCode::kFailedPrecondition, "Capture: nothing was enqueued",
               "enqueue on the stream that captures; where there is no work, make no graph");
}

absl::StatusOr<std::unique_ptr<Graph>> Device::Capture(Stream stream,
                                                       absl::FunctionRef<absl::Status()> enqueue) {
  KVR_RETURN_IF_ERROR(BeginCapture(stream, CaptureMode::kThreadLocal));
  const absl::Status status = enqueue();
  absl::StatusOr<std::unique_ptr<Graph>> graph = EndCapture(stream);
  KVR_RETURN_IF_ERROR(status);  // the reason, where both failed
  return graph;
}

}  // namespace kvr
