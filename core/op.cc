// SPDX-License-Identifier: Apache-2.0
#include "core/op.h"

#include <algorithm>

#include "core/expr.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

std::vector<std::string_view> AxisNames(const OpSpec& op) {
  std::vector<std::string_view> names;
  for (const AxisSpec& axis : op.axes) names.push_back(axis.name);
  return names;
}

SymbolTable AxisSymbols(const OpSpec& op) {
  SymbolTable symbols;
  for (size_t i = 0; i < op.axes.size(); ++i) symbols[op.axes[i].name] = static_cast<int>(i);
  return symbols;
}

absl::Status CheckConstraints(const OpSpec& op, const AxisVector& axes) {
  const SymbolTable symbols = AxisSymbols(op);
  for (const std::string& text : op.constraints) {
    KVR_ASSIGN_OR_RETURN(Expr constraint, Expr::Parse(text, symbols));
    KVR_ASSIGN_OR_RETURN(int64_t value, constraint.Eval(axes));
    if (value == 0) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("op '", op.name, "' requires ", text, ", not met by ",
                          AxesText(NamedAxes(op, axes))),
                   "choose axes that meet it");
    }
  }
  return absl::OkStatus();
}

// Errors of the launch path, apart so that the loop above them stays small.
absl::Status WrongTensorCount(const OpSpec& op, size_t given) {
  std::vector<std::string_view> names;
  for (int i = 0; i < op.tensor_count(); ++i) names.push_back(op.tensor(i).name);
  return Error(absl::StatusCode::kInvalidArgument,
               StrCat("op '", op.name, "' is given ", given, " tensors, not ", op.tensor_count()),
               StrCat("give inputs, then outputs: ", StrJoin(names, ", ")));
}

std::string SpecShape(const OpSpec& op, const TensorSpec& spec) {
  const std::string_view dtype = spec.any_dtype ? "any dtype" : DTypeName(spec.dtype);
  if (spec.is_scalar) return StrCat(dtype, " of rank 0");
  std::vector<std::string_view> names;
  for (int axis : spec.axes) names.push_back(op.axes[axis].name);
  return StrCat(dtype, "[", StrJoin(names, ", "), "]");
}

absl::Status WrongTensor(const OpSpec& op, const TensorSpec& spec, const TensorView& tensor) {
  return Error(absl::StatusCode::kInvalidArgument,
               StrCat("tensor '", spec.name, "' of op '", op.name, "' is ", DTypeName(tensor.dtype),
                      "[", StrJoin(tensor.dims(), ", "), "]"),
               StrCat("give ", SpecShape(op, spec)));
}

absl::Status WrongExtent(const OpSpec& op, const TensorSpec& spec, int dimension, int64_t extent,
                         const AxisSpec& axis, int64_t expected) {
  std::string what = StrCat("tensor '", spec.name, "' of op '", op.name, "' has ", axis.name, " = ",
                            extent, " at dimension ", dimension);
  if (extent < 0) return Error(absl::StatusCode::kInvalidArgument, what, "extents are 0 or more");
  return Error(absl::StatusCode::kInvalidArgument, what,
               axis.is_const
                   ? StrCat(axis.name, " is ", expected, " in this op")
                   : StrCat(axis.name, " is ", expected, " in a tensor before: make them agree"));
}

absl::Status NegativeAttribute(const OpSpec& op, const TensorSpec& spec, int64_t value) {
  return Error(absl::StatusCode::kInvalidArgument,
               StrCat("attribute '", spec.name, "' of op '", op.name, "' is ", value),
               "give an integer that is not negative");
}

}  // namespace

int OpSpec::AxisIndex(std::string_view axis) const {
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].name == axis) return static_cast<int>(i);
  return -1;
}

int OpSpec::TensorIndex(std::string_view tensor_name) const {
  for (int i = 0; i < tensor_count(); ++i)
    if (tensor(i).name == tensor_name) return i;
  return -1;
}

void OpSpec::LinkAttributes() {
  for (TensorSpec& input : inputs) {
    if (!input.is_scalar || (input.dtype != DType::kI32 && input.dtype != DType::kI64)) continue;
    const int axis = AxisIndex(input.name);
    if (axis < 0 || axes[axis].is_const) continue;
    bool carried = false;
    for (int i = 0; i < tensor_count(); ++i) {
      const std::vector<int>& shape = tensor(i).axes;
      carried |= std::find(shape.begin(), shape.end(), axis) != shape.end();
    }
    if (carried) continue;
    input.attribute = axis;
    input.scalar_default = static_cast<double>(axes[axis].default_value);
  }
}

