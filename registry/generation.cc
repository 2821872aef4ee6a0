// SPDX-License-Identifier: Apache-2.0
#include "registry/generation.h"

#include <algorithm>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "registry/digest.h"

namespace kvr {
namespace {

Fingerprint DigestOf(const Generation& generation) {
  std::map<std::string, OpIdentity> ops;
  for (const auto& [name, op] : generation.ops()) {
    OpIdentity& identity = ops[name];
    identity.key_policy = op.policy.text();
    for (const auto& [key, selection] : op.selections) {
      const Variant& variant = *selection.variant;
      identity.by_key[AxesText(op.policy.Named(key))] = {
          variant.name, variant.version, variant.fingerprint.Hex(), ConfigText(selection.config),
          selection.binary.Hex()};
    }
  }
  return GenerationDigest(generation.device_model(), generation.target(), ops);
}

}  // namespace

Fingerprint GenerationDigest(const std::string& device_model, const std::string& target,
                             const std::map<std::string, OpIdentity>& ops) {
  Hasher hasher;
  hasher.Field("schema", "kvr-generation-1");
  hasher.Field("device_model", device_model).Field("target", target);
  for (const auto& [name, op] : ops) {
    hasher.Field("op", name).Field("key_policy", op.key_policy);
    for (const auto& [key, selection] : op.by_key) {
      hasher.Field("key", key)
          .Field("variant", selection.variant)
          .Field("version", selection.version)
          .Field("variant_fingerprint", selection.variant_fingerprint)
          .Field("config", selection.config)
          .Field("binary", selection.binary);
    }
  }
  return hasher.Finish();
}

const Generation::Op* Generation::FindOp(std::string_view op) const {
  const auto it = ops_.find(op);
  return it == ops_.end() ? nullptr : &it->second;
}

const Selection* Generation::Find(std::string_view op, const BucketedKey& key) const {
  const Op* found = FindOp(op);
  if (found == nullptr) return nullptr;
  const auto it = found->selections.find(key);
  return it == found->selections.end() ? nullptr : &it->second;
}

GenerationBuilder::GenerationBuilder(std::string device_model, std::string target) {
  generation_.device_model_ = std::move(device_model);
  generation_.target_ = std::move(target);
}

GenerationBuilder::GenerationBuilder(const Generation& base) : generation_(base) {}

void GenerationBuilder::SetPolicy(std::string_view op, KeyPolicy policy) {
  auto it = generation_.ops_.find(op);
  if (it == generation_.ops_.end()) {
    it = generation_.ops_.emplace(std::string(op), Generation::Op{}).first;
  } else if (it->second.policy.text() != policy.text()) {
    it->second.selections.clear();
  }
  it->second.policy = std::move(policy);
}

absl::Status GenerationBuilder::Select(std::string_view op, const BucketedKey& key,
                                       Selection selection) {
  const auto it = generation_.ops_.find(op);
  if (it == generation_.ops_.end()) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat("no key policy set for operation '", op, "'"),
                 "call SetPolicy before Select");
  }
  const std::string place =
      StrCat("selection for ", op, " {", AxesText(it->second.policy.Named(key)), "}");
  if (selection.variant == nullptr || selection.variant->op != op) {
    return Error(
        absl::StatusCode::kInvalidArgument,
        StrCat(place, ": ",
               selection.variant == nullptr ? std::string("no variant")
                                            : StrCat("variant '", selection.variant->name,
                                                     "' implements ", selection.variant->op)),
        StrCat("select a variant of ", op));
  }
  if (selection.overridden) {
    return Error(absl::StatusCode::kFailedPrecondition, StrCat(place, ": an override decided it"),
                 "tune without --set, KVR_FORCE_… and KVR_<OP>_… to store a selection");
  }
  if (absl::Status status = CheckConfig(selection.config, selection.variant->tunables);
      !status.ok()) {
    return WithContext(place, status);
  }
  if (std::string reason; !selection.variant->Supports(generation_.target_, &reason)) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat(place, ": variant '", selection.variant->name, "' does not run on ",
                        generation_.target_, ": ", reason),
                 "select a variant that supports the target");
  }
  it->second.selections.insert_or_assign(key, std::move(selection));
  return absl::OkStatus();
}

void GenerationBuilder::Remove(std::string_view op, const BucketedKey& key) {
  const auto it = generation_.ops_.find(op);
  if (it != generation_.ops_.end()) it->second.selections.erase(key);
}

GenerationPtr GenerationBuilder::Build(int64_t number) const {
  auto generation = std::shared_ptr<Generation>(new Generation(generation_));
  generation->number_ = number;
  generation->digest_ = DigestOf(*generation);
  return generation;
}

std::vector<std::pair<BucketedKey, const Selection*>> Sorted(const Generation::Op& op) {
  std::vector<std::pair<BucketedKey, const Selection*>> sorted;
  sorted.reserve(op.selections.size());
  for (const auto& [key, selection] : op.selections) sorted.emplace_back(key, &selection);
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.first.values < b.first.values; });
  return sorted;
}

}  // namespace kvr
