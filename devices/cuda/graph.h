// SPDX-License-Identifier: Apache-2.0
//
// A stream's capture from beginning to end, and the executable graph that it becomes.
//
// Threading: as core/device.h; a capture that is not relaxed ends on the thread that began it.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/device.h"
#include "devices/cuda/driver.h"

namespace kvr::cuda {

// As Device::BeginCapture.
absl::Status BeginCapture(const Driver& driver, Context context, StreamHandle stream,
                          CaptureMode mode);

// As Device::EndCapture; `driver` must outlive the graph. The graph is uploaded, on `stream`,
// before its first launch.
absl::StatusOr<std::unique_ptr<Graph>> EndCapture(const Driver& driver, Context context,
                                                  StreamHandle stream, bool keep_graph);

// As Device::Wait.
absl::Status Wait(const Driver& driver, Context context, StreamHandle stream, StreamHandle earlier);

// An error if `stream` captures, in the name of `call`.
absl::Status RefuseCapturing(const Driver& driver, std::string_view call, StreamHandle stream);

}  // namespace kvr::cuda
