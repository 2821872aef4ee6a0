// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/inputs.h"

#include <algorithm>
#include <cstring>

#include "core/status.h"
#include "core/strings.h"
#include "core/thread.h"
#include "registry/opt_in.h"

namespace kvr {
namespace {

constexpr size_t kLarge = size_t{16} << 20;  // bytes of a tensor whose memory is worth keeping

void Clear(unsigned char* bytes, size_t size, int threads) {
  constexpr size_t kPart = size_t{8} << 20;
  InParallel((size + kPart - 1) / kPart, threads, [&](size_t part) {
    std::memset(bytes + part * kPart, 0, std::min(kPart, size - part * kPart));
  });
}

}  // namespace

bool InputMemory::Reserve(size_t size) {
  if (size <= capacity_) return true;
  auto* const grown = static_cast<unsigned char*>(std::realloc(bytes_.get(), size));
  if (grown == nullptr) return false;
  static_cast<void>(bytes_.release());
  bytes_.reset(grown);
  capacity_ = size;
  return true;
}

void InputSets::Say(std::string_view what, const Operation& op) const {
  if (doing_ == nullptr) return;
  const std::string origin = op.Origin();
  doing_(StrCat(what, " operation ", op.spec().name, origin.empty() ? "" : " of ", origin));
}

void InputSets::Forget(bool same_op) {
  spare_.clear();
  for (std::shared_ptr<InputSet>& set : sets_) {
    if (!same_op || set.use_count() > 1) continue;
    for (InputMemory& memory : set->storage) {
      if (memory.capacity() >= kLarge) spare_.push_back(std::move(memory));
    }
  }
  sets_.clear();
  own_.clear();
}

// What a generator leaves out is then the same on every run.
absl::StatusOr<InputMemory> InputSets::Zeros(size_t size) {
  InputMemory memory;
  if (size >= kLarge && !spare_.empty()) {
    // The smallest that is large enough, else the largest.
    const auto fits = [&](const InputMemory& spare) { return spare.capacity() >= size; };
    const auto found = std::min_element(
        spare_.begin(), spare_.end(), [&](const InputMemory& a, const InputMemory& b) {
          if (fits(a) != fits(b)) return fits(a);
          return fits(a) ? a.capacity() < b.capacity() : a.capacity() > b.capacity();
        });
    memory = std::move(*found);
    spare_.erase(found);
  }
  if (!memory.Reserve(size)) {
    return Error(absl::StatusCode::kResourceExhausted,
                 StrCat("insufficient memory on the host: ", size, " bytes for an input"),
                 "choose smaller axes");
  }
  Clear(memory.get(), size, threads_);
  return memory;
}

absl::StatusOr<InputSetPtr> InputSets::Get(const Operation& op, const AxisVector& axes,
                                           uint64_t seed) {
  const OpSpec& spec = op.spec();
  if (spec.name != op_ || axes != axes_) {
    Forget(/*same_op=*/spec.name == op_);
    op_ = spec.name;
    axes_ = axes;
  }
  for (const std::shared_ptr<InputSet>& set : sets_) {
    if (set->seed == seed) return InputSetPtr(set);
  }
  auto set = std::make_shared<InputSet>();
  set->seed = seed;
  set->inputs = TensorShapes(spec, axes);
  set->inputs.resize(spec.inputs.size());
  for (TensorView& view : set->inputs) {
    const auto bytes = static_cast<size_t>(std::max<int64_t>(view.bytes(), 1));
    KVR_ASSIGN_OR_RETURN(set->storage.emplace_back(), Zeros(bytes));
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
