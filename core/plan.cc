// SPDX-License-Identifier: Apache-2.0
#include "core/plan.h"

#include <limits>

#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

using Slots = absl::Span<const int64_t>;
using Extents = std::array<int64_t, 3>;

constexpr char kAxisLetter[] = "xyz";
// CUDA's limits of every architecture that KVR compiles for.
constexpr Extents kGridLimit = {2147483647, 65535, 65535};
constexpr Extents kBlockLimit = {1024, 1024, 64};

std::string KernelPlace(const KernelSpec& kernel) {
  std::string place;
  if (!kernel.file.empty()) {
    place = kernel.file;
    if (kernel.line > 0) StrAppend(&place, ":", kernel.line);
    place += ": ";
  }
  StrAppend(&place, "kernel '", kernel.name, "'");
  return place;
}

absl::Status Refused(const KernelSpec& kernel, std::string_view what, std::string_view fix) {
  return Error(absl::StatusCode::kFailedPrecondition, StrCat(KernelPlace(kernel), ": ", what), fix);
}

std::string Shown(const Extents& e) { return StrCat("(", e[0], ", ", e[1], ", ", e[2], ")"); }

Dim3 ToDim3(const Extents& e) {
  return {static_cast<uint32_t>(e[0]), static_cast<uint32_t>(e[1]), static_cast<uint32_t>(e[2])};
}

absl::Status EvalInto(const KernelSpec& kernel, const Expr& expr, std::string_view field,
                      Slots slots, int64_t* value) {
  absl::StatusOr<int64_t> result = expr.Eval(slots);
  if (!result.ok()) {
    return WithContext(StrCat(KernelPlace(kernel), ": ", field), result.status());
  }
  *value = *result;
  return absl::OkStatus();
}

