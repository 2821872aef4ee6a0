// SPDX-License-Identifier: Apache-2.0
//
// What kvr tune works on: the keys that the shapes fall into, and for each the configs that are
// worth building and measuring.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "tuner/feasibility.h"
#include "tuner/rejections.h"
#include "tuner/tuner.h"

namespace kvr {

// A key stands for shapes that are never measured, and a launch at any of them takes what is
// selected. So every candidate is also verified at the shapes asked for (of several, as a range
// gives them, the first and the last), and at an awkward member of the bucket: one below the
// representative, which tiles rarely divide, with a handful of whatever the key does not hold, so
// that generators can mix full, part-filled and empty rows. Each axis goes there that can: the
// bucket may have one value of it, or the operation's constraints tie it to others.
void Tuner::AddProofs(const std::vector<AxisVector>& asked, Key& key) {
  constexpr int64_t kMixed = 8;
  const OpSpec& spec = work_.op->spec();
  const Axes keyed = policy_->Named(key.bucket);
  const auto covered = [&](const AxisVector& shape) {
    return policy_->Bucket(shape) == key.bucket && ResolveAxes(spec, NamedAxes(spec, shape)).ok();
  };
  std::vector<AxisVector> shapes = asked;
  if (shapes.size() > 2) shapes = {asked.front(), asked.back()};
  AxisVector awkward = asked.front();
  for (size_t i = 0; i < spec.axes.size(); ++i) {
    const AxisSpec& axis = spec.axes[i];
    if (axis.is_const) continue;
    AxisVector further = awkward;
    if (const auto it = keyed.find(axis.name); it != keyed.end()) {
      further[i] = std::max<int64_t>(it->second - 1, 1);
    } else if (axis.default_value >= kMixed) {
      further[i] = std::max(further[i], kMixed);
    }
    if (covered(further)) awkward = further;
  }
  shapes.push_back(awkward);
  for (const AxisVector& shape : shapes) {
    const auto known = [&](const std::vector<AxisVector>& there) {
      return std::find(there.begin(), there.end(), shape) != there.end();
    };
    if (covered(shape) && !known(key.shapes) && !known(key.proofs)) key.proofs.push_back(shape);
  }
}

// What serves the key's shapes now always takes part, at position 0, unless tunables are pinned:
// then the question is about those configs alone.
void Tuner::AddIncumbent(Key& key) {
  const Selection* selected =
      InFile() == nullptr
          ? nullptr
          : incumbents_->Find(work_.op->name(), InFile()->policy.Bucket(key.shapes.front()));
  if (selected != nullptr) {
    key.not_asked_for = CheckConsent(request_.approximate, *selected->variant, selected->config);
    if (!key.not_asked_for.ok()) selected = nullptr;  // without consent the baseline serves
  }
  key.from_file = selected != nullptr;
  if (selected != nullptr) {
    key.selected = {selected->variant, selected->config};
  } else if (work_.op->baseline != nullptr) {
    key.selected = {work_.op->baseline, DefaultConfig(work_.op->baseline->tunables)};
  }
  const auto present = std::find(key.candidates.begin(), key.candidates.end(), key.selected);
  if (present != key.candidates.end()) {
    std::rotate(key.candidates.begin(), present, present + 1);
    key.incumbent = 0;
  } else if (key.selected.variant != nullptr && !work_.overridden &&
             key.selected.variant->Supports(report_.device.target)) {
    key.candidates.insert(key.candidates.begin(), key.selected);
    key.incumbent = 0;
  }
}

absl::Status Tuner::MakeKeys() {
  const OpSpec& spec = work_.op->spec();
  std::vector<std::vector<AxisVector>> asked;  // by key
  for (const AxisVector& axes : work_.shapes) {
    const BucketedKey bucket = policy_->Bucket(axes);
    auto key =
        std::find_if(keys_.begin(), keys_.end(), [&](const Key& k) { return k.bucket == bucket; });
    if (key == keys_.end()) {
      keys_.emplace_back().bucket = bucket;
      key = keys_.end() - 1;
      asked.emplace_back();
    }
    // Tuned at the bucket's representative, which must be a legal shape itself.
    const AxisVector representative = policy_->Representative(axes);
    KVR_RETURN_IF_ERROR(ResolveAxes(spec, NamedAxes(spec, representative)).status());
    if (std::find(key->shapes.begin(), key->shapes.end(), representative) == key->shapes.end()) {
      key->shapes.push_back(representative);
    }
    asked[static_cast<size_t>(key - keys_.begin())].push_back(axes);
  }
  for (size_t i = 0; i < keys_.size(); ++i) {
    Key& key = keys_[i];
    AddProofs(asked[i], key);
    key.candidates = work_.space.candidates;
    AddIncumbent(key);
    if (!key.not_asked_for.ok()) continue;
    PruneKey(key);
    if (!request_.retest) SkipRejected(key);
  }
  return SkipNotAskedFor();
}

// What the file selects for these keys nothing that is measured here could replace.
absl::Status Tuner::SkipNotAskedFor() {
  std::string refused;
  for (const Key& key : keys_) {
    if (key.not_asked_for.ok()) continue;
    const std::string at = AxesText(policy_->Named(key.bucket));
    Skipped skipped{StrCat("{", at, "}"),
                    StrCat(request_.selection_file, " selects for it what this tune was not asked ",
                           "for: ", What(key.not_asked_for), "; ", Fix(key.not_asked_for))};
    StrAppend(&refused, refused.empty() ? "" : "; ", skipped.variant, ": ", skipped.reason);
    Note(StrCat("skipped: ", skipped.variant, ": ", skipped.reason));
    report_.skipped.push_back(std::move(skipped));
  }
  if (refused.empty()) return absl::OkStatus();
  const size_t all = keys_.size();
  keys_.erase(std::remove_if(keys_.begin(), keys_.end(),
                             [](const Key& key) { return !key.not_asked_for.ok(); }),
              keys_.end());
  if (!keys_.empty() && !Rekeys()) return absl::OkStatus();
  // A file is keyed anew as a whole or not at all.
  return Error(absl::StatusCode::kInvalidArgument,
               StrCat(keys_.empty() ? "no key is left to tune"
                                    : StrCat(all - keys_.size(), " of ", all,
                                             " keys must stay as they are keyed now"),
                      ": ", refused),
               "say so, or name other shapes or another file");
}

// Leaves out what the ledger says was rejected here, but never what is selected, the baseline's
// default, and what was pinned by hand.
void Tuner::SkipRejected(Key& key) {
  if (journal_.ledger() == nullptr || (work_.overridden && !request_.variants.empty())) return;
  const Rejections rejections(*journal_.ledger(), journal_.environment(), work_.op->name(),
                              ModeText(request_.mode));
  const std::vector<Axes> measured = Named(key.shapes), proofs = Named(key.proofs);
  const Variant* baseline = work_.op->baseline.get();
  std::vector<Candidate> kept;
  for (size_t i = 0; i < key.candidates.size(); ++i) {
    const Candidate& candidate = key.candidates[i];
    const bool is_default = candidate.variant.get() == baseline &&
                            candidate.config == DefaultConfig(candidate.variant->tunables);
    if (static_cast<int>(i) == key.incumbent || is_default) {
      kept.push_back(candidate);
      continue;
    }
    const auto rejected = rejections.Find(candidate, measured, proofs);
    if (!rejected.ok()) {  // a ledger that cannot be read rejects nothing
      journal_.Report(rejected.status());
      return;
    }
    if (rejected->has_value()) {
      report_.rejected.push_back({candidate.variant->name, candidate.config, (*rejected)->status,
                                  (*rejected)->reason, (*rejected)->time, measured.front()});
      if (std::isfinite((*rejected)->behind))
        key.behind.push_back({candidate, (*rejected)->behind});
    } else {
      kept.push_back(candidate);
    }
  }
  key.candidates = std::move(kept);
}

// Keeps what is feasible at every shape. The incumbent, if feasible, stays at position 0.
void Tuner::PruneKey(Key& key) {
  const Candidate incumbent = key.incumbent == 0 ? key.candidates.front() : Candidate{};
  for (const AxisVector& axes : key.shapes) {
    Feasible feasible = PruneStatically(key.candidates, axes, report_.device);
    if (key.shapes.size() > 1) {
      // With several shapes, equal plans at one of them are no reason to leave a config out.
      std::vector<Candidate> kept;
      for (const Candidate& candidate : key.candidates) {
        LaunchPlan plan;
        const absl::Status fits =
            CheckPlan(*candidate.variant, candidate.config, axes, report_.device, &plan);
        if (fits.ok()) {
          kept.push_back(candidate);
        } else {
          Drop(candidate, axes, Reason(fits), !IsMisfit(fits));
        }
      }
      key.candidates = std::move(kept);
      continue;
    }
    for (const Pruned& pruned : feasible.pruned) {
      Drop(pruned.candidate, axes, pruned.reason, pruned.fault);
    }
    key.candidates = std::move(feasible.candidates);
  }
  if (key.candidates.empty() || !(key.candidates.front() == incumbent)) key.incumbent = -1;
}

// After the compile: drops what failed, what does not fit with its real registers, and what turns
// out to be an earlier candidate's very binary under the same plans.
void Tuner::DropRepeats(Key& key) {
  const Candidate incumbent = key.incumbent == 0 ? key.candidates.front() : Candidate{};
  std::vector<Candidate> kept;
  std::vector<std::vector<LaunchPlan>> kept_plans;  // [candidate][shape]
  std::vector<Fingerprint> kept_keys;               // of their binaries
  for (const Candidate& candidate : key.candidates) {
    const absl::StatusOr<Built>& built = BuiltOf(candidate);
    if (absl::IsDeadlineExceeded(built.status())) continue;  // Build has said so
    if (!built.ok()) {
      for (const AxisVector& axes : key.shapes) {
        Fail(candidate, axes, TrialStatus::kCompileError, Reason(built.status()));
      }
      continue;
    }
    std::vector<LaunchPlan> plans(key.shapes.size());
    absl::Status fits;
    size_t shape = 0;
    for (; shape < key.shapes.size() && fits.ok(); ++shape) {
      fits = CheckPlan(*candidate.variant, candidate.config, key.shapes[shape], report_.device,
                       &plans[shape]);
      if (fits.ok()) {
        fits = CheckResources(*candidate.variant, plans[shape], *built->binary, report_.device);
      }
    }
    if (!fits.ok()) {
      Drop(candidate, key.shapes[shape - 1], Reason(fits), !IsMisfit(fits));
      continue;
    }
    const auto same = [&](size_t i) {
      return !candidate.variant->has_launch_function && kept_keys[i] == built->binary->key &&
             std::equal(plans.begin(), plans.end(), kept_plans[i].begin(), SamePlan);
    };
    size_t repeat = 0;
    while (repeat < kept.size() && !same(repeat)) ++repeat;
    if (repeat < kept.size()) {
      Prune(candidate, key.shapes.front(),
            StrCat("same binary and plan as ", CandidateText(kept[repeat])));
      continue;
    }
    kept.push_back(candidate);
    kept_plans.push_back(std::move(plans));
    kept_keys.push_back(built->binary->key);
  }
  key.candidates = std::move(kept);
  if (key.candidates.empty() || !(key.candidates.front() == incumbent)) key.incumbent = -1;
}

}  // namespace kvr