const TensorSpec& OpSpec::tensor(int index) const {
  const size_t i = static_cast<size_t>(index);
  return i < inputs.size() ? inputs[i] : outputs[i - inputs.size()];
}

absl::StatusOr<AxisVector> ResolveAxes(const OpSpec& op, const Axes& given) {
  AxisVector result{};
  for (size_t i = 0; i < op.axes.size(); ++i) {
    result[i] = op.axes[i].is_const ? op.axes[i].value : op.axes[i].default_value;
  }
  for (const auto& [name, value] : given) {
    int index = op.AxisIndex(name);
    if (index < 0) {
      return WithContext(StrCat("op '", op.name, "'"), UnknownName("axis", name, AxisNames(op)));
    }
    const AxisSpec& axis = op.axes[index];
    if (axis.is_const && value != axis.value) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("axis '", name, "' is ", value, ", but op '", op.name, "' fixes it"),
                   StrCat("leave it out, or give ", name, "=", axis.value));
    }
    if (value < 0) {
      return Error(
          absl::StatusCode::kInvalidArgument, StrCat("axis '", name, "' is ", value),
          StrCat("give an integer that is not negative, as in ", name, "=", axis.default_value));
    }
    result[index] = value;
  }
  KVR_RETURN_IF_ERROR(CheckConstraints(op, result));
  return result;
}

Axes NamedAxes(const OpSpec& op, const AxisVector& axes) {
  Axes named;
  for (size_t i = 0; i < op.axes.size(); ++i) named[op.axes[i].name] = axes[i];
  return named;
}

std::vector<TensorView> TensorShapes(const OpSpec& op, const AxisVector& axes) {
  std::vector<TensorView> shapes;
  for (int i = 0; i < op.tensor_count(); ++i) {
    const TensorSpec& spec = op.tensor(i);
    TensorView view;
    view.dtype = spec.dtype;
    view.rank = static_cast<int>(spec.axes.size());
    for (int d = 0; d < view.rank; ++d) view.shape[d] = axes[spec.axes[d]];
    shapes.push_back(view);
  }
  return shapes;
}

int64_t AttributeValue(const OpSpec& op, const TensorSpec& spec, const TensorView& tensor) {
  if (tensor.data == nullptr) return op.axes[spec.attribute].default_value;
  if (spec.dtype == DType::kI64) return *static_cast<const int64_t*>(tensor.data);
  return *static_cast<const int32_t*>(tensor.data);
}

absl::Status AxesFromTensors(const OpSpec& op, absl::Span<const TensorView> tensors,
                             AxisVector* axes) {
  if (tensors.size() != static_cast<size_t>(op.tensor_count())) {
    return WrongTensorCount(op, tensors.size());
  }
  uint32_t known = 0, absent = 0;  // bit i: axis i
  static_assert(kMaxAxes <= 32);
  axes->fill(0);
  for (size_t i = 0; i < op.axes.size(); ++i) {
    if (!op.axes[i].is_const) continue;
    (*axes)[i] = op.axes[i].value;
    known |= 1u << i;
  }
  for (size_t t = 0; t < tensors.size(); ++t) {
    const TensorSpec& spec = op.tensor(static_cast<int>(t));
    const TensorView& tensor = tensors[t];
    if (spec.optional && tensor.data == nullptr) {
      for (int axis : spec.axes) absent |= 1u << axis;
      continue;
    }
    if ((tensor.dtype != spec.dtype && !spec.any_dtype) ||
        tensor.rank != static_cast<int>(spec.axes.size())) {
      return WrongTensor(op, spec, tensor);
    }
    for (int d = 0; d < tensor.rank; ++d) {
      const int axis = spec.axes[d];
      const int64_t extent = tensor.shape[d];
      const bool seen = known & (1u << axis);
      if (extent < 0 || (seen && (*axes)[axis] != extent)) {
        return WrongExtent(op, spec, d, extent, op.axes[axis], (*axes)[axis]);
      }
      (*axes)[axis] = extent;
      known |= 1u << axis;
    }
    if (spec.attribute >= 0) {
      const int64_t value = AttributeValue(op, spec, tensor);
      if (value < 0) return NegativeAttribute(op, spec, value);
      (*axes)[spec.attribute] = value;
      known |= 1u << spec.attribute;
    }
  }
  for (size_t i = 0; i < op.axes.size(); ++i) {
    if (!((known | absent) & (1u << i))) (*axes)[i] = op.axes[i].default_value;
  }
  return absl::OkStatus();
}

}  // namespace kvr
