// SPDX-License-Identifier: Apache-2.0
#include "registry/tensor_reader.h"

#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

constexpr int64_t kUnknown = -1;  // no extent is negative

bool IsEmpty(const TensorView& tensor) { return tensor.elements() == 0; }

}  // namespace

TensorReader::TensorReader(const OpSpec& op) : op_(&op) {
  start_.fill(0);
  uint32_t sure = 0;  // bit i: axis i is constant, or on a tensor that is always there
  for (size_t i = 0; i < op.axes.size(); ++i) {
    start_[i] = op.axes[i].is_const ? op.axes[i].value : kUnknown;
    if (op.axes[i].is_const) sure |= 1u << i;
  }
  for (int t = 0; t < op.tensor_count(); ++t) {
    const TensorSpec& spec = op.tensor(t);
    Entry& entry = entries_.emplace_back();
    entry.dtype = spec.dtype;
    entry.any_dtype = spec.any_dtype;
    entry.optional = spec.optional;
    entry.rank = static_cast<uint8_t>(spec.axes.size());
    entry.misaligned = static_cast<uint8_t>(DTypeSize(spec.dtype) - 1);
    for (size_t d = 0; d < spec.axes.size(); ++d) {
      entry.axes[d] = static_cast<uint8_t>(spec.axes[d]);
      if (!spec.optional) sure |= 1u << spec.axes[d];
    }
  }
  may_lack_ = sure != (uint32_t{1} << op.axes.size()) - 1;
}

bool TensorReader::Matches(absl::Span<const TensorView> tensors, AxisVector* axes) const {
  if (tensors.size() != entries_.size()) return false;
  *axes = start_;
  uint32_t absent = 0;
  bool wrong = false;
  for (size_t t = 0; t < entries_.size(); ++t) {
    const Entry& entry = entries_[t];
    const TensorView& tensor = tensors[t];
    if (tensor.data == nullptr && entry.optional) {
      for (int d = 0; d < entry.rank; ++d) absent |= 1u << entry.axes[d];
      continue;
    }
    if (tensor.rank != entry.rank || (tensor.dtype != entry.dtype && !entry.any_dtype)) {
      return false;
    }
    for (int d = 0; d < entry.rank; ++d) {
      const int64_t extent = tensor.shape[d];
      int64_t& axis = (*axes)[entry.axes[d]];
      wrong |= (extent != axis && axis != kUnknown) || extent < 0;
      axis = extent;
    }
    if (entry.rank == 0) continue;  // a scalar's value may be anywhere, and absent
    const auto address = reinterpret_cast<uintptr_t>(tensor.data);
    const auto misaligned = entry.any_dtype ? static_cast<uintptr_t>(DTypeSize(tensor.dtype) - 1)
                                            : uintptr_t{entry.misaligned};
    wrong |= (address & misaligned) != 0;
    if (address == 0 && !IsEmpty(tensor)) return false;
  }
  if (wrong) return false;
  if (may_lack_) {
    for (size_t i = 0; i < op_->axes.size(); ++i) {
      if ((*axes)[i] != kUnknown) continue;
      (*axes)[i] = (absent >> i & 1) != 0 ? 0 : op_->axes[i].default_value;
    }
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
