// SPDX-License-Identifier: Apache-2.0
#include "plugins/plan_builder.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "plugins/usage.h"

namespace kvr::bundle {
namespace {

constexpr std::string_view kWorkspacePrefix = "workspace.";
constexpr std::string_view kTensorMapPrefix = "tensor_map.";
constexpr std::string_view kReserved[] = {"and", "or",  "not",     "if",  "min",      "max",
                                          "mod", "i32", "ceildiv", "i64", "floordiv", "pow2ceil"};

absl::StatusOr<Expr> ParseExpr(const Text& text, std::string_view what,
                               const SymbolTable& symbols) {
  absl::StatusOr<Expr> expr = Expr::Parse(text.value, symbols);
  if (expr.ok()) return expr;
  return At(text.at, WithContext(what, expr.status()));
}

absl::Status MissingKey(const Text& name, std::string_view kind, std::string_view key,
                        std::string_view example) {
  return Invalid(name.at, StrCat(kind, " '", name.value, "': key '", key, "' is missing"),
                 StrCat("state ", example));
}

class PlanBuilder {
 public:
  PlanBuilder(const Manifest& manifest, const OpSpec& op, absl::Span<const Tunable> tunables)
      : manifest_(manifest), op_(op), tunables_(tunables) {}

  absl::StatusOr<PlanProgram> Build() {
    program_.axis_count = static_cast<int>(op_.axes.size());
    program_.tunable_count = static_cast<int>(tunables_.size());
    KVR_RETURN_IF_ERROR(CheckSlots());
    KVR_RETURN_IF_ERROR(AddPlanValues());
    for (size_t i = 0; i < manifest_.lets.size(); ++i) KVR_RETURN_IF_ERROR(AddLet(i));
    symbols_ = PlanProgram::Symbols(op_, tunables_, program_.function_values, program_.lets);
    if (manifest_.constraints) {
      for (const Text& text : *manifest_.constraints) {
        KVR_ASSIGN_OR_RETURN(Expr expr, ParseExpr(text, "constraint", symbols_));
        program_.constraints.push_back(std::move(expr));
      }
    }
    for (const RegionEntry& region : manifest_.regions) KVR_RETURN_IF_ERROR(AddRegion(region));
    for (const TensorMapEntry& map : manifest_.tensor_maps) KVR_RETURN_IF_ERROR(AddTensorMap(map));
    for (const KernelEntry& kernel : manifest_.kernels) KVR_RETURN_IF_ERROR(AddKernel(kernel));
    if (!manifest_.HasLaunchFunction()) KVR_RETURN_IF_ERROR(CheckOutputs());
    return std::move(program_);
  }

 private:
  absl::Status CheckSlots() const {
    const size_t slots = op_.axes.size() + tunables_.size() + kDeviceSymbols.size() +
                         (manifest_.plan_values ? manifest_.plan_values->size() : 0) +
                         manifest_.lets.size();
    if (slots <= static_cast<size_t>(kMaxSlots)) return absl::OkStatus();
    return Invalid(
        manifest_.at,
        StrCat(slots, " named values (axes, tunables, device properties, plan values and lets)"),
        StrCat("at most ", kMaxSlots));
  }

  // Functions of the language, and what axes, tunables and the device are called.
  absl::Status CheckNewName(std::string_view kind, const Text& name) const {
    const bool reserved =
        std::find(std::begin(kReserved), std::end(kReserved), name.value) != std::end(kReserved);
    const std::vector<std::string>& values = program_.function_values;
    const bool value = std::find(values.begin(), values.end(), name.value) != values.end();
    const bool device =
        std::find(kDeviceSymbols.begin(), kDeviceSymbols.end(), name.value) != kDeviceSymbols.end();
    const bool axis = op_.AxisIndex(name.value) >= 0;
    if (!reserved && !value && !device && !axis) return absl::OkStatus();
    return Invalid(name.at,
                   StrCat(kind, " '", name.value, "' has the name of ",
                          reserved ? "a function"
                          : axis   ? "an axis of the op"
                          : value  ? "a plan value"
                                   : "a device property"),
                   "give it a name of its own");
  }

