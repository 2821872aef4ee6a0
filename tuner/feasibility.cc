// SPDX-License-Identifier: Apache-2.0
#include "tuner/feasibility.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace kvr {
namespace {

absl::Status OverLimit(const KernelSpec& kernel, const char* what, int64_t wanted,
                       const char* limit_name, int64_t limit) {
  return Error(absl::StatusCode::kFailedPrecondition,
               absl::StrCat("kernel ", kernel.name, ": ", what, " ", wanted, " over the ",
                            limit_name, " ", limit),
               "choose a smaller configuration");
}

bool SameLaunch(const KernelLaunch& a, const KernelLaunch& b) {
  return a.kernel == b.kernel && a.grid == b.grid && a.block == b.block && a.cluster == b.cluster &&
         a.smem == b.smem && a.values == b.values;
}

bool SameMap(const TensorMapLaunch& a, const TensorMapLaunch& b) {
  return a.dtype == b.dtype && a.rank == b.rank && a.swizzle == b.swizzle && a.shape == b.shape &&
         a.box == b.box;
}

}  // namespace

std::string Reason(const absl::Status& status) {
  const std::string what(What(status)), fix(Fix(status));
  return fix.empty() ? what : absl::StrCat(what, "; ", fix);
}

std::string ReasonKind(std::string_view reason) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  std::string kind;
  for (char c : reason) {
    if (!digit(c)) {
      kind += c;
    } else if (kind.empty() || kind.back() != '#') {
      kind += '#';
    }
  }
  return kind;
}

absl::Status LoadCode(const Variant& variant) {
  if (variant.code == nullptr) return absl::OkStatus();
  absl::Status loaded = variant.code->Load();
  if (!IsMisfit(loaded)) return loaded;
  return Error(absl::StatusCode::kInternal, What(loaded), Fix(loaded));
}

absl::Status CheckPlan(const Variant& variant, const Config& config, const AxisVector& axes,
                       const DeviceInfo& device, LaunchPlan* plan) {
  KVR_RETURN_IF_ERROR(LoadCode(variant));
  return variant.plan.Evaluate(axes, variant.TunableValues(config), device, plan);
}

absl::Status CheckResources(const Variant& variant, const LaunchPlan& plan, const Binary& binary,
                            const DeviceInfo& device) {
  for (const KernelLaunch& launch : plan.launches()) {
    const KernelSpec& kernel = variant.plan.kernels[launch.kernel];
    const BinaryKernel* compiled = binary.Find(kernel.entry);
    if (compiled == nullptr) {
      return Error(absl::StatusCode::kInternal,
                   absl::StrCat("the binary has no kernel for entry '", kernel.entry, "'"),
                   "clear the binary cache and compile again");
    }
    const KernelResources& used = compiled->resources;
    const int threads = static_cast<int>(launch.block.volume());
    if (threads > used.max_threads) {
      return OverLimit(kernel, "threads per block", threads, "kernel's launch bound",
                       used.max_threads);
    }
    const int64_t smem = used.smem_static + launch.smem;
    if (smem > device.smem_per_block) {
      return OverLimit(kernel, "static and dynamic shared memory in bytes", smem, "device's limit",
                       device.smem_per_block);
    }
    const Occupancy occupancy = ComputeOccupancy(device, threads, used.registers, smem);
    if (occupancy.blocks_per_sm == 0) {
      return Error(
          absl::StatusCode::kFailedPrecondition,
          absl::StrCat("kernel ", kernel.name, ": no block fits a multiprocessor; limited by ",
                       std::string(occupancy.limiter), " (", threads, " threads, ", used.registers,
                       " registers each, ", smem, " bytes of shared memory)"),
          "choose a smaller configuration");
    }
  }
  return absl::OkStatus();
}

bool SamePlan(const LaunchPlan& a, const LaunchPlan& b) {
  return a.workspace_bytes == b.workspace_bytes && a.region_offset == b.region_offset &&
         a.region_bytes == b.region_bytes &&
         std::equal(a.launches().begin(), a.launches().end(), b.launches().begin(),
                    b.launches().end(), SameLaunch) &&
         std::equal(a.tensor_maps.begin(), a.tensor_maps.end(), b.tensor_maps.begin(), SameMap);
}

Feasible PruneStatically(absl::Span<const Candidate> candidates, const AxisVector& axes,
                         const DeviceInfo& device) {
  Feasible result;
  // Kept candidates of one variant with equal compile- and quality-scope values, by position.
  std::map<std::pair<const Variant*, Config>, std::vector<size_t>> alike;
  for (const Candidate& candidate : candidates) {
    LaunchPlan plan;
    const absl::Status status =
        CheckPlan(*candidate.variant, candidate.config, axes, device, &plan);
    if (!status.ok()) {
      result.pruned.push_back({candidate, Reason(status), !IsMisfit(status)});
      continue;
    }
    Config fixed;
    for (const Tunable& tunable : candidate.variant->tunables) {
      if (tunable.scope != Scope::kLaunch || candidate.variant->has_launch_function) {
        fixed[tunable.name] = candidate.config.at(tunable.name);
      }
    }
    std::vector<size_t>& group = alike[{candidate.variant.get(), std::move(fixed)}];
    const auto same = std::find_if(group.begin(), group.end(),
                                   [&](size_t kept) { return SamePlan(result.plans[kept], plan); });
    if (same != group.end()) {
      result.pruned.push_back(
          {candidate, absl::StrCat("same plan at these axes as {",
                                   ConfigText(result.candidates[*same].config), "}")});
      continue;
    }
    group.push_back(result.candidates.size());
    result.candidates.push_back(candidate);
    result.plans.push_back(plan);
  }
  return result;
}

}  // namespace kvr
