// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/inputs.h"

#include <algorithm>

#include "core/status.h"
#include "core/strings.h"
#include "registry/opt_in.h"

namespace kvr {

void InputSets::Say(std::string_view what, const Operation& op) const {
  if (doing_ == nullptr) return;
  const std::string origin = op.Origin();
  doing_(StrCat(what, " operation ", op.spec().name, origin.empty() ? "" : " of ", origin));
}

absl::StatusOr<InputSetPtr> InputSets::Get(const Operation& op, const AxisVector& axes,
                                           uint64_t seed) {
  const OpSpec& spec = op.spec();
  if (spec.name != op_ || axes != axes_) {
    sets_.clear();
    own_.clear();
    op_ = spec.name;
    axes_ = axes;
  }
  for (const InputSetPtr& set : sets_) {
    if (set->seed == seed) return set;
  }
  auto set = std::make_shared<InputSet>();
  set->seed = seed;
  set->inputs = TensorShapes(spec, axes);
  set->inputs.resize(spec.inputs.size());
  for (TensorView& view : set->inputs) {
    const auto bytes = static_cast<size_t>(std::max<int64_t>(view.bytes(), 1));
    set->storage.push_back(std::make_unique<unsigned char[]>(bytes));
    view.data = set->storage.back().get();
  }
  Say("loading the code of", op);
  if (absl::Status status = op.Load(); !status.ok()) {
    return WithContext(StrCat("inputs of ", spec.name), status);
  }
  Say("generating inputs of", op);
  if (absl::Status status = op.Generate(axes, seed, set->inputs); !status.ok()) {
    return WithContext(StrCat("inputs of ", spec.name), status);
  }
  Say("computing the reference of", op);
  absl::StatusOr<std::vector<ReferenceOutput>> reference =
      op.Reference(axes, set->inputs, threads_);
  if (!reference.ok()) {
    return WithContext(StrCat("reference of ", spec.name), reference.status());
  }
  set->reference = *std::move(reference);
  sets_.push_back(set);
  return InputSetPtr(set);
}

absl::StatusOr<OwnReference> InputSets::Own(const InputSet& set, const Variant& variant,
                                            const Config& config) {
  if (variant.semantics == Semantics::kExact) return OwnReference();
  const std::string key =
      StrCat(set.seed, " ", variant.fingerprint.Hex(), " ", OptInText(OptInFor(variant, config)));
  if (const auto known = own_.find(key); known != own_.end()) return known->second;
  if (variant.code == nullptr) {
    return Error(absl::StatusCode::kInternal,
                 StrCat("variant '", variant.name, "' is approximate and has no code"),
                 "admit approximate variants with a reference function only");
  }
  absl::StatusOr<std::vector<ReferenceOutput>> reference =
      variant.code->Reference(axes_, variant.TunableValues(config), set.inputs, threads_);
  if (!reference.ok()) {
    return WithContext(StrCat("the reference of ", variant.name), reference.status());
  }
  return own_[key] = std::make_shared<const std::vector<ReferenceOutput>>(*std::move(reference));
}

}  // namespace kvr
