// SPDX-License-Identifier: Apache-2.0
//
// A device's captures seen while they are recorded, and the slots in them: what core/graph.h
// declares, on the driver's stream captures, kernel nodes and user objects.
//
// Threading, ownership, capture safety: as core/graph.h; recordings and copies are outlived by
// Captures, and all by the driver and the context.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/device.h"
#include "devices/cuda/driver.h"
#include "devices/cuda/retained.h"
#include "devices/cuda/slot_kernels.h"
#include "devices/cuda/slots.h"

namespace kvr::cuda {

// What a stream records into.
struct CaptureInfo {
  int status = kCaptureNone;
  uint64_t id = 0;  // unlike any other capture's of the process
  GraphHandle graph = nullptr;
  const GraphNode* dependencies = nullptr;  // of the stream's next node; until its next launch
  size_t dependency_count = 0;
};
absl::StatusOr<CaptureInfo> GetCaptureInfo(const Driver& driver, StreamHandle stream);

class Captures {
 public:
  Captures(const Driver& driver, Context context, const DeviceInfo& info)
      : driver_(driver), context_(context), info_(info), kernels_(driver, context, info) {}

  // Drops what graphs that are gone have retained; what is retained still is leaked.
  void Close() { queue_->Close(); }

  // As the functions of Device.
  absl::StatusOr<std::unique_ptr<Recording>> RecordingOf(StreamHandle stream);
  absl::Status SetNode(GraphExecHandle exec, GraphNode node, const NodeWork& work);
  void Collect() { queue_->Drop(); }

 private:
  friend class CudaRecording;
  absl::Status Retain(const CaptureInfo& capture, std::shared_ptr<const void> object);

  const Driver& driver_;
  const Context context_;
  const DeviceInfo& info_;
  SlotKernels kernels_;
  const std::shared_ptr<Slots> slots_ = std::make_shared<Slots>();
  const std::shared_ptr<RetainedQueue> queue_ = std::make_shared<RetainedQueue>();
};

}  // namespace kvr::cuda
