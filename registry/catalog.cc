// SPDX-License-Identifier: Apache-2.0
#include "registry/catalog.h"

#include <algorithm>
#include <utility>

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

bool BaselineThenName(const VariantPtr& a, const VariantPtr& b) {
  if (a->is_baseline != b->is_baseline) return a->is_baseline;
  return a->name < b->name;
}

// What an unknown name may be for: " (1 bundle was refused: `kvr list` says why)".
std::string Refused(size_t count) {
  if (count == 0) return "";
  return StrCat(" (", count, count == 1 ? " bundle was" : " bundles were",
                " refused: `kvr list` says why)");
}

}  // namespace

absl::StatusOr<Catalog> Catalog::Create(std::vector<std::unique_ptr<Operation>> operations) {
  Catalog catalog;
  for (std::unique_ptr<Operation>& operation : operations) {
    const OpSpec& spec = operation->spec();
    if (catalog.FindOp(spec.name).ok()) {
      return Error(absl::StatusCode::kAlreadyExists,
                   StrCat("operation '", spec.name, "' is defined twice"), "rename one of the two");
    }
    absl::StatusOr<KeyPolicy> policy = KeyPolicy::Parse(spec.key_policy, spec);
    if (!policy.ok()) {
      return WithContext(StrCat("default key policy of operation '", spec.name, "'"),
                         policy.status());
    }
    auto op = std::make_unique<Op>();
    op->policy = *std::move(policy);
    op->operation = std::move(operation);
    op->index = static_cast<int>(catalog.ops_.size());
    catalog.ops_.push_back(std::move(op));
  }
  return catalog;
}

void Catalog::Add(Scan scan) {
  for (Rejection& rejection : scan.rejections) Reject(std::move(rejection));
  for (VariantPtr& variant : scan.variants) {
    const std::string where =
        variant->directory.empty() ? StrCat(variant->op, "/", variant->name) : variant->directory;
    if (absl::Status status = Admit(std::move(variant)); !status.ok()) {
      Reject({where, std::move(status)});
    }
  }
}

absl::Status Catalog::Admit(VariantPtr variant) {
  KVR_ASSIGN_OR_RETURN(const Op* found, FindOp(variant->op));
  Op& op = *ops_[found->index];
  const std::string name = StrCat(variant->op, "/", variant->name);
  for (const VariantPtr& other : op.variants) {
    if (other->name != variant->name) continue;
    return Error(absl::StatusCode::kAlreadyExists,
                 StrCat("variant ", name, " exists already, from ",
                        other->directory.empty() ? other->plugin : other->directory),
                 "give this one another name");
  }
  if (variant->is_baseline) {
    if (op.baseline != nullptr) {
      return Error(absl::StatusCode::kAlreadyExists,
                   StrCat("variant ", name, " says it is the baseline, but ", op.name(),
                          " has one: '", op.baseline->name, "'"),
                   "remove `baseline = true`");
    }
    if (variant->semantics != Semantics::kExact) {
      return Error(absl::StatusCode::kInvalidArgument, StrCat("baseline ", name, " is approximate"),
                   "a baseline is the fallback of every miss: it must have semantics = \"exact\"");
    }
  }
  if (absl::StatusOr<KeyPolicy> policy = PolicyOf(*variant); !policy.ok()) {
    return WithContext(StrCat("key policy of variant ", name), policy.status());
  }
  if (variant->is_baseline) op.baseline = variant;
  const auto at =
      std::upper_bound(op.variants.begin(), op.variants.end(), variant, BaselineThenName);
  op.variants.insert(at, std::move(variant));
  return absl::OkStatus();
}

std::vector<const OpSpec*> Catalog::specs() const {
  std::vector<const OpSpec*> specs;
  specs.reserve(ops_.size());
  for (const auto& op : ops_) specs.push_back(&op->spec());
  return specs;
}

absl::StatusOr<const Catalog::Op*> Catalog::FindOp(std::string_view op) const {
  for (const auto& candidate : ops_) {
    if (candidate->name() == op) return candidate.get();
  }
  std::vector<std::string_view> names;
  for (const auto& candidate : ops_) names.push_back(candidate->name());
  return Error(absl::StatusCode::kNotFound, StrCat("no operation '", op, "'"),
               StrCat(SuggestNames(op, names), Refused(rejections_.size())));
}

absl::StatusOr<VariantPtr> Catalog::Find(std::string_view op, std::string_view variant) const {
  KVR_ASSIGN_OR_RETURN(const Op* found, FindOp(op));
  std::vector<std::string_view> names;
  for (const VariantPtr& candidate : found->variants) {
    if (candidate->name == variant) return candidate;
    names.push_back(candidate->name);
  }
  return Error(absl::StatusCode::kNotFound, StrCat("no variant '", variant, "' of ", op),
               StrCat(SuggestNames(variant, names), Refused(rejections_.size())));
}

absl::StatusOr<VariantPtr> Catalog::Baseline(std::string_view op) const {
  KVR_ASSIGN_OR_RETURN(const Op* found, FindOp(op));
  if (found->baseline == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat("operation '", op, "' has no baseline"),
                 "a bundle with `baseline = true` is missing or was refused: `kvr list` says why");
  }
  return found->baseline;
}

absl::StatusOr<KeyPolicy> Catalog::PolicyOf(const Variant& variant) const {
  KVR_ASSIGN_OR_RETURN(const Op* op, FindOp(variant.op));
  if (variant.key_policy.empty()) return op->policy;
  return KeyPolicy::Parse(variant.key_policy, op->spec());
}

}  // namespace kvr
