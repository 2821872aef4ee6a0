// SPDX-License-Identifier: Apache-2.0
//
// What a tune's keys are: the key policy it is under, and which variants take part under it.
//
// A variant that brings a key policy of its own takes part under that one alone. So a tune that
// says nothing of policies stays what it was when such a variant is admitted.
#include <algorithm>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "tuner/tuner.h"

namespace kvr {

// What was asked for; else what the variants that were asked for bring; else the selection file's;
// else the op's.
absl::Status Tuner::ChoosePolicy() {
  if (!request_.key_policy.empty()) {
    KVR_ASSIGN_OR_RETURN(policy_, KeyPolicy::Parse(request_.key_policy, work_.op->spec()));
    return absl::OkStatus();
  }
  policy_.reset();
  std::string whose;
  for (const std::string& name : request_.variants) {
    KVR_ASSIGN_OR_RETURN(const VariantPtr variant, bench_.catalog.Find(request_.op, name));
    if (variant->key_policy.empty()) continue;
    KVR_ASSIGN_OR_RETURN(KeyPolicy brought, bench_.catalog.PolicyOf(*variant));
    if (policy_.has_value() && policy_->text() != brought.text()) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("'", whose, "' and '", name, "' bring different key policies, ",
                          policy_->text(), " and ", brought.text()),
                   "tune one at a time, or say with --key-policy which it is to be");
    }
    policy_ = std::move(brought);
    whose = name;
  }
  if (policy_.has_value()) return absl::OkStatus();
  policy_ = InFile() != nullptr ? InFile()->policy : work_.op->policy;
  return absl::OkStatus();
}

absl::Status Tuner::SkipOtherPolicies() {
  std::vector<Candidate>& candidates = work_.space.candidates;
  const bool any = !candidates.empty();
  for (const VariantPtr& variant : work_.op->variants) {
    const auto its = [&](const Candidate& candidate) { return candidate.variant == variant; };
    if (variant->key_policy.empty() || std::none_of(candidates.begin(), candidates.end(), its)) {
      continue;
    }
    KVR_ASSIGN_OR_RETURN(const KeyPolicy brought, bench_.catalog.PolicyOf(*variant));
    if (brought.text() == policy_->text()) continue;
    std::erase_if(candidates, its);
    report_.skipped.push_back(
        {variant->name,
         StrCat("it is tuned under its own key policy alone: `kvr tune ", work_.op->name(),
                " --variant ", variant->name, "` tunes under ", brought.text())});
  }
  if (!any || !candidates.empty()) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument,
               StrCat("nothing takes part in a tune under the key policy ", policy_->text()),
               StrCat("'", report_.skipped.back().variant, "': ", report_.skipped.back().reason));
}

}  // namespace kvr
