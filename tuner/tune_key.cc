// SPDX-License-Identifier: Apache-2.0
//
// One key of kvr tune: verify, race, decide, publish.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "absl/time/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/publish.h"
#include "tuner/tuner.h"

namespace kvr {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The measuring sessions of one key: one at a time, one for each shape.
class Race {
 public:
  using Open = std::function<absl::StatusOr<std::unique_ptr<WorkerSampler>>(size_t shape)>;
  using Condemned = std::function<void(size_t shape, int subject, const Finding&)>;
  // `condemned` hears once a shape of a subject that failed while being timed.
  Race(size_t shapes, Open open, Condemned condemned, PhaseProgress& progress)
      : shapes_(shapes),
        open_(std::move(open)),
        condemned_(std::move(condemned)),
        progress_(progress),
        told_(shapes) {}

  size_t shapes() const { return shapes_; }
  const SessionInfo& session() const { return session_; }

  // Samples of `subjects` at one shape, in slices; those that fail, also the check of their numbers
  // when `check`, are told of and have no samples.
  absl::StatusOr<std::vector<std::vector<double>>> Run(size_t shape, absl::Span<const int> subjects,
                                                       int rounds, int slices, bool check,
                                                       const std::string& what) {
    if (sampler_ == nullptr || shape != open_shape_) {
      sampler_.reset();
      KVR_ASSIGN_OR_RETURN(sampler_, open_(shape));
      open_shape_ = shape;
    }
    SampleTable table;
    for (int slice = 0; slice < slices; ++slice) {
      progress_.Begin(what);
      const int part = (rounds + slice) / slices;
      if (part > 0) {
        KVR_ASSIGN_OR_RETURN(SampleTable samples, sampler_->Sample(subjects, part));
        table.insert(table.end(), samples.begin(), samples.end());
      }
      progress_.Done();
    }
    if (check) KVR_RETURN_IF_ERROR(sampler_->Check(subjects));
    session_ = Merge(session_, sampler_->info());
    std::vector<std::vector<double>> columns(subjects.size());
    for (size_t s = 0; s < subjects.size(); ++s) {
      const Finding& finding = sampler_->finding(subjects[s]);
      if (finding.status == TrialStatus::kPassed) {
        columns[s] = Column(table, static_cast<int>(s));
      } else if (told_[shape].insert(subjects[s]).second) {
        condemned_(shape, subjects[s], finding);
      }
    }
    return columns;
  }

 private:
  const size_t shapes_;
  const Open open_;
  const Condemned condemned_;
  PhaseProgress& progress_;
  std::unique_ptr<WorkerSampler> sampler_;
  size_t open_shape_ = 0;
  SessionInfo session_;
  std::vector<std::set<int>> told_;  // [shape]: subjects
};

// "no config of 'mine' passed"
std::string NonePassed(absl::Span<const std::string> variants) {
  std::string names;
  for (const std::string& name : variants) {
    StrAppend(&names, names.empty() ? "'" : ", '", name, "'");
  }
  return StrCat("no config of ", names, " passed");
}

}  // namespace

