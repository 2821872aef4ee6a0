// SPDX-License-Identifier: Apache-2.0
//
// One config of one variant, ready to launch on one device: module loaded, functions found and
// opted in to their dynamic shared memory, tunables flattened; a plugin's library loaded, its
// launch function opened. Dispatch, BoundLaunch and the tuner's worker all launch through this;
// there is no second way.
//
//   KVR_ASSIGN_OR_RETURN(PreparedPtr prepared, Prepare(device, op, variant, config, binary));
//   LaunchPlan plan;
//   KVR_RETURN_IF_ERROR(prepared->Plan(axes, &plan));
//   KVR_RETURN_IF_ERROR(prepared->Launch(plan, tensors, workspace, stream));
//
// Threading: Prepared is immutable; Plan and Launch may be called concurrently (a stream's calls
// are ordered by the caller). Neither allocates unless it fails.
// Capture safety: Plan and Launch are legal while the stream captures; Prepare is not.
// Ownership: holds the module, or what the launch function opened; it must outlive the launches in
// flight and the graphs captured from it. The device outlives it.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/device.h"
#include "core/op.h"
#include "core/plan.h"
#include "core/plan_code.h"
#include "core/tensor.h"
#include "core/variant.h"

namespace kvr {

// The part of a LaunchPlan that a launch reads; where it is stored is the holder's choice.
struct PlanView {
  absl::Span<const KernelLaunch> kernels;
  int64_t workspace_bytes = 0;
  const int64_t* region_offset = nullptr;
  const int64_t* region_bytes = nullptr;
  const TensorMapLaunch* tensor_maps = nullptr;  // read where there are kernels

  PlanView() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a plan is viewed wherever it is launched.
  PlanView(const LaunchPlan& plan)
      : kernels(plan.launches()),
        workspace_bytes(plan.workspace_bytes),
        region_offset(plan.region_offset.data()),
        region_bytes(plan.region_bytes.data()),
        tensor_maps(plan.tensor_maps.data()) {}
};

class Prepared : public std::enable_shared_from_this<Prepared> {
 public:
  ~Prepared();
  const Variant& variant() const { return *variant_; }
  const VariantPtr& variant_ptr() const { return variant_; }
  const Config& config() const { return config_; }
  const BinaryPtr& binary() const { return binary_; }
  const std::shared_ptr<Module>& module() const { return module_; }
  Device& device() const { return *device_; }
  Function function(int kernel) const { return kernels_[kernel].function; }
  // A launch function enqueues the work: its plans have no kernels, one Call launches them.
  bool calls() const { return call_ != nullptr; }

  // Where every output is empty there is nothing to call, and no workspace to call it with.
  absl::Status Plan(const AxisVector& axes, LaunchPlan* plan) const;
  // The same without the reason, for the launch path; `plan` may be uninitialised.
  PlanCode::Outcome TryPlan(const AxisVector& axes, LaunchPlan* plan) const {
    const PlanCode::Outcome outcome = code_->Run(axes, plan);
    if (call_ != nullptr) ForgetEmptyCall(axes, plan);
    return outcome;
  }

  // Enqueues the plan: clears the regions that want it, then launches its kernels in order, or
  // calls. `tensors` in the op's order (inputs, outputs), checked by TensorReader or the caller's
  // own; `workspace` has plan.workspace_bytes and is aligned to kWorkspaceAlign (null when the plan
  // needs none).
  absl::Status Launch(const PlanView& plan, absl::Span<const TensorView> tensors, void* workspace,
                      Stream stream) const;

  // Launch in steps, for a caller that keeps the arrays: fills `params` (kMaxArgs of them)
  // for launch `i` of the plan, as Device::Launch takes them. They point into `plan`, `tensors`,
  // `regions` (kMaxRegions, filled by Regions) and `maps` (kMaxTensorMaps, filled by
  // EncodeTensorMaps, which depend on the tensors' addresses); all of them must stay where they
  // are.
  void Regions(const PlanView& plan, void* workspace, void** regions) const;
  absl::Status EncodeTensorMaps(const PlanView& plan, absl::Span<const TensorView> tensors,
                                TensorMap* maps) const;
  void Params(const PlanView& plan, int i, absl::Span<const TensorView> tensors,
              void* const* regions, const TensorMap* maps, void** params) const;
  absl::Status Clear(const PlanView& plan, void* const* regions, Stream stream) const;
  // Instead of kernels, where calls().
  absl::Status Call(const PlanView& plan, absl::Span<const TensorView> tensors,
                    void* const* regions, Stream stream) const;

 private:
  friend absl::StatusOr<std::shared_ptr<const Prepared>> Prepare(Device&, const OpSpec&, VariantPtr,
                                                                 Config, BinaryPtr,
                                                                 std::shared_ptr<Module>);
  struct OpenCall {
    OpSpec op;
    std::unique_ptr<LaunchFunction> function;
  };
  Prepared() = default;
  absl::Status Open(const OpSpec& op);
  absl::Status FindFunctions();
  void ForgetEmptyCall(const AxisVector& axes, LaunchPlan* plan) const;

  // What a launch reads of a KernelSpec, in few cache lines.
  struct Arg {
    enum class From : uint8_t { kTensors, kRegions, kValues, kMaps, kScalar };
    From from;
    uint8_t index;    // kScalar: of the tensor
    uint16_t offset;  // of the value from where `from` begins, bytes
  };
  struct Kernel {
    Function function;
    LaunchAttributes attributes;
    uint8_t arg_count = 0;
    std::array<Arg, kMaxArgs> args;
  };
  static Arg ArgOf(const ArgSpec& spec, size_t position);

  std::optional<PlanCode> code_;
  Device* device_ = nullptr;
  VariantPtr variant_;
  Config config_;
  std::vector<int64_t> tunable_values_;
  BinaryPtr binary_;
  std::vector<std::array<std::byte, 8>> scalar_defaults_;  // by tensor position
  std::shared_ptr<Module> module_;
  std::vector<Kernel> kernels_;     // by KernelSpec
  std::vector<uint8_t> zeroed_;     // regions that a launch clears
  std::unique_ptr<OpenCall> call_;  // of a launch function
};

// `value` as a scalar argument of type `dtype`, in the first DTypeSize(dtype) bytes.
std::array<std::byte, 8> ScalarBytes(double value, DType dtype);

using PreparedPtr = std::shared_ptr<const Prepared>;

// `module`: of this binary on this device, where one is loaded already; null loads it.
// Errors: a config that does not fit the variant, a binary for another target or without one of
// the kernels, a device that refuses to load it, a plugin whose library or launch function does not
// open.
absl::StatusOr<PreparedPtr> Prepare(Device& device, const OpSpec& op, VariantPtr variant,
                                    Config config, BinaryPtr binary,
                                    std::shared_ptr<Module> module = nullptr);

}  // namespace kvr
