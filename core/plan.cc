// SPDX-License-Identifier: Apache-2.0
#include "core/plan.h"

#include <utility>

#include "core/plan_code_internal.h"
#include "core/status.h"
#include "core/strings.h"
#include "core/tensor_map.h"

namespace kvr {
namespace {

using Slots = absl::Span<const int64_t>;
using Extents = std::array<int64_t, 3>;

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

int64_t Volume(const Extents& e) { return e[0] * e[1] * e[2]; }

Dim3 ToDim3(const Extents& e) {
  return {static_cast<uint32_t>(e[0]), static_cast<uint32_t>(e[1]), static_cast<uint32_t>(e[2])};
}

// Evaluates one kernel. Its steps return false once `error` is set; errors are made apart, since
// every launch passes here and none of them has one.
class KernelEvaluator {
 public:
  KernelEvaluator(const KernelSpec& kernel, Slots slots, const DeviceInfo& device)
      : kernel_(kernel), slots_(slots), device_(device) {}

  // `*launched` is false where the kernel is left out.
  bool Run(KernelLaunch* launch, bool* launched) {
    *launched = false;
    int64_t when = 0;
    if (!Eval(kernel_.when, "when", &when)) return false;
    if (when == 0) return true;
    Extents grid, block, cluster;
    if (!EvalExtents(kernel_.grid, "grid", 0, kGridLimit, &grid)) return false;
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return true;
    if (!EvalExtents(kernel_.block, "block", 1, kBlockLimit, &block)) return false;
    if (Volume(block) > device_.max_threads_per_block) return WrongBlock(block);
    if (!EvalExtents(kernel_.cluster, "cluster", 1, kBlockLimit, &cluster)) return false;
    if (Volume(cluster) != 1 && !CheckCluster(cluster, grid)) return false;
    if (!Eval(kernel_.smem, "smem", &launch->smem)) return false;
    if (launch->smem < 0 || launch->smem > device_.smem_per_block) return WrongSmem(launch->smem);
    if (!EvalValues(launch)) return false;
    launch->grid = ToDim3(grid);
    launch->block = ToDim3(block);
    launch->cluster = ToDim3(cluster);
    *launched = true;
    return true;
  }

  absl::Status error;

 private:
  bool Eval(const Expr& expr, const char* field, int64_t* value) {
    return expr.TryEval(slots_, value) || Failed(expr, field);
  }

  bool EvalExtents(const std::array<Expr, 3>& exprs, const char* field, int64_t least,
                   const Extents& limit, Extents* extents) {
    for (size_t i = 0; i < 3; ++i) {
      int64_t& value = (*extents)[i];
      if (!Eval(exprs[i], field, &value)) return false;
      if (value < least || value > limit[i]) {
        return OutOfRange(exprs[i], field, "xyz"[i], value, least, limit[i]);
      }
    }
    return true;
  }

  bool EvalValues(KernelLaunch* launch) {
    for (size_t i = 0; i < kernel_.args.size(); ++i) {
      const ArgSpec& arg = kernel_.args[i];
      if (arg.kind != ArgSpec::Kind::kValue) continue;
      int64_t& value = launch->values[i];
      if (!Eval(arg.value, "args", &value)) return false;
      if (arg.dtype == DType::kI32 && value != static_cast<int32_t>(value)) {
        return WrongValue(i, value);
      }
    }
    return true;
  }

  bool CheckCluster(const Extents& cluster, const Extents& grid) {
    if (Volume(cluster) > device_.max_cluster_size) {
      return Refuse(StrCat("a cluster of ", Shown(cluster), " has ", Volume(cluster), " blocks"),
                    StrCat("at most ", device_.max_cluster_size, " on ", device_.name));
    }
    for (size_t i = 0; i < 3; ++i) {
      if (grid[i] % cluster[i] == 0) continue;
      return Refuse(
          StrCat("the grid ", Shown(grid), " is no multiple of the cluster ", Shown(cluster)),
          "round the grid up, as in ceildiv(n, c) * c, and let the surplus blocks exit");
    }
    return true;
  }

  bool Refuse(std::string_view what, std::string_view fix) {
    error = Refused(kernel_, what, fix);
    return false;
  }

  bool Failed(const Expr& expr, const char* field) {
    error = WithContext(StrCat(KernelPlace(kernel_), ": ", field), expr.Eval(slots_).status());
    return false;
  }

