// SPDX-License-Identifier: Apache-2.0
//
// What kvr tune does with a key's winner.
#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/tuner.h"

namespace kvr {

// Empty: it is to be published.
std::string Tuner::WhyNotPublished(const Key& key, const TunedKey& tuned) const {
  if (work_.overridden) return "not published: --set or the environment pins tunables";
  if (request_.selection_file.empty() || !request_.publish) {
    return "not stored: name a file with --selections to keep what is selected";
  }
  if (!tuned.incumbent_kept) return "";
  if (key.from_file) {
    return Rekeys() ? "" : StrCat(request_.selection_file, " keeps what it selects");
  }
  // The baseline, which no file selects yet. That nothing beat it is worth keeping, a comparison
  // that must not be read is not.
  if (tuned.verdict != stats::VerdictName(stats::Verdict::kInvalid)) return "";
  return "not published: the comparison is INVALID; the baseline serves this key";
}

const Generation::Op* Tuner::InFile() const {
  return incumbents_ == nullptr ? nullptr : incumbents_->FindOp(work_.op->name());
}

bool Tuner::Rekeys() const {
  return InFile() != nullptr && !InFile()->selections.empty() &&
         InFile()->policy.text() != policy_->text();
}

std::string Tuner::RekeyedText() const {
  std::string selected;
  for (const auto& [key, selection] : Sorted(*InFile())) {
    StrAppend(&selected, selected.empty() ? "" : "; ", "{", AxesText(InFile()->policy.Named(key)),
              "}: ", selection->variant->name);
  }
  return StrCat(InFile()->policy.text(), " (", selected, ")");
}

absl::Status Tuner::Publish(const Key& key, const Candidate& winner, TunedKey& tuned) {
  ledger::Publication record;
  record.op = work_.op->name();
  record.axes = AxesText(tuned.key);
  record.trigger = "tune";
  record.variant = winner.variant->name;
  record.fingerprint = winner.variant->fingerprint.Hex();
  record.config = ConfigText(winner.config);
  record.binary = BuiltOf(winner)->binary->key.Hex();
  if (incumbents_ != nullptr) record.before = record.after = incumbents_->digest().Hex();
  const bool to_a_file = !request_.selection_file.empty() && request_.publish && !work_.overridden;
  tuned.note = WhyNotPublished(key, tuned);
  if (!tuned.note.empty()) {
    if (to_a_file) {
      report_.digest = record.after;
      record.outcome = "kept";
      record.reason = StrCat(tuned.verdict, tuned.reason.empty() ? "" : ": ", tuned.reason);
      journal_.Add(std::move(record));
    }
    return absl::OkStatus();
  }
  Selection selection;
  selection.variant = winner.variant;
  selection.config = winner.config;
  selection.binary = BuiltOf(winner)->binary->key;
  Evidence& evidence = selection.evidence;
  evidence.median_us = tuned.median_us;
  evidence.tried = tuned.tried;
  evidence.device = report_.device.name;
  evidence.date = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
  if (tuned.incumbent_kept) {
    evidence.verdict = key.from_file ? "KEPT" : "BASELINE";
  } else if (!tuned.verdict.empty()) {
    evidence.verdict = tuned.verdict;
    evidence.kind = "quick";
    evidence.gain_low = tuned.difference.low;
    evidence.gain_high = tuned.difference.high;
    evidence.incumbent = CandidateText(key.selected);
  }
  Publication publication = PublicationOf(key, std::move(selection));
  if (Rekeys()) {
    held_back_.push_back({report_.selections.size(), std::move(publication), std::move(record)});
    return absl::OkStatus();
  }
  const absl::StatusOr<GenerationPtr> published =
      PublishSelection(request_.selection_file, bench_.catalog, report_.device,
                       std::move(publication), /*lock_timeout_s=*/10, &record.before);
  return Published(published, std::move(record), tuned);
}

// What became of it, into report and journal.
absl::Status Tuner::Published(const absl::StatusOr<GenerationPtr>& published,
                              ledger::Publication record, TunedKey& tuned) {
  const absl::Status& status = published.status();
  record.after = published.ok() ? (*published)->digest().Hex() : record.before;
  record.outcome = published.ok() ? "published" : tuned.incumbent_kept ? "kept" : "failed";
  record.reason = published.ok() ? tuned.verdict : std::string(What(status));
  journal_.Add(std::move(record));
  if (absl::IsFailedPrecondition(status) || absl::IsUnavailable(status) ||
      absl::IsAborted(status)) {
    // Hours of measuring are not thrown away for it. A baseline that was kept claims nothing.
    tuned.refused = !(absl::IsAborted(status) && tuned.incumbent_kept);
    tuned.note = StrCat("not published: ", What(status), "; ", Fix(status));
    return absl::OkStatus();
  }
  KVR_RETURN_IF_ERROR(status);
  report_.digest = (*published)->digest().Hex();
  tuned.published = true;
  return absl::OkStatus();
}

// A file is keyed anew as a whole or not at all: what it selects now serves every shape, and half
// of the new keys would leave the others to the baseline.
absl::Status Tuner::PublishHeldBack() {
  if (held_back_.empty()) return absl::OkStatus();
  const auto selected = std::count_if(report_.selections.begin(), report_.selections.end(),
                                      [](const TunedKey& key) { return !key.variant.empty(); });
  const std::string old = RekeyedText();
  if (static_cast<size_t>(selected) < keys_.size()) {
    const std::string why =
        StrCat(selected, " of ", keys_.size(), " keys have a selection: ", request_.selection_file,
               " stays keyed by ", old);
    report_.digest = incumbents_->digest().Hex();
    for (HeldBack& held : held_back_) {
      TunedKey& tuned = report_.selections[held.tuned];
      tuned.refused = true;
      tuned.note = StrCat("not published: ", why, "; tune again for the others");
      held.record.outcome = "kept";
      held.record.reason = why;
      journal_.Add(std::move(held.record));
    }
    return absl::OkStatus();
  }
  std::vector<Publication> publications;
  for (HeldBack& held : held_back_) publications.push_back(std::move(held.publication));
  std::string before;
  const absl::StatusOr<GenerationPtr> published =
      PublishSelections(request_.selection_file, bench_.catalog, report_.device,
                        std::move(publications), /*lock_timeout_s=*/10, &before);
  for (HeldBack& held : held_back_) {
    TunedKey& tuned = report_.selections[held.tuned];
    held.record.before = before;
    KVR_RETURN_IF_ERROR(Published(published, std::move(held.record), tuned));
    if (tuned.published) {
      tuned.note = StrCat(request_.selection_file, " is keyed by ", policy_->text(),
                          " now; gone are its selections keyed by ", old);
    }
  }
  return absl::OkStatus();
}

Publication Tuner::PublicationOf(const Key& key, Selection selection) const {
  Publication publication{work_.op->name(), *policy_, key.bucket, std::move(selection), {}, {}, {}};
  for (const Key& other : keys_) publication.retuned.push_back(other.bucket);
  if (key.selected.variant != nullptr) publication.incumbent = key.selected;
  publication.rekeyed = incumbents_;
  return publication;
}

// Said before the hours of measuring, not only after.
void Tuner::NoteLosses() {
  if (Rekeys() && request_.publish && !work_.overridden) {
    Note(StrCat("when all ", keys_.size(), " keys are known, ", request_.selection_file,
                " is keyed by ", policy_->text(), ", and what it selects by ", RekeyedText(),
                " goes"));
  }
  if (dropped_.empty() || !request_.publish || work_.overridden || keys_.empty()) return;
  const std::string lost = LostBy(PublicationOf(keys_.front(), {}), dropped_);
  if (lost.empty()) return;
  Note(StrCat("nothing will be published: ", request_.selection_file,
              " has selections that would be deleted: ", lost));
}

}  // namespace kvr