  absl::Status AddPlanValues() {
    if (!manifest_.HasPlanFunction()) return absl::OkStatus();
    const Names used = UsageOf(manifest_).plan;
    for (const Text& name : *manifest_.plan_values) {
      KVR_RETURN_IF_ERROR(CheckNewName("plan value", name));
      // One that a child took over from its parent is the function's to give, used or not.
      const bool own = manifest_.plan_code.variant == manifest_.name.value;
      if (own && used.count(name.value) == 0) {
        return Invalid(name.at, StrCat("plan value '", name.value, "' is used by no expression"),
                       "use it, or remove it here and in the plan function");
      }
      program_.function_values.push_back(name.value);
    }
    return absl::OkStatus();
  }

  absl::Status AddLet(size_t index) {
    const LetEntry& let = manifest_.lets[index];
    const std::string& name = let.name.value;
    const SymbolTable before =
        PlanProgram::Symbols(op_, tunables_, program_.function_values, program_.lets);
    KVR_RETURN_IF_ERROR(CheckNewName("let", let.name));
    absl::StatusOr<Expr> expr = Expr::Parse(let.value.value, before);
    if (!expr.ok()) {
      Names used;
      AddNames(let.value.value, &used);
      for (size_t later = index; later < manifest_.lets.size(); ++later) {
        const std::string& other = manifest_.lets[later].name.value;
        if (used.count(other) == 0) continue;
        return Invalid(let.value.at,
                       later == index
                           ? StrCat("let '", name, "' uses itself")
                           : StrCat("let '", name, "' uses '", other, "', which comes after it"),
                       "a let sees the lets before it only: put them in order");
      }
      return At(let.value.at, WithContext(StrCat("let '", name, "'"), expr.status()));
    }
    program_.lets.push_back({name, *std::move(expr)});
    return absl::OkStatus();
  }

  absl::Status AddRegion(const RegionEntry& entry) {
    if (!entry.dtype) {
      return MissingKey(entry.name, "workspace", "dtype", "dtype = \"float32\"");
    }
    if (!entry.elements) {
      return MissingKey(entry.name, "workspace", "elements", "elements = \"num_tokens * 512\"");
    }
    RegionSpec region;
    region.name = entry.name.value;
    absl::StatusOr<DType> dtype = ParseDType(entry.dtype->value);
    if (!dtype.ok()) return At(entry.dtype->at, dtype.status());
    region.dtype = *dtype;
    KVR_ASSIGN_OR_RETURN(
        region.elements,
        ParseExpr(*entry.elements, StrCat("workspace '", region.name, "' elements"), symbols_));
    region.zeroed = entry.zeroed ? entry.zeroed->value : false;
    program_.regions.push_back(std::move(region));
    return absl::OkStatus();
  }

  absl::Status AddTensorMap(const TensorMapEntry& entry) {
    if (!entry.tensor) {
      return MissingKey(entry.name, "tensor map", "tensor", "tensor = the op's tensor");
    }
    if (!entry.box) return MissingKey(entry.name, "tensor map", "box", "box = [1, 64]");
    KVR_ASSIGN_OR_RETURN(TensorMapSpec map, NamedTensorMap(entry));
    const std::string context = StrCat("tensor map '", map.name, "' ");
    std::vector<Text> shape;
    for (int axis : op_.tensor(map.tensor).axes) {
      shape.push_back({op_.axes[axis].name, entry.tensor->at});
    }
    if (entry.shape) shape = *entry.shape;
    if (shape.empty() || shape.size() > static_cast<size_t>(kMaxTensorMapRank) ||
        entry.box->size() != shape.size()) {
      return Invalid(entry.box->empty() ? entry.name.at : entry.box->front().at,
                     StrCat(context, "has ", entry.box->size(), " box extents for a view of ",
                            shape.size(), " dimensions"),
                     StrCat("give as many of both, 1 to ", kMaxTensorMapRank, ", outermost first"));
    }
    for (size_t i = 0; i < shape.size(); ++i) {
      KVR_ASSIGN_OR_RETURN(Expr extent, ParseExpr(shape[i], context + "shape", symbols_));
      map.shape.push_back(std::move(extent));
      KVR_ASSIGN_OR_RETURN(extent, ParseExpr((*entry.box)[i], context + "box", symbols_));
      map.box.push_back(std::move(extent));
    }
    program_.tensor_maps.push_back(std::move(map));
    return absl::OkStatus();
  }

