// SPDX-License-Identifier: Apache-2.0
//
// The host device: runs objects that jit/clang compiled from CUDA sources, block by block, on this
// machine's cores (block_runner.h). Launches are checked against the declared limits before they
// are enqueued; faults of a running kernel surface at the stream's next Synchronize.
//
// Streams are threads, one each, FIFO. Copies wait for their stream and are done when they return,
// so the host memory they name is free at once. Free waits for all streams. Events take the time
// of std::chrono::steady_clock. A graph is the recorded work, enqueued again as one piece; it may
// be destroyed while it runs.
//
// Not supported, and refused: clusters, cooperative launches (blocks need not be resident
// together). A programmatic launch runs as an ordinary one.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "core/device.h"

namespace kvr::host {

absl::StatusOr<std::unique_ptr<Device>> OpenHost();

}  // namespace kvr::host
