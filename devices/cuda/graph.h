// SPDX-License-Identifier: Apache-2.0
//
// A stream's capture, and the executable graph that it becomes.
#pragma once

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/device.h"
#include "devices/cuda/driver.h"

namespace kvr::cuda {

// As Device::Capture; `driver` must outlive the graph. The graph is uploaded, on `stream`, before
// its first launch.
// Capture mode: thread-local. What other threads do is no business of this capture, while a call on
// this thread that could not be replayed (an allocation by the code that is recorded, say) is found
// out: relaxed mode would let it pass, global mode would forbid it to every thread.
absl::StatusOr<std::unique_ptr<Graph>> CaptureGraph(const Driver& driver, Context context,
                                                    StreamHandle stream,
                                                    absl::FunctionRef<absl::Status()> enqueue);

// An error if `stream` captures, in the name of `call`.
absl::Status RefuseCapturing(const Driver& driver, std::string_view call, StreamHandle stream);

}  // namespace kvr::cuda
