// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/variants/rig.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "tuner/compare.h"

namespace kvr {

absl::StatusOr<std::unique_ptr<Rig>> Rig::Create(const OpSpec& op, PreparedPtr prepared,
                                                 const AxisVector& axes, WorkspaceLayout layout) {
  std::unique_ptr<Rig> rig(new Rig(op, std::move(prepared)));
  KVR_RETURN_IF_ERROR(rig->prepared_->Plan(axes, &rig->plan_));
  rig->tensors_ = TensorShapes(op, axes);
  for (int i = 0; i < op.tensor_count(); ++i) {
    const bool input = i < static_cast<int>(op.inputs.size());
    rig->sizes_.push_back(rig->tensors_[i].rank == 0 ? 0 : rig->tensors_[i].bytes());
    rig->names_.push_back(StrCat(input ? "input " : "output ", op.tensor(i).name));
  }
  const std::vector<RegionSpec>& regions = rig->prepared_->variant().plan.regions;
  const int first = op.tensor_count();
  if (layout == WorkspaceLayout::kExact) {
    rig->sizes_.push_back(rig->plan_.workspace_bytes);
    rig->names_.push_back("workspace");
  } else {
    for (size_t r = 0; r < regions.size(); ++r) {
      rig->sizes_.push_back(rig->plan_.region_bytes[r]);
      rig->names_.push_back(StrCat("workspace ", regions[r].name));
    }
  }
  KVR_ASSIGN_OR_RETURN(rig->arena_,
                       Arena::Create(rig->device(), rig->budget_, rig->sizes_, kFenceBytes));
  if (rig->sizes_.size() > static_cast<size_t>(first)) rig->workspace_ = rig->arena_->at(first);
  for (size_t r = 0; layout == WorkspaceLayout::kFenced && r < regions.size(); ++r) {
    rig->plan_.region_offset[r] =
        rig->arena_->offset(first + static_cast<int>(r)) - rig->arena_->offset(first);
  }
  for (int i = 0; i < first; ++i) {
    if (rig->tensors_[i].rank > 0) rig->tensors_[i].data = rig->arena_->at(i);
  }
  KVR_RETURN_IF_ERROR(rig->arena_->FillAll({}));
  KVR_RETURN_IF_ERROR(rig->device().Synchronize({}));
  return rig;
}

absl::Status Rig::Upload(const InputSetPtr& set, Stream stream) {
  uploaded_ = set;
  for (size_t i = 0; i < op_.inputs.size(); ++i) {
    if (tensors_[i].rank == 0) {
      tensors_[i].data = set->inputs[i].data;
    } else if (sizes_[i] > 0) {
      KVR_RETURN_IF_ERROR(
          device().CopyToDevice(tensors_[i].data, set->inputs[i].data, sizes_[i], stream));
    }
  }
  return absl::OkStatus();
}

absl::Status Rig::Fill(size_t first, size_t last, uint8_t byte, Stream stream) {
  for (size_t i = first; i < last; ++i) {
    if (sizes_[i] == 0) continue;
    KVR_RETURN_IF_ERROR(
        device().MemsetAsync(arena_->at(static_cast<int>(i)), byte, sizes_[i], stream));
  }
  return absl::OkStatus();
}

absl::Status Rig::FillInputs(uint8_t byte, Stream stream) {
  return Fill(0, op_.inputs.size(), byte, stream);
}

absl::Status Rig::FillOutputs(uint8_t byte, Stream stream) {
  return Fill(op_.inputs.size(), tensors_.size(), byte, stream);
}

absl::Status Rig::FillWorkspace(uint8_t byte, Stream stream) {
  return Fill(tensors_.size(), sizes_.size(), byte, stream);
}

absl::Status Rig::Launch(Stream stream) {
  return prepared_->Launch(plan_, tensors_, workspace_, stream);
}

absl::Status Rig::CopyOutputs(std::vector<Bytes>* outputs, Stream stream) {
  outputs->resize(op_.outputs.size());
  for (size_t o = 0; o < op_.outputs.size(); ++o) {
    const size_t i = op_.inputs.size() + o;
    (*outputs)[o].resize(static_cast<size_t>(sizes_[i]));
    if (sizes_[i] == 0) continue;
    KVR_RETURN_IF_ERROR(
        device().CopyToHost((*outputs)[o].data(), tensors_[i].data, sizes_[i], stream));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Bytes>> Rig::Run(const InputSetPtr& set, uint8_t outputs,
                                            uint8_t workspace, Stream stream) {
  std::vector<Bytes> results;
  KVR_RETURN_IF_ERROR(FillOutputs(outputs, stream));
  KVR_RETURN_IF_ERROR(FillWorkspace(workspace, stream));
  KVR_RETURN_IF_ERROR(Upload(set, stream));
  KVR_RETURN_IF_ERROR(Launch(stream));
  KVR_RETURN_IF_ERROR(CopyOutputs(&results, stream));
  KVR_RETURN_IF_ERROR(device().Synchronize(stream));
  return results;
}

absl::StatusOr<std::string> Rig::Damage(Stream stream) {
  KVR_ASSIGN_OR_RETURN(const std::string broken, arena_->CheckFences(stream, names_));
  if (!broken.empty()) return StrCat("it writes ", broken);
  for (size_t i = 0; i < op_.inputs.size(); ++i) {
    Bytes now(static_cast<size_t>(sizes_[i]));
    if (now.empty()) continue;
    KVR_RETURN_IF_ERROR(device().CopyToHost(now.data(), tensors_[i].data, sizes_[i], stream));
    KVR_RETURN_IF_ERROR(device().Synchronize(stream));
    if (std::memcmp(now.data(), uploaded_->inputs[i].data, now.size()) != 0) {
      return StrCat("it writes into its ", names_[i]);
    }
  }
  return std::string();
}

std::string Rig::Wrong(const std::vector<Bytes>& outputs,
                       absl::Span<const ReferenceOutput> reference, uint8_t poison) const {
  std::vector<TensorView> views(tensors_.begin() + static_cast<int64_t>(op_.inputs.size()),
                                tensors_.end());
  for (size_t o = 0; o < views.size(); ++o) {
    views[o].data = const_cast<uint8_t*>(outputs[o].data());
  }
  const Comparison comparison = Compare(op_, views, reference, poison);
  if (comparison.status == TrialStatus::kPassed) return "";
  return StrCat(TrialStatusName(comparison.status), ": ", comparison.reason);
}

std::string Difference(const OpSpec& op, const std::vector<Bytes>& a, const std::vector<Bytes>& b) {
  for (size_t o = 0; o < a.size(); ++o) {
    const auto [left, right] = std::mismatch(a[o].begin(), a[o].end(), b[o].begin(), b[o].end());
    if (left == a[o].end()) continue;
    const DType dtype = op.outputs[o].dtype;
    const int64_t element = (left - a[o].begin()) / DTypeSize(dtype);
    return StrCat(op.outputs[o].name, "[", element, "] is ",
                  LoadAsDouble(a[o].data(), dtype, element), ", then ",
                  LoadAsDouble(b[o].data(), dtype, element));
  }
  return "";
}

}  // namespace kvr