  absl::StatusOr<TensorMapSpec> NamedTensorMap(const TensorMapEntry& entry) const {
    TensorMapSpec map;
    map.name = entry.name.value;
    map.swizzle = static_cast<int>(entry.swizzle.value_or(0));
    map.tensor = op_.TensorIndex(entry.tensor->value);
    if (map.tensor < 0) {
      std::vector<std::string_view> known;
      for (int i = 0; i < op_.tensor_count(); ++i) known.push_back(op_.tensor(i).name);
      return At(entry.tensor->at, UnknownName("tensor", entry.tensor->value, known));
    }
    const TensorSpec& tensor = op_.tensor(map.tensor);
    map.dtype = tensor.dtype;
    if (tensor.is_scalar || tensor.any_dtype) {
      return Invalid(entry.tensor->at,
                     StrCat("tensor map '", map.name, "' is of '", tensor.name, "', which ",
                            tensor.is_scalar ? "is a scalar" : "has no dtype of its own"),
                     "name a tensor with a shape and a dtype");
    }
    return map;
  }

  absl::Status AddExtents(const KernelEntry& entry, std::string_view key,
                          const std::optional<std::vector<Text>>& texts,
                          std::array<Expr, 3>* extents) {
    extents->fill(Expr::Constant(1));
    if (!texts) return absl::OkStatus();
    for (size_t i = 0; i < texts->size(); ++i) {
      KVR_ASSIGN_OR_RETURN(
          (*extents)[i],
          ParseExpr((*texts)[i], StrCat("kernel '", entry.name.value, "' ", key), symbols_));
    }
    return absl::OkStatus();
  }

  absl::Status AddKernel(const KernelEntry& entry) {
    KernelSpec kernel;
    kernel.name = entry.name.value;
    kernel.file = entry.name.at.file;
    kernel.line = entry.name.at.line;
    if (!entry.entry) {
      return MissingKey(entry.name, "kernel", "entry", "entry = \"my_kernel<BLOCK>\"");
    }
    if (!entry.grid) return MissingKey(entry.name, "kernel", "grid", "grid = [\"num_tokens\"]");
    if (!entry.block) return MissingKey(entry.name, "kernel", "block", "block = [\"128\"]");
    if (!entry.args) return MissingKey(entry.name, "kernel", "args", "args = [...], in its order");
    kernel.entry = entry.entry->value;
    KVR_RETURN_IF_ERROR(AddExtents(entry, "grid", entry.grid, &kernel.grid));
    KVR_RETURN_IF_ERROR(AddExtents(entry, "block", entry.block, &kernel.block));
    KVR_RETURN_IF_ERROR(AddExtents(entry, "cluster", entry.cluster, &kernel.cluster));
    const std::string context = StrCat("kernel '", kernel.name, "' ");
    if (entry.smem) {
      KVR_ASSIGN_OR_RETURN(kernel.smem, ParseExpr(*entry.smem, context + "smem", symbols_));
    }
    if (entry.when) {
      KVR_ASSIGN_OR_RETURN(kernel.when, ParseExpr(*entry.when, context + "when", symbols_));
    }
    kernel.attributes.cooperative = entry.cooperative ? entry.cooperative->value : false;
    kernel.attributes.programmatic = entry.programmatic ? entry.programmatic->value : false;
    if (entry.args->size() > static_cast<size_t>(kMaxArgs)) {
      return Invalid(entry.name.at, StrCat(context, "has ", entry.args->size(), " arguments"),
                     StrCat("at most ", kMaxArgs));
    }
    for (const Text& text : *entry.args) {
      KVR_ASSIGN_OR_RETURN(ArgSpec arg, ResolveArgument(text, context));
      kernel.args.push_back(std::move(arg));
    }
    program_.kernels.push_back(std::move(kernel));
    return absl::OkStatus();
  }

  absl::StatusOr<ArgSpec> ResolveArgument(const Text& text, const std::string& context) const {
    ArgSpec arg;
    arg.text = text.value;
    const std::string_view word = text.value;
    if (const int tensor = op_.TensorIndex(word); tensor >= 0) {
      const TensorSpec& spec = op_.tensor(tensor);
      arg.kind = spec.is_scalar ? ArgSpec::Kind::kScalar : ArgSpec::Kind::kTensor;
      arg.index = tensor;
      arg.dtype = spec.dtype;
      return arg;
    }
    if (word.starts_with(kWorkspacePrefix)) {
      return ResolveRegion(std::move(arg), word.substr(kWorkspacePrefix.size()), text.at);
    }
    if (word.starts_with(kTensorMapPrefix)) {
      return ResolveTensorMap(std::move(arg), word.substr(kTensorMapPrefix.size()), text.at);
    }
    for (const auto& [prefix, dtype] :
         {std::pair<std::string_view, DType>{"i32(", DType::kI32}, {"i64(", DType::kI64}}) {
      if (!word.starts_with(prefix) || !word.ends_with(")")) continue;
      const std::string_view inner = word.substr(4, word.size() - 5);
      absl::StatusOr<Expr> value = Expr::Parse(inner, symbols_);
      if (!value.ok()) return At(text.at, WithContext(context + "args", value.status()));
      arg.kind = ArgSpec::Kind::kValue;
      arg.dtype = dtype;
      arg.value = *std::move(value);
      return arg;
    }
    return UnknownArgument(text, context);
  }

