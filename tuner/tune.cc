// SPDX-License-Identifier: Apache-2.0
//
// kvr tune, key by key. A key is finished (verified, measured, published) before the next begins,
// so that an interrupted run keeps every finished one.
#include "tuner/tune.h"

#include <algorithm>
#include <utility>

#include "core/quality.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/feasibility.h"
#include "tuner/tuner.h"
#include "tuner/worker/sentinel.h"

namespace kvr {

const Trial* Tuner::FindTrial(const Candidate& candidate, const Axes& axes) const {
  for (const Trial& trial : report_.trials) {
    if (trial.variant == candidate.variant->name && trial.config == candidate.config &&
        trial.axes == axes) {
      return &trial;
    }
  }
  return nullptr;
}

Trial& Tuner::TrialOf(const Candidate& candidate, const AxisVector& axes) {
  Axes named = NamedAxes(work_.op->spec(), axes);
  if (const Trial* const found = FindTrial(candidate, named)) {
    return report_.trials[static_cast<size_t>(found - report_.trials.data())];
  }
  Trial& trial = report_.trials.emplace_back();
  trial.variant = candidate.variant->name;
  trial.config = candidate.config;
  trial.axes = std::move(named);
  return trial;
}

void Tuner::Fail(const Candidate& candidate, const AxisVector& axes, TrialStatus status,
                 std::string reason) {
  const std::string kind =
      StrCat(candidate.variant->name, TrialStatusName(status), ReasonKind(reason));
  if (bench_.progress != nullptr && noted_.insert(kind).second) {
    bench_.progress->Note(
        StrCat(CandidateText(candidate), ": ", TrialStatusName(status), ": ", reason));
  }
  Trial& trial = TrialOf(candidate, axes);
  trial.status = status;
  trial.reason = std::move(reason);
}

const absl::StatusOr<Built>& Tuner::BuiltOf(const Candidate& candidate) const {
  return built_[index_.at({candidate.variant.get(), candidate.config})];
}

std::vector<Axes> Tuner::Named(const std::vector<AxisVector>& shapes) const {
  std::vector<Axes> named;
  for (const AxisVector& axes : shapes) named.push_back(NamedAxes(work_.op->spec(), axes));
  return named;
}

void Tuner::Cut(std::string what) {
  Note(what);
  report_.cut.push_back(std::move(what));
}

ledger::Trial Tuner::RecordOf(const Candidate& candidate, const AxisVector& axes,
                              std::string_view stage) const {
  const Axes named = NamedAxes(work_.op->spec(), axes);
  ledger::Trial record = kvr::TrialOf(candidate, BuiltOf(candidate), named, request_.mode, stage);
  if (const Trial* const trial = FindTrial(candidate, named)) {
    record.quality = QualityText(trial->quality);
  }
  return record;
}

absl::Status Tuner::Prepare() {
  // The request is checked before a worker starts.
  KVR_ASSIGN_OR_RETURN(work_, Resolve(bench_.catalog, request_, "", Unasked::kSkipped));
  KVR_RETURN_IF_ERROR(ChoosePolicy());
  report_.seed = request_.seed;
  seeds_ = Seeds(&report_.seed, request_.input_sets);
  WorkerOptions options = bench_.worker;
  options.cancel = bench_.cancel;
  KVR_ASSIGN_OR_RETURN(worker_, WorkerClient::Start(std::move(options)));
  report_.device = worker_->device();
  const std::string& target = report_.device.target;
  KVR_ASSIGN_OR_RETURN(work_, Resolve(bench_.catalog, request_, target, Unasked::kSkipped));
  KVR_RETURN_IF_ERROR(work_.op->operation->Load());  // what does not load here, no worker is given
  report_.skipped = work_.skipped;
  journal_.SetEnvironment(EnvironmentOf(report_.device, bench_.jit.Identity(target)));
  journal_.BeginSession();
  if (journal_.ledger() != nullptr) report_.ledger = journal_.ledger()->path();
  KVR_ASSIGN_OR_RETURN(files_, BinaryFiles::Create());
  KVR_RETURN_IF_ERROR(ReadSelections());
  KVR_RETURN_IF_ERROR(ChoosePolicy());
  report_.key_policy = policy_->text();
  return SkipOtherPolicies();
}

absl::Status Tuner::ReadSelections() {
  if (!request_.selection_file.empty()) {
    KVR_ASSIGN_OR_RETURN(LoadedSelections file,
                         ReadIncumbents(request_.selection_file, bench_.catalog, report_.device));
    incumbents_ = std::move(file.generation);
    dropped_ = std::move(file.dropped);
  }
  return absl::OkStatus();
}

// Incumbents first, then every variant's default: what there is time for knows the most important.
void Tuner::Build() {
  std::vector<Candidate> rest;
  const auto add = [&](const Candidate& candidate) {
    if (index_.emplace(std::pair(candidate.variant.get(), candidate.config), all_.size()).second) {
      all_.push_back(candidate);
    }
  };
  for (const Key& key : keys_) {
    if (key.incumbent >= 0) add(key.candidates[key.incumbent]);
  }
  for (const bool defaults : {true, false}) {
    for (const Key& key : keys_) {
      for (const Candidate& candidate : key.candidates) {
        if (!defaults || IsDefault(candidate)) add(candidate);
      }
    }
  }
  PhaseProgress progress(bench_.progress, Phase::kCompile,
                         static_cast<int>(DistinctBuilds(all_).size()));
  progress.EndsBy(budget_.build_until());
  built_ = BuildAll(bench_, work_.op->spec(), all_, report_.device.target, progress,
                    [&] { return absl::Now() < budget_.build_until(); });
  const auto unbuilt = std::count_if(
      built_.begin(), built_.end(),
      [](const absl::StatusOr<Built>& built) { return absl::IsDeadlineExceeded(built.status()); });
  if (unbuilt > 0) {
    Cut(StrCat("the budget left no time to build ", unbuilt, " of ", all_.size(), " configs"));
  }
  const absl::StatusOr<BinaryPtr> sentinel = BuildSentinel(bench_.jit, report_.device.target);
  if (!sentinel.ok()) {
    Note(StrCat("without a sentinel, nobody sees drift: ", What(sentinel.status())));
  } else if (auto path = files_->Add(**sentinel); path.ok()) {
    sentinel_path_ = *std::move(path);
  }
}

absl::StatusOr<TuneReport> Tuner::Run() {
  KVR_RETURN_IF_ERROR(Prepare());
  KVR_RETURN_IF_ERROR(MakeKeys());
  if (!report_.rejected.empty()) {
    Note(StrCat(report_.rejected.size(), report_.rejected.size() == 1 ? " config" : " configs",
                " rejected here before: not measured again"));
  }
  Build();
  int verifications = 0;
  for (const Key& key : keys_) verifications += VerifySteps(key);
  verifying_ = std::make_unique<PhaseProgress>(bench_.progress, Phase::kVerify, verifications);
  NoteLosses();
  const std::vector<KeyGroup> groups = Groups();
  if (!Cancelled(bench_)) KVR_RETURN_IF_ERROR(TakeBands());
  verifications = 0;  // those of the keys begun
  for (size_t i = 0; i < keys_.size(); ++i) {
    Key& key = keys_[i];
    verifications += VerifySteps(key);
    const size_t shares = keys_.size() - i + (groups.empty() ? 0 : 1);
    const KeyShare share = budget_.ShareOf(static_cast<int>(shares), absl::Now());
    const absl::Status status =
        Cancelled(bench_) ? absl::CancelledError() : RunKey(key, verifications, share);
    if (absl::IsCancelled(status)) {
      report_.cancelled = true;
      break;
    }
    if (absl::IsResourceExhausted(status) && keys_.size() > 1) {
      TunedKey& skipped = report_.selections.emplace_back();
      skipped.key = policy_->Named(key.bucket);
      skipped.note = std::string(What(status));
      continue;
    }
    KVR_RETURN_IF_ERROR(status);
  }
  KVR_RETURN_IF_ERROR(PublishHeldBack());
  if (!report_.cancelled) KVR_RETURN_IF_ERROR(CompareWithSingles(groups));
  report_.respawns = worker_->respawns();
  report_.ledger_trouble = journal_.why();
  return std::move(report_);
}

absl::StatusOr<TuneReport> TuneOp(const Workbench& bench, const TuneRequest& request) {
  return Tuner(bench, request).Run();
}

}  // namespace kvr