absl::Status Tuner::Verify(Key& key) {
  const OpSpec& spec = work_.op->spec();
  const Candidate incumbent = key.incumbent == 0 ? key.candidates.front() : Candidate{};
  std::vector<AxisVector> shapes = key.shapes;
  shapes.insert(shapes.end(), key.proofs.begin(), key.proofs.end());
  for (const AxisVector& axes : shapes) {
    const Axes named = NamedAxes(spec, axes);
    std::vector<Candidate> passed;
    for (const Candidate& candidate : key.candidates) {
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
      }
      trial.max_abs = finding.max_abs;
      trial.max_rel = finding.max_rel;
      report_.respawns = worker_->respawns();
      verifying_->Done();
    }
    key.candidates = std::move(passed);
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

absl::Status Tuner::Measure(Key& key, TunedKey& tuned) {
  const OpSpec& spec = work_.op->spec();
  const int count = static_cast<int>(key.candidates.size());
  SessionOptions options;
  options.epoch_us = request_.epoch_us;
  KVR_ASSIGN_OR_RETURN(const std::vector<WorkItem> items, Items(key));
  Race race(
      key.shapes.size(),
      [&](size_t shape) {
        return WorkerSampler::Open(
            *worker_, {spec.name, NamedAxes(spec, key.shapes[shape]), seeds_}, items, options);
      },
      [&](size_t shape, int i, const Finding& finding) {
        Fail(key.candidates[i], key.shapes[shape], finding.status, finding.reason);
      },
      *measuring_);

  std::vector<int> everyone(count);
  std::iota(everyone.begin(), everyone.end(), 0);
  std::vector<std::vector<double>> screened(key.shapes.size(), std::vector<double>(count, kNan));
  for (size_t shape = 0; shape < key.shapes.size(); ++shape) {
    KVR_ASSIGN_OR_RETURN(const auto columns,
                         race.Run(shape, everyone, request_.pick.screen_rounds, 1, false,
                                  StrCat("screening ", count, " configs at ",
                                         AxesText(NamedAxes(spec, key.shapes[shape])))));
    for (int i = 0; i < count; ++i) {
      if (columns[i].empty()) continue;
      screened[shape][i] = Median(columns[i]);
      TrialOf(key.candidates[i], key.shapes[shape]).screen_us = screened[shape][i];
    }
  }
  const std::vector<double> screen = CombineShapes(screened);
  tuned.tried = static_cast<int>(
      std::count_if(screen.begin(), screen.end(), [](double us) { return std::isfinite(us); }));
  const std::vector<int> survivors = Screen(screen, key.incumbent, request_.pick);

  std::vector<std::vector<double>> finals(key.shapes.size(), std::vector<double>(count, kNan));
  for (size_t shape = 0; shape < key.shapes.size(); ++shape) {
    KVR_ASSIGN_OR_RETURN(const auto columns,
                         race.Run(shape, survivors, request_.pick.rounds, kMeasureSlices, true,
                                  StrCat("racing ", survivors.size(), " configs at ",
                                         AxesText(NamedAxes(spec, key.shapes[shape])))));
    for (size_t s = 0; s < survivors.size(); ++s) {
      if (columns[s].empty()) continue;
      Trial& trial = TrialOf(key.candidates[survivors[s]], key.shapes[shape]);
      finals[shape][survivors[s]] = trial.median_us = Median(columns[s]);
      trial.spread = RelativeSpread(columns[s]);
    }
  }

  // The rounds that chose the best flatter it: it meets the incumbent again, on fresh ones.
  const FreshMedians fresh =
      [&](absl::Span<const int> subjects) -> absl::StatusOr<std::vector<double>> {
    std::vector<std::vector<double>> times(race.shapes(),
                                           std::vector<double>(subjects.size(), kNan));
    for (size_t shape = 0; shape < race.shapes(); ++shape) {
      KVR_ASSIGN_OR_RETURN(const auto columns,
                           race.Run(shape, subjects, request_.pick.rounds, 1, false,
                                    StrCat("the best against the incumbent at ",
                                           AxesText(NamedAxes(spec, key.shapes[shape])))));
      for (size_t s = 0; s < subjects.size(); ++s) times[shape][s] = Median(columns[s]);
    }
    return CombineShapes(times);
  };
  KVR_ASSIGN_OR_RETURN(const Picked picked, Decide(CombineShapes(finals), key.incumbent,
                                                   request_.pick.minimum_gain, fresh));
  report_.respawns = worker_->respawns();
  tuned.session = race.session();
  report_.session = Merge(report_.session, race.session());
  tuned.incumbent_kept = picked.incumbent_kept;
  tuned.gain = picked.gain;
  if (key.incumbent >= 0) {
    tuned.incumbent_variant = key.candidates[key.incumbent].variant->name;
    tuned.incumbent_config = key.candidates[key.incumbent].config;
    tuned.incumbent_us = picked.incumbent_us;
  }
  if (picked.winner < 0) {
    tuned.note = "no config gave a measurement";
    return absl::OkStatus();
  }
  if (!AnyRequestedPassed(key)) {  // they failed while being timed
    tuned.note = NonePassed(request_.variants);
    return absl::OkStatus();
  }
  const Candidate& winner = key.candidates[picked.winner];
  tuned.variant = winner.variant->name;
  tuned.config = winner.config;
  tuned.median_us = picked.winner_us;
  return Publish(key, winner, tuned);
}

absl::Status Tuner::Publish(const Key& key, const Candidate& winner, TunedKey& tuned) {
  if (work_.overridden) {
    tuned.note = "not published: --set or the environment pins tunables";
    return absl::OkStatus();
  }
  if (request_.selection_file.empty() || !request_.publish) {
    tuned.note = "not stored: name a file with --selections to keep what is selected";
    return absl::OkStatus();
  }
  Selection selection;
  selection.variant = winner.variant;
  selection.config = winner.config;
  selection.binary = BuiltOf(winner)->binary->key;
  selection.evidence.median_us = tuned.median_us;
  selection.evidence.tried = tuned.tried;
  selection.evidence.device = report_.device.name;
  selection.evidence.date =
      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
  const absl::StatusOr<GenerationPtr> published =
      PublishSelection(request_.selection_file, bench_.catalog, report_.device,
                       PublicationOf(key, std::move(selection)));
  if (absl::IsFailedPrecondition(published.status()) || absl::IsUnavailable(published.status())) {
    // Hours of measuring are not thrown away for it.
    tuned.refused = true;
    tuned.note = StrCat("not published: ", What(published.status()), "; ", Fix(published.status()));
    return absl::OkStatus();
  }
  KVR_RETURN_IF_ERROR(published.status());
  const Generation::Op* before =
      incumbents_ == nullptr ? nullptr : incumbents_->FindOp(work_.op->name());
  if (before != nullptr && before->policy.text() != policy_->text()) {
    tuned.note = StrCat("the file's selections keyed by ", before->policy.text(),
                        " are gone: it is keyed by ", policy_->text(), " now");
  }
  report_.digest = (*published)->digest().Hex();
  tuned.published = true;
  return absl::OkStatus();
}

Publication Tuner::PublicationOf(const Key& key, Selection selection) const {
  Publication publication{work_.op->name(), *policy_, key.bucket, std::move(selection), {}};
  for (const Key& other : keys_) publication.retuned.push_back(other.bucket);
  return publication;
}

// Said before the hours of measuring, not only after.
void Tuner::NoteLosses() {
  if (dropped_.empty() || !request_.publish || work_.overridden || keys_.empty()) return;
  const std::string lost = LostBy(PublicationOf(keys_.front(), {}), dropped_);
  if (lost.empty()) return;
  measuring_->Note(StrCat("nothing will be published: ", request_.selection_file,
                          " has selections that would be deleted: ", lost));
}

bool Tuner::AnyRequestedPassed(const Key& key) {
  const std::vector<std::string>& names = request_.variants;
  if (names.empty()) return !key.candidates.empty();
  return std::any_of(key.candidates.begin(), key.candidates.end(), [&](const Candidate& candidate) {
    return std::find(names.begin(), names.end(), candidate.variant->name) != names.end() &&
           std::all_of(key.shapes.begin(), key.shapes.end(), [&](const AxisVector& axes) {
             return TrialOf(candidate, axes).status == TrialStatus::kPassed;
           });
  });
}

absl::Status Tuner::RunKey(Key& key, int verified) {
  const OpSpec& spec = work_.op->spec();
  TunedKey tuned;
  tuned.key = policy_->Named(key.bucket);
  for (const AxisVector& axes : key.shapes) tuned.shapes.push_back(NamedAxes(spec, axes));
  for (const AxisVector& axes : key.proofs) tuned.verified.push_back(NamedAxes(spec, axes));
  DropRepeats(key);
  KVR_RETURN_IF_ERROR(Verify(key));
  verifying_->Reach(verified);
  if (key.candidates.empty() && request_.variants.empty()) {
    tuned.note = "no config passed; the baseline serves this key";
  } else if (!AnyRequestedPassed(key)) {
    // Measuring what is selected already, or the baseline, would answer another question.
    tuned.note = NonePassed(request_.variants);
  } else {
    KVR_RETURN_IF_ERROR(Measure(key, tuned));
  }
  if (!tuned.variant.empty()) {
    measuring_->Note(
        StrCat(AxesText(tuned.key), ": ", tuned.variant, " {", ConfigText(tuned.config), "}"));
  }
  report_.selections.push_back(std::move(tuned));
  return absl::OkStatus();
}

}  // namespace kvr
