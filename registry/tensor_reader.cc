// SPDX-License-Identifier: Apache-2.0
#include "registry/tensor_reader.h"

#include <cstddef>
#include <cstring>

#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

bool IsEmpty(const TensorView& tensor) { return tensor.elements() == 0; }

}  // namespace

TensorReader::TensorReader(const OpSpec& op) : op_(&op) {
  static_assert(sizeof(TensorView) % 8 == 0 && offsetof(TensorView, shape) % 8 == 0);
  start_.fill(0);
  std::array<int, kMaxAxes> seen_at;
  seen_at.fill(-1);
  for (size_t i = 0; i < op.axes.size(); ++i) {
    start_[i] = op.axes[i].is_const ? op.axes[i].value : op.axes[i].default_value;
  }
  for (int t = 0; t < op.tensor_count(); ++t) {
    const TensorSpec& spec = op.tensor(t);
    Entry& entry = entries_.emplace_back();
    entry.dtype = spec.dtype;
    entry.any_dtype = spec.any_dtype;
    entry.optional = spec.optional;
    entry.rank = static_cast<uint8_t>(spec.axes.size());
    entry.misaligned = spec.axes.empty() ? 0 : static_cast<uint8_t>(DTypeSize(spec.dtype) - 1);
    if (spec.attribute >= 0) {
      attributes_.push_back({static_cast<uint8_t>(t), static_cast<uint8_t>(spec.attribute)});
    }
    for (size_t d = 0; d < spec.axes.size(); ++d) {
      const auto axis = static_cast<size_t>(spec.axes[d]);
      const auto extent = static_cast<uint16_t>(
          (static_cast<size_t>(t) * sizeof(TensorView) + offsetof(TensorView, shape)) / 8 + d);
      entry.axes[d] = static_cast<uint8_t>(axis);
      if (op.axes[axis].is_const) {
        constants_.push_back({extent, op.axes[axis].value});
      } else if (seen_at[axis] >= 0) {
        repeated_.push_back({extent, static_cast<uint16_t>(seen_at[axis])});
      } else {
        first_seen_.push_back({extent, entry.axes[d]});
        seen_at[axis] = extent;
      }
    }
  }
}

bool TensorReader::Matches(absl::Span<const TensorView> tensors, AxisVector* axes,
                           bool* changed) const {
  if (tensors.size() != entries_.size()) return false;
  uintptr_t wrong = 0;
  for (size_t t = 0; t < entries_.size(); ++t) {
    const Entry& entry = entries_[t];
    const TensorView& tensor = tensors[t];
    const auto address = reinterpret_cast<uintptr_t>(tensor.data);
    if (address == 0 && entry.rank > 0) return MatchesWithAbsent(tensors, axes, changed);
    if (entry.any_dtype || (entry.optional && address == 0)) {
      return MatchesWithAbsent(tensors, axes, changed);
    }
    wrong |= static_cast<uintptr_t>(tensor.rank ^ entry.rank) |
             (static_cast<uintptr_t>(tensor.dtype) ^ static_cast<uintptr_t>(entry.dtype)) |
             (address & entry.misaligned);
  }
  if (wrong != 0) return false;
  const auto* const words = reinterpret_cast<const std::byte*>(tensors.data());
  const auto extent = [words](uint16_t at) {
    int64_t value;
    std::memcpy(&value, words + size_t{at} * 8, sizeof value);
    return value;
  };
  int64_t negative = 0, other = 0;
  for (const FirstSeen& first : first_seen_) {
    const int64_t value = extent(first.extent);
    int64_t& axis = (*axes)[first.axis];
    negative |= value;
    other |= value ^ axis;
    axis = value;
  }
  for (const Attribute& attribute : attributes_) {
    const int64_t value =
        AttributeValue(*op_, op_->tensor(attribute.tensor), tensors[attribute.tensor]);
    int64_t& axis = (*axes)[attribute.axis];
    negative |= value;
    other |= value ^ axis;
    axis = value;
  }
  *changed = other != 0;
  for (const Repeated& again : repeated_) {
    if (extent(again.extent) != extent(again.before)) return false;
  }
  for (const Constant& constant : constants_) {
    if (extent(constant.extent) != constant.value) return false;
  }
  return negative >= 0;
}

// One by one: where a tensor is absent, or of any dtype.
bool TensorReader::MatchesWithAbsent(absl::Span<const TensorView> tensors, AxisVector* axes,
                                     bool* changed) const {
  const AxisVector before = *axes;
  if (!AxesFromTensors(*op_, tensors, axes).ok()) return false;
  *changed = before != *axes;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorView& tensor = tensors[i];
    if (tensor.rank == 0) continue;
    const auto address = reinterpret_cast<uintptr_t>(tensor.data);
    if (address == 0 && !entries_[i].optional && !IsEmpty(tensor)) return false;
    if (address % static_cast<uintptr_t>(DTypeSize(tensor.dtype)) != 0) return false;
  }
  return true;
}

absl::Status TensorReader::Explain(absl::Span<const TensorView> tensors) const {
  AxisVector axes;
  KVR_RETURN_IF_ERROR(AxesFromTensors(*op_, tensors, &axes));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& spec = op_->tensor(static_cast<int>(i));
    const TensorView& tensor = tensors[i];
    if (tensor.rank == 0) continue;
    if (tensor.data == nullptr && !spec.optional && !IsEmpty(tensor)) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("tensor '", spec.name, "' of op '", op_->name, "' has no memory"),
                   "give the address of every tensor that is not optional");
    }
    const auto size = static_cast<uintptr_t>(DTypeSize(tensor.dtype));
    if (reinterpret_cast<uintptr_t>(tensor.data) % size != 0) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("tensor '", spec.name, "' of op '", op_->name, "' is not aligned to its ",
                          DTypeName(tensor.dtype), " elements"),
                   "pass memory aligned to the element size");
    }
  }
  return Error(absl::StatusCode::kInternal, StrCat("op '", op_->name, "': tensors refused"),
               "report this with the op's definition");
}

}  // namespace kvr