absl::Status EvalExtents(const KernelSpec& kernel, const std::array<Expr, 3>& exprs,
                         std::string_view field, int64_t least, const Extents& limit, Slots slots,
                         Extents* extents) {
  for (int i = 0; i < 3; ++i) {
    KVR_RETURN_IF_ERROR(EvalInto(kernel, exprs[i], field, slots, &(*extents)[i]));
    const int64_t value = (*extents)[i];
    if (value < least || value > limit[i]) {
      return Refused(kernel,
                     StrCat(field, ".", std::string_view(&kAxisLetter[i], 1), " = ", value, " (",
                            exprs[i].text(), ") is out of range"),
                     StrCat("keep it within ", least, "...", limit[i]));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBlock(const KernelSpec& kernel, const Extents& block, const DeviceInfo& device) {
  const int64_t threads = block[0] * block[1] * block[2];
  if (threads <= device.max_threads_per_block) return absl::OkStatus();
  return Refused(kernel, StrCat("a block of ", Shown(block), " has ", threads, " threads"),
                 StrCat("at most ", device.max_threads_per_block, " on ", device.name));
}

absl::Status CheckCluster(const KernelSpec& kernel, const Extents& cluster, const Extents& grid,
                          const DeviceInfo& device) {
  const int64_t size = cluster[0] * cluster[1] * cluster[2];
  if (size == 1) return absl::OkStatus();
  if (size > device.max_cluster_size) {
    return Refused(kernel, StrCat("a cluster of ", Shown(cluster), " has ", size, " blocks"),
                   StrCat("at most ", device.max_cluster_size, " on ", device.name));
  }
  for (int i = 0; i < 3; ++i) {
    if (grid[i] % cluster[i] != 0) {
      return Refused(
          kernel,
          StrCat("the grid ", Shown(grid), " is no multiple of the cluster ", Shown(cluster)),
          "round the grid up, as in ceildiv(n, c) * c, and let the surplus blocks exit");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSmem(const KernelSpec& kernel, int64_t smem, const DeviceInfo& device) {
  if (smem >= 0 && smem <= device.smem_per_block) return absl::OkStatus();
  return Refused(
      kernel, StrCat("smem = ", smem, " bytes of dynamic shared memory (", kernel.smem.text(), ")"),
      smem < 0 ? "give 0 or more"
               : StrCat("at most ", device.smem_per_block, " bytes a block on ", device.name));
}

absl::Status EvalValues(const KernelSpec& kernel, Slots slots, KernelLaunch* launch) {
  for (size_t i = 0; i < kernel.args.size(); ++i) {
    const ArgSpec& arg = kernel.args[i];
    if (arg.kind != ArgSpec::Kind::kValue) continue;
    int64_t value = 0;
    KVR_RETURN_IF_ERROR(EvalInto(kernel, arg.value, "args", slots, &value));
    if (arg.dtype == DType::kI32 && (value < std::numeric_limits<int32_t>::min() ||
                                     value > std::numeric_limits<int32_t>::max())) {
      return Refused(kernel, StrCat("argument ", i + 1, ", ", arg.text, ", is ", value),
                     "write i64(...) and take an int64_t, or keep it within 32 bits");
    }
    launch->values[i] = value;
  }
  return absl::OkStatus();
}

// One kernel; `*launched` is false where it is left out.
absl::Status EvalKernel(const KernelSpec& kernel, Slots slots, const DeviceInfo& device,
                        KernelLaunch* launch, bool* launched) {
  *launched = false;
  int64_t when = 0;
  KVR_RETURN_IF_ERROR(EvalInto(kernel, kernel.when, "when", slots, &when));
  if (when == 0) return absl::OkStatus();
  Extents grid, block, cluster;
  KVR_RETURN_IF_ERROR(EvalExtents(kernel, kernel.grid, "grid", 0, kGridLimit, slots, &grid));
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return absl::OkStatus();
  KVR_RETURN_IF_ERROR(EvalExtents(kernel, kernel.block, "block", 1, kBlockLimit, slots, &block));
  KVR_RETURN_IF_ERROR(CheckBlock(kernel, block, device));
  KVR_RETURN_IF_ERROR(
      EvalExtents(kernel, kernel.cluster, "cluster", 1, kBlockLimit, slots, &cluster));
  KVR_RETURN_IF_ERROR(CheckCluster(kernel, cluster, grid, device));
  KVR_RETURN_IF_ERROR(EvalInto(kernel, kernel.smem, "smem", slots, &launch->smem));
  KVR_RETURN_IF_ERROR(CheckSmem(kernel, launch->smem, device));
  KVR_RETURN_IF_ERROR(EvalValues(kernel, slots, launch));
  launch->grid = ToDim3(grid);
  launch->block = ToDim3(block);
  launch->cluster = ToDim3(cluster);
  *launched = true;
  return absl::OkStatus();
}

absl::Status EvalRegions(const std::vector<RegionSpec>& regions, Slots slots, LaunchPlan* plan) {
  int64_t total = 0;
  for (size_t i = 0; i < regions.size(); ++i) {
    const RegionSpec& region = regions[i];
    absl::StatusOr<int64_t> elements = region.elements.Eval(slots);
    if (!elements.ok()) {
      return WithContext(StrCat("workspace '", region.name, "'"), elements.status());
    }
    int64_t bytes = 0, end = 0;
    if (*elements < 0 || __builtin_mul_overflow(*elements, DTypeSize(region.dtype), &bytes) ||
        __builtin_add_overflow(bytes, kWorkspaceAlign - 1, &end) ||
        __builtin_add_overflow(end / kWorkspaceAlign * kWorkspaceAlign, total, &end)) {
      return Error(absl::StatusCode::kFailedPrecondition,
                   StrCat("workspace '", region.name, "' has ", *elements, " elements (",
                          region.elements.text(), ") of ", DTypeName(region.dtype)),
                   "give 0 or more elements, whose bytes fit 64 bits");
    }
    plan->region_offset[i] = total;
    plan->region_bytes[i] = bytes;
    total = end;
  }
  plan->workspace_bytes = total;
  return absl::OkStatus();
}

absl::Status CheckConstraints(const std::vector<Expr>& constraints, Slots slots) {
  for (const Expr& constraint : constraints) {
    absl::StatusOr<int64_t> value = constraint.Eval(slots);
    if (!value.ok()) return WithContext("constraint", value.status());
    if (*value == 0) {
      return Error(absl::StatusCode::kFailedPrecondition,
                   StrCat("constraint not met: ", constraint.text()),
                   "choose axes or a config that meet it, or another variant");
    }
  }
  return absl::OkStatus();
}

// A [let] value failed. A constraint that rules these inputs out explains it better than the
// arithmetic does; those that read values not yet known cannot be asked.
absl::Status ExplainLet(const PlanProgram& program, size_t let, const absl::Status& error,
                        Slots known) {
  for (const Expr& constraint : program.constraints) {
    absl::StatusOr<int64_t> value = constraint.Eval(known);
    if (value.ok() && *value == 0) return CheckConstraints({constraint}, known);
  }
  return WithContext(StrCat("let '", program.lets[let].name, "'"), error);
}

absl::Status CheckSizes(const PlanProgram& program, size_t tunables) {
  if (tunables != static_cast<size_t>(program.tunable_count)) {
    return Error(absl::StatusCode::kInternal,
                 StrCat("plan is given ", tunables, " tunable values, not ", program.tunable_count),
                 "use Variant::TunableValues");
  }
  const size_t slots = static_cast<size_t>(program.axis_count) + tunables + kDeviceSymbols.size() +
                       program.lets.size();
  if (program.axis_count > kMaxAxes || slots > kMaxSlots ||
      program.kernels.size() > static_cast<size_t>(kMaxKernels) ||
      program.regions.size() > static_cast<size_t>(kMaxRegions)) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("plan is too large: ", slots, " named values, ", program.kernels.size(),
                        " kernels, ", program.regions.size(), " workspace regions"),
                 StrCat("at most ", kMaxSlots, ", ", kMaxKernels, " and ", kMaxRegions));
  }
  for (const KernelSpec& kernel : program.kernels) {
    if (kernel.args.size() > static_cast<size_t>(kMaxArgs)) {
      return Refused(kernel, StrCat(kernel.args.size(), " arguments"),
                     StrCat("at most ", kMaxArgs));
    }
  }
  return absl::OkStatus();
}

}  // namespace

SymbolTable PlanProgram::Symbols(const OpSpec& op, absl::Span<const Tunable> tunables,
                                 absl::Span<const Let> lets) {
  SymbolTable symbols;
  int slot = 0;
  for (const AxisSpec& axis : op.axes) symbols.emplace(axis.name, slot++);
  for (const Tunable& tunable : tunables) symbols.emplace(tunable.name, slot++);
  for (std::string_view symbol : kDeviceSymbols) symbols.emplace(symbol, slot++);
  for (const Let& let : lets) symbols.emplace(let.name, slot++);
  return symbols;
}

absl::Status PlanProgram::Evaluate(const AxisVector& axes, absl::Span<const int64_t> tunable_values,
                                   const DeviceInfo& device, LaunchPlan* plan) const {
  KVR_RETURN_IF_ERROR(CheckSizes(*this, tunable_values.size()));
  std::array<int64_t, kMaxSlots> storage;
  size_t used = 0;
  for (int i = 0; i < axis_count; ++i) storage[used++] = axes[i];
  for (int64_t value : tunable_values) storage[used++] = value;
  storage[used++] = device.sms;
  storage[used++] = device.smem_per_block;
  for (size_t i = 0; i < lets.size(); ++i) {
    absl::StatusOr<int64_t> value = lets[i].value.Eval({storage.data(), used});
    if (!value.ok()) return ExplainLet(*this, i, value.status(), {storage.data(), used});
    storage[used++] = *value;
  }
  const Slots slots(storage.data(), used);
  KVR_RETURN_IF_ERROR(CheckConstraints(constraints, slots));
  KVR_RETURN_IF_ERROR(EvalRegions(regions, slots, plan));
  plan->kernel_count = 0;
  for (size_t i = 0; i < kernels.size(); ++i) {
    KernelLaunch* launch = &plan->kernels[plan->kernel_count];
    bool launched = false;
    KVR_RETURN_IF_ERROR(EvalKernel(kernels[i], slots, device, launch, &launched));
    if (!launched) continue;
    launch->kernel = static_cast<int>(i);
    ++plan->kernel_count;
  }
  if (plan->kernel_count == 0) plan->workspace_bytes = 0;
  return absl::OkStatus();
}

}  // namespace kvr
