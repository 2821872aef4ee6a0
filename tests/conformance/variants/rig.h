// SPDX-License-Identifier: Apache-2.0
//
// One prepared config at one shape with device memory of its own: inputs, outputs and workspace
// between fences. Every step is enqueued on the stream given and waits for nothing, but for Outputs
// and Damage.
//
// Threading: one thread at a time. Ownership: the Prepared's device and the op outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/device.h"
#include "core/op.h"
#include "core/plan.h"
#include "core/tensor.h"
#include "registry/prepared.h"
#include "tuner/worker/inputs.h"
#include "tuner/worker/memory.h"

namespace kvr {

enum class WorkspaceLayout : uint8_t {
  kExact,   // exactly plan.workspace_bytes, as serving gives it, and a fence
  kFenced,  // a fence around each region
};

using Bytes = std::vector<uint8_t>;

class Rig {
 public:
  // The plan's own error where the config does not fit the shape.
  static absl::StatusOr<std::unique_ptr<Rig>> Create(const OpSpec& op, PreparedPtr prepared,
                                                     const AxisVector& axes,
                                                     WorkspaceLayout layout);

  const LaunchPlan& plan() const { return plan_; }
  absl::Status Upload(const InputSetPtr& set, Stream stream);  // and what is by value
  absl::Status FillInputs(uint8_t byte, Stream stream);
  absl::Status FillOutputs(uint8_t byte, Stream stream);
  absl::Status FillWorkspace(uint8_t byte, Stream stream);
  absl::Status Launch(Stream stream);
  absl::Status CopyOutputs(std::vector<Bytes>* outputs, Stream stream);  // done when synchronised

  // The whole of it, synchronised: outputs and workspace filled, inputs uploaded, one launch.
  absl::StatusOr<std::vector<Bytes>> Run(const InputSetPtr& set, uint8_t outputs, uint8_t workspace,
                                         Stream stream);
  // Empty: all fences stand and the inputs are what Upload put there last.
  absl::StatusOr<std::string> Damage(Stream stream);
  // Empty: `outputs` (of a Run that filled them with `poison`) meet the reference.
  std::string Wrong(const std::vector<Bytes>& outputs, absl::Span<const ReferenceOutput> reference,
                    uint8_t poison) const;

 private:
  Rig(const OpSpec& op, PreparedPtr prepared) : op_(op), prepared_(std::move(prepared)) {}
  Device& device() const { return prepared_->device(); }
  absl::Status Fill(size_t first, size_t last, uint8_t byte, Stream stream);

  const OpSpec& op_;
  const PreparedPtr prepared_;
  LaunchPlan plan_;
  MemoryBudget budget_;
  std::unique_ptr<Arena> arena_;
  std::vector<int64_t> sizes_;  // of the arena's buffers: tensors, then workspace
  std::vector<std::string> names_;
  std::vector<TensorView> tensors_;
  InputSetPtr uploaded_;
  void* workspace_ = nullptr;
};

class ScopedStream {
 public:
  explicit ScopedStream(Device& device) : device_(device), stream_(device.CreateStream().value()) {}
  ~ScopedStream() { device_.DestroyStream(stream_); }
  ScopedStream(const ScopedStream&) = delete;
  ScopedStream& operator=(const ScopedStream&) = delete;
  Stream get() const { return stream_; }

 private:
  Device& device_;
  const Stream stream_;
};

// Where two results differ: "output[17] (3.5, then 3.25)". Empty: they do not.
std::string Difference(const OpSpec& op, const std::vector<Bytes>& a, const std::vector<Bytes>& b);

}  // namespace kvr
