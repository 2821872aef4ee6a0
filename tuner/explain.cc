// SPDX-License-Identifier: Apache-2.0
#include "tuner/explain.h"

#include <set>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "tuner/feasibility.h"

namespace kvr {

int MainKernel(const OpSpec& op, const AxisVector& axes, const PlanProgram& program,
               const LaunchPlan& plan) {
  const std::vector<TensorView> shapes = TensorShapes(op, axes);
  int best = -1;
  std::pair<int64_t, int64_t> most{-1, -1};  // input bytes, threads
  for (int i = 0; i < plan.kernel_count; ++i) {
    std::set<int> inputs;
    for (const ArgSpec& arg : program.kernels[plan.kernels[i].kernel].args) {
      const bool mapped = arg.kind == ArgSpec::Kind::kTensorMap;
      if (!mapped && arg.kind != ArgSpec::Kind::kTensor) continue;
      const int tensor = mapped ? program.tensor_maps[arg.index].tensor : arg.index;
      if (tensor < static_cast<int>(op.inputs.size())) inputs.insert(tensor);
    }
    int64_t bytes = 0;
    for (int input : inputs) bytes += shapes[input].bytes();
    const std::pair size{bytes, plan.kernels[i].grid.volume() * plan.kernels[i].block.volume()};
    if (size > most) {
      most = size;
      best = i;
    }
  }
  return best;
}

absl::StatusOr<Explanation> ExplainConfig(const Operation& op, const Candidate& candidate,
                                          const AxisVector& axes, const DeviceInfo& device,
                                          const Binary* binary, int ctas_per_sm) {
  const Variant& variant = *candidate.variant;
  LaunchPlan plan;
  if (absl::Status fits = CheckPlan(variant, candidate.config, axes, device, &plan); !fits.ok()) {
    return WithContext(StrCat(variant.op, "/", variant.name), fits);
  }
  if (binary != nullptr) KVR_RETURN_IF_ERROR(CheckResources(variant, plan, *binary, device));

  Explanation result;
  result.device = device.name;
  result.variant = variant.name;
  result.config = candidate.config;
  result.axes = NamedAxes(op.spec(), axes);
  result.resources_known = binary != nullptr && !variant.has_launch_function;
  result.smem_limit = device.smem_per_block;
  result.workspace_bytes = plan.workspace_bytes;
  result.bytes = op.MinimumBytes(axes);
  if (device.memory_bandwidth > 0) {
    result.floor_us = static_cast<double>(result.bytes) / device.memory_bandwidth * 1e6;
  }
  if (variant.has_launch_function) {
    const std::vector<TensorView> tensors = TensorShapes(op.spec(), axes);
    for (size_t i = op.spec().inputs.size(); i < tensors.size(); ++i) {
      result.launch_function |= tensors[i].elements() > 0;
    }
    if (!result.launch_function) result.workspace_bytes = 0;
  }
  for (const KernelLaunch& launch : plan.launches()) {
    const KernelSpec& spec = variant.plan.kernels[launch.kernel];
    ExplainedKernel kernel;
    kernel.name = spec.name;
    kernel.grid = launch.grid;
    kernel.block = launch.block;
    kernel.cluster = launch.cluster;
    kernel.smem_dynamic = launch.smem;
    if (binary != nullptr) {
      const KernelResources& used = binary->Find(spec.entry)->resources;
      kernel.smem_static = used.smem_static;
      kernel.registers = used.registers;
      kernel.spill_bytes = used.spill_bytes;
    }
    const Occupancy occupancy =
        ComputeOccupancy(device, static_cast<int>(launch.block.volume()), kernel.registers,
                         kernel.smem_static + kernel.smem_dynamic);
    kernel.blocks_per_sm = occupancy.blocks_per_sm;
    kernel.occupancy = occupancy.fraction;
    kernel.limiter = std::string(occupancy.limiter);
    result.kernels.push_back(std::move(kernel));
  }
  result.main_kernel = MainKernel(op.spec(), axes, variant.plan, plan);
  if (result.main_kernel < 0) return result;

  const ExplainedKernel& main = result.kernels[result.main_kernel];
  result.ctas = plan.kernels[result.main_kernel].grid.volume();
  result.ctas_per_sm = ctas_per_sm > 0 ? ctas_per_sm : main.blocks_per_sm;
  result.waves = ComputeWaves(result.ctas, device.sms, result.ctas_per_sm);
  result.occupancy = main.occupancy;
  result.limiter = main.limiter;
  result.smem_bytes = main.smem_static + main.smem_dynamic;
  return result;
}

}  // namespace kvr