  absl::StatusOr<ArgSpec> ResolveRegion(ArgSpec arg, std::string_view name, const Place& at) const {
    std::vector<std::string_view> known;
    for (size_t i = 0; i < program_.regions.size(); ++i) {
      known.push_back(program_.regions[i].name);
      if (known.back() != name) continue;
      arg.kind = ArgSpec::Kind::kWorkspace;
      arg.index = static_cast<int>(i);
      arg.dtype = program_.regions[i].dtype;
      return arg;
    }
    return At(at, UnknownName("workspace", name, known));
  }

  absl::StatusOr<ArgSpec> ResolveTensorMap(ArgSpec arg, std::string_view name,
                                           const Place& at) const {
    std::vector<std::string_view> known;
    for (size_t i = 0; i < program_.tensor_maps.size(); ++i) {
      known.push_back(program_.tensor_maps[i].name);
      if (known.back() != name) continue;
      arg.kind = ArgSpec::Kind::kTensorMap;
      arg.index = static_cast<int>(i);
      arg.dtype = program_.tensor_maps[i].dtype;
      return arg;
    }
    return At(at, UnknownName("tensor map", name, known));
  }

  // Does `arg` give a kernel the op's `tensor`?
  bool Reaches(const ArgSpec& arg, int tensor) const {
    if (arg.kind == ArgSpec::Kind::kTensorMap) {
      return program_.tensor_maps[arg.index].tensor == tensor;
    }
    return arg.kind == ArgSpec::Kind::kTensor && arg.index == tensor;
  }

  absl::Status UnknownArgument(const Text& text, const std::string& context) const {
    const std::string& word = text.value;
    const std::string what =
        StrCat(context, "argument ", Quoted(word), " names no tensor of '", op_.name, "'");
    for (const RegionSpec& region : program_.regions) {
      if (region.name == word) {
        return Invalid(text.at, what, StrCat("write \"workspace.", word, "\""));
      }
    }
    Names used;
    AddNames(word, &used);
    const bool value = !used.empty() && std::all_of(used.begin(), used.end(), [&](const auto& n) {
      return symbols_.count(n) > 0;
    });
    if (value)
      return Invalid(text.at, what, StrCat("write \"i32(", word, ")\" or \"i64(", word, ")\""));
    std::vector<std::string_view> known;
    for (int i = 0; i < op_.tensor_count(); ++i) known.push_back(op_.tensor(i).name);
    return Invalid(text.at, what,
                   StrCat(SuggestNames(word, known),
                          "; or workspace.NAME, tensor_map.NAME, i32(...), i64(...)"));
  }

  // A kernel set that never touches an output cannot be right for any input.
  absl::Status CheckOutputs() const {
    for (size_t i = 0; i < op_.outputs.size(); ++i) {
      const int tensor = static_cast<int>(op_.inputs.size() + i);
      const bool written = std::any_of(
          program_.kernels.begin(), program_.kernels.end(), [&](const KernelSpec& kernel) {
            return std::any_of(kernel.args.begin(), kernel.args.end(),
                               [&](const ArgSpec& arg) { return Reaches(arg, tensor); });
          });
      if (written) continue;
      return Invalid(manifest_.at,
                     StrCat("no kernel takes the op's output '", op_.outputs[i].name, "'"),
                     "pass it to the kernel that writes it");
    }
    return absl::OkStatus();
  }

  const Manifest& manifest_;
  const OpSpec& op_;
  absl::Span<const Tunable> tunables_;
  SymbolTable symbols_;
  PlanProgram program_;
};

}  // namespace

absl::StatusOr<PlanProgram> BuildPlan(const Manifest& manifest, const OpSpec& op,
                                      absl::Span<const Tunable> tunables) {
  return PlanBuilder(manifest, op, tunables).Build();
}

}  // namespace kvr::bundle
