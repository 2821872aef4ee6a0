// SPDX-License-Identifier: Apache-2.0
//
// One key of kvr tune: what is right goes on to be measured.
#include <algorithm>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "tuner/tuner.h"

namespace kvr {
namespace {

// Behind the first, which stays.
void DefaultsFirst(std::vector<Candidate>& candidates) {
  std::vector<Candidate> sorted(candidates.begin(), candidates.begin() + !candidates.empty());
  for (const bool defaults : {true, false}) {
    for (size_t i = 1; i < candidates.size(); ++i) {
      if (IsDefault(candidates[i]) == defaults) sorted.push_back(candidates[i]);
    }
  }
  candidates = std::move(sorted);
}

}  // namespace

// "no config of 'mine' passed"
std::string Tuner::NoneRequestedPassed() const {
  std::string names;
  for (const std::string& name : request_.variants) {
    StrAppend(&names, names.empty() ? "'" : ", '", name, "'");
  }
  return StrCat("no config of ", names, " passed");
}

// Shape by shape, as inputs and reference are the shape's. Where there is time for some only, those
// that come first (the incumbent, then defaults) go on.
absl::Status Tuner::Verify(Key& key, absl::Time until) {
  const OpSpec& spec = work_.op->spec();
  const Candidate incumbent = key.incumbent == 0 ? key.candidates.front() : Candidate{};
  if (until != absl::InfiniteFuture()) DefaultsFirst(key.candidates);
  std::vector<AxisVector> shapes = key.shapes;
  shapes.insert(shapes.end(), key.proofs.begin(), key.proofs.end());
  size_t unverified = 0;
  for (size_t shape = 0; shape < shapes.size(); ++shape) {
    const AxisVector& axes = shapes[shape];
    const Axes named = NamedAxes(spec, axes);
    const absl::Time now = absl::Now();
    const absl::Time stop =
        until == absl::InfiniteFuture()
            ? until
            : now + std::max(absl::ZeroDuration(), until - now) / (shapes.size() - shape);
    std::vector<Candidate> passed;
    for (size_t i = 0; i < key.candidates.size(); ++i) {
      const Candidate& candidate = key.candidates[i];
      if (i > 0 && absl::Now() >= stop) {
        unverified += key.candidates.size() - i;
        break;
      }
      verifying_->Begin(StrCat(CandidateText(candidate), " at ", AxesText(named)));
      KVR_ASSIGN_OR_RETURN(std::string path, files_->Add(*BuiltOf(candidate)->binary));
      // One input set; whoever is measured is checked on the others under its own launches.
      KVR_ASSIGN_OR_RETURN(const Finding finding,
                           worker_->Verify({spec.name, named, {seeds_.front()}},
                                           ItemOf(candidate, std::move(path))));
      Trial& trial = TrialOf(candidate, axes);
      if (finding.status == TrialStatus::kPassed) {
        passed.push_back(candidate);
        trial.status = TrialStatus::kPassed;
        trial.reason.clear();
      } else {
        Fail(candidate, axes, finding.status, finding.reason);
        ledger::Trial record = RecordOf(candidate, axes, "verify");
        record.status = std::string(TrialStatusName(finding.status));
        record.reason = finding.reason;
        record.outcome = "dropped";
        journal_.Add(std::move(record));
      }
      trial.max_abs = finding.max_abs;
      trial.max_rel = finding.max_rel;
      trial.quality = finding.quality;
      report_.respawns = worker_->respawns();
      verifying_->Done();
    }
    key.candidates = std::move(passed);
  }
  if (unverified > 0) {
    Cut(StrCat(AxesText(policy_->Named(key.bucket)), ": the budget left no time to verify ",
               unverified, unverified == 1 ? " config" : " configs"));
  }
  if (key.candidates.empty() || !(key.candidates.front() == incumbent)) key.incumbent = -1;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<WorkItem>> Tuner::Items(const Key& key) {
  std::vector<WorkItem> items;
  for (const Candidate& candidate : key.candidates) {
    KVR_ASSIGN_OR_RETURN(std::string path, files_->Add(*BuiltOf(candidate)->binary));
    items.push_back(ItemOf(candidate, std::move(path)));
  }
  return items;
}

bool Tuner::AnyRequestedPassed(const Key& key) {
  const std::vector<std::string>& names = request_.variants;
  if (names.empty()) return !key.candidates.empty();
  const Axes first = NamedAxes(work_.op->spec(), key.shapes.front());
  for (const TuneReport::RejectedConfig& config : report_.rejected) {  // right, but slow
    if (config.status == TrialStatusName(TrialStatus::kPassed) && config.axes == first &&
        std::find(names.begin(), names.end(), config.variant) != names.end()) {
      return !key.candidates.empty();
    }
  }
  return std::any_of(key.candidates.begin(), key.candidates.end(), [&](const Candidate& candidate) {
    return std::find(names.begin(), names.end(), candidate.variant->name) != names.end() &&
           std::all_of(key.shapes.begin(), key.shapes.end(), [&](const AxisVector& axes) {
             return TrialOf(candidate, axes).status == TrialStatus::kPassed;
           });
  });
}

absl::Status Tuner::RunKey(Key& key, int verified, const KeyShare& share) {
  TunedKey tuned;
  tuned.key = policy_->Named(key.bucket);
  tuned.shapes = Named(key.shapes);
  tuned.verified = Named(key.proofs);
  DropRepeats(key);
  verifying_->EndsBy(share.verify_until);
  KVR_RETURN_IF_ERROR(Verify(key, share.verify_until));
  verifying_->Reach(verified);
  if (key.candidates.empty() && !report_.cut.empty()) {
    tuned.note = kNoTime;
  } else if (key.candidates.empty() && request_.variants.empty()) {
    tuned.note = "no config passed; the baseline serves this key";
  } else if (!AnyRequestedPassed(key)) {
    // Measuring what is selected already, or the baseline, would answer another question.
    tuned.note = NoneRequestedPassed();
  } else {
    KVR_RETURN_IF_ERROR(Measure(key, share, tuned));
  }
  if (!tuned.variant.empty()) {
    Note(StrCat(AxesText(tuned.key), ": ", tuned.variant, " {", ConfigText(tuned.config), "}",
                tuned.verdict.empty() ? "" : ", ", tuned.verdict,
                tuned.verdict.empty() ? "" : StrCat(" for ", tuned.challenger_variant)));
  }
  report_.selections.push_back(std::move(tuned));
  return absl::OkStatus();
}

}  // namespace kvr