  bool OutOfRange(const Expr& expr, const char* field, char axis, int64_t value, int64_t least,
                  int64_t limit) {
    return Refuse(StrCat(field, ".", std::string_view(&axis, 1), " = ", value, " (", expr.text(),
                         ") is out of range"),
                  StrCat("keep it within ", least, "...", limit));
  }

  bool WrongBlock(const Extents& block) {
    return Refuse(StrCat("a block of ", Shown(block), " has ", Volume(block), " threads"),
                  StrCat("at most ", device_.max_threads_per_block, " on ", device_.name));
  }

  bool WrongSmem(int64_t smem) {
    return Refuse(
        StrCat("smem = ", smem, " bytes of dynamic shared memory (", kernel_.smem.text(), ")"),
        smem < 0 ? "give 0 or more"
                 : StrCat("at most ", device_.smem_per_block, " bytes a block on ", device_.name));
  }

  bool WrongValue(size_t argument, int64_t value) {
    return Refuse(
        StrCat("argument ", argument + 1, ", ", kernel_.args[argument].text, ", is ", value),
        "write i64(...) and take an int64_t, or keep it within 32 bits");
  }

  const KernelSpec& kernel_;
  const Slots slots_;
  const DeviceInfo& device_;
};

absl::Status EvalRegions(const std::vector<RegionSpec>& regions, Slots slots, LaunchPlan* plan) {
  plan->workspace_bytes = 0;
  for (size_t i = 0; i < regions.size(); ++i) {
    const RegionSpec& region = regions[i];
    int64_t elements = 0;
    if (!region.elements.TryEval(slots, &elements)) {
      return WithContext(StrCat("workspace '", region.name, "'"),
                         region.elements.Eval(slots).status());
    }
    if (!PlaceRegion(i, elements, DTypeSize(region.dtype), plan)) {
      return Error(absl::StatusCode::kFailedPrecondition,
                   StrCat("workspace '", region.name, "' has ", elements, " elements (",
                          region.elements.text(), ") of ", DTypeName(region.dtype)),
                   "give 0 or more elements, whose bytes fit 64 bits");
    }
  }
  return absl::OkStatus();
}

absl::Status EvalTensorMaps(const std::vector<TensorMapSpec>& maps, Slots slots, LaunchPlan* plan) {
  for (size_t i = 0; i < maps.size(); ++i) {
    const TensorMapSpec& spec = maps[i];
    TensorMapLaunch& map = plan->tensor_maps[i];
    map.dtype = spec.dtype;
    map.rank = static_cast<int>(spec.box.size());
    map.swizzle = spec.swizzle;
    for (size_t d = 0; d < spec.box.size(); ++d) {
      for (const auto& [expr, value] :
           {std::pair(&spec.shape[d], &map.shape[d]), std::pair(&spec.box[d], &map.box[d])}) {
        if (expr->TryEval(slots, value)) continue;
        return WithContext(StrCat("tensor map '", spec.name, "'"), expr->Eval(slots).status());
      }
    }
    if (absl::Status status = CheckTensorMap(map); !status.ok()) {
      return WithContext(StrCat("tensor map '", spec.name, "'"), status);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckConstraints(const std::vector<Expr>& constraints, Slots slots) {
  for (const Expr& constraint : constraints) {
    int64_t value = 0;
    if (!constraint.TryEval(slots, &value)) {
      return WithContext("constraint", constraint.Eval(slots).status());
    }
    if (value == 0) {
      return Error(absl::StatusCode::kFailedPrecondition,
                   StrCat("constraint not met: ", constraint.text()),
                   "choose axes or a config that meet it, or another variant");
    }
  }
  return absl::OkStatus();
}

// A [let] value failed. A constraint that rules these inputs out explains it better than the
// arithmetic does; those that read values not yet known cannot be asked.
absl::Status ExplainLet(const PlanProgram& program, size_t let, Slots known) {
  for (const Expr& constraint : program.constraints) {
    int64_t value = 1;
    if (constraint.TryEval(known, &value) && value == 0)
      return CheckConstraints({constraint}, known);
  }
  return WithContext(StrCat("let '", program.lets[let].name, "'"),
                     program.lets[let].value.Eval(known).status());
}

}  // namespace

SymbolTable PlanProgram::Symbols(const OpSpec& op, absl::Span<const Tunable> tunables,
                                 absl::Span<const std::string> function_values,
                                 absl::Span<const Let> lets) {
  SymbolTable symbols;
  int slot = 0;
  for (const AxisSpec& axis : op.axes) symbols.emplace(axis.name, slot++);
  for (const Tunable& tunable : tunables) symbols.emplace(tunable.name, slot++);
  for (std::string_view symbol : kDeviceSymbols) symbols.emplace(symbol, slot++);
  for (const std::string& value : function_values) symbols.emplace(value, slot++);
  for (const Let& let : lets) symbols.emplace(let.name, slot++);
  return symbols;
}

absl::Status PlanProgram::CheckSizes(size_t tunables) const {
  if (tunables != static_cast<size_t>(tunable_count)) {
    return Error(absl::StatusCode::kInternal,
                 StrCat("plan is given ", tunables, " tunable values, not ", tunable_count),
                 "use Variant::TunableValues");
  }
  const size_t slots = static_cast<size_t>(axis_count) + tunables + kDeviceSymbols.size() +
                       function_values.size() + lets.size();
  if (axis_count > kMaxAxes || slots > kMaxSlots ||
      kernels.size() > static_cast<size_t>(kMaxKernels) ||
      regions.size() > static_cast<size_t>(kMaxRegions) ||
      tensor_maps.size() > static_cast<size_t>(kMaxTensorMaps)) {
    return Error(
        absl::StatusCode::kInvalidArgument,
        StrCat("plan is too large: ", slots, " named values, ", kernels.size(), " kernels, ",
               regions.size(), " workspace regions, ", tensor_maps.size(), " tensor maps"),
        StrCat("at most ", kMaxSlots, ", ", kMaxKernels, ", ", kMaxRegions, " and ",
               kMaxTensorMaps));
  }
  for (const KernelSpec& kernel : kernels) {
    if (kernel.args.size() > static_cast<size_t>(kMaxArgs)) {
      return Refused(kernel, StrCat(kernel.args.size(), " arguments"),
                     StrCat("at most ", kMaxArgs));
    }
  }
  return absl::OkStatus();
}

absl::Status PlanProgram::Evaluate(const AxisVector& axes, absl::Span<const int64_t> tunable_values,
                                   const DeviceInfo& device, LaunchPlan* plan) const {
  KVR_RETURN_IF_ERROR(CheckSizes(tunable_values.size()));
  std::array<int64_t, kMaxSlots> storage;
  size_t used = 0;
  for (int i = 0; i < axis_count; ++i) storage[used++] = axes[i];
  for (int64_t value : tunable_values) storage[used++] = value;
  storage[used++] = device.sms;
  storage[used++] = device.smem_per_block;
  if (function != nullptr) {
    const absl::Span<int64_t> values(&storage[used], function_values.size());
    KVR_RETURN_IF_ERROR(function->Values({axes.data(), static_cast<size_t>(axis_count)},
                                         tunable_values, device, values));
    used += values.size();
  }
  for (size_t i = 0; i < lets.size(); ++i) {
    const Slots known(storage.data(), used);
    if (!lets[i].value.TryEval(known, &storage[used])) return ExplainLet(*this, i, known);
    ++used;
  }
  const Slots slots(storage.data(), used);
  KVR_RETURN_IF_ERROR(CheckConstraints(constraints, slots));
  KVR_RETURN_IF_ERROR(EvalRegions(regions, slots, plan));
  plan->kernel_count = 0;
  for (size_t i = 0; i < kernels.size(); ++i) {
    KernelLaunch* launch = &plan->kernels[plan->kernel_count];
    bool launched = false;
    KernelEvaluator evaluator(kernels[i], slots, device);
    if (!evaluator.Run(launch, &launched)) return std::move(evaluator.error);
    if (!launched) continue;
    launch->kernel = static_cast<int>(i);
    ++plan->kernel_count;
  }
  if (plan->kernel_count > 0) KVR_RETURN_IF_ERROR(EvalTensorMaps(tensor_maps, slots, plan));
  // No kernel, no memory: a region of its own size must not ask to be cleared either. A program
  // without any is a launch function's: whether that is called is not the plan's to say.
  if (plan->kernel_count == 0 && !kernels.empty()) {
    plan->workspace_bytes = 0;
    plan->region_offset.fill(0);
    plan->region_bytes.fill(0);
  }
  return absl::OkStatus();
}

}  // namespace kvr
