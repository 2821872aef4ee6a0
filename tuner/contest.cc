// SPDX-License-Identifier: Apache-2.0
#include "tuner/contest.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "core/quality.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/feasibility.h"
#include "tuner/work.h"
#include "tuner/worker/sentinel.h"

namespace kvr {
namespace {

class WorkerSession : public PairedSession {
 public:
  // `subjects`: those of the sides.
  WorkerSession(std::unique_ptr<WorkerSampler> sampler, std::array<int, 2> subjects)
      : sampler_(std::move(sampler)), subjects_(subjects) {}
  absl::StatusOr<SampleTable> Sample(int rounds) override {
    return sampler_->Sample(subjects_, rounds);
  }
  absl::Status Check() override { return sampler_->Check(subjects_); }
  Finding finding(Side side) const override { return sampler_->finding(subjects_[side]); }
  std::string trouble() const override { return sampler_->trouble(); }
  SessionInfo info() const override { return sampler_->info(); }

 private:
  const std::unique_ptr<WorkerSampler> sampler_;
  const std::array<int, 2> subjects_;
};

}  // namespace

absl::StatusOr<ContestantParts> SplitContestant(std::string_view text) {
  const size_t brace = text.find('{');
  if (brace == std::string_view::npos) return ContestantParts{Trim(text), {}};
  if (text.back() != '}') {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("contestant '", text, "' does not end with its config's }"),
                 "write it as in w8{TARGET_CTAS=512}");
  }
  return ContestantParts{Trim(text.substr(0, brace)),
                         Trim(text.substr(brace + 1, text.size() - brace - 2))};
}

absl::StatusOr<Config> ConfigWith(const Variant& variant, std::string_view assigned) {
  Config config = DefaultConfig(variant.tunables);
  if (assigned.empty()) return config;
  absl::StatusOr<Config> named = ParseConfig(assigned, variant.tunables);
  if (!named.ok()) {
    return WithContext(StrCat("contestant '", variant.name, "{", assigned, "}'"), named.status());
  }
  for (const auto& [name, value] : *named) config[name] = value;
  return config;
}

absl::StatusOr<Candidate> ParseContestant(const Catalog& catalog, std::string_view op,
                                          std::string_view text,
                                          absl::Span<const ApproximateOptIn> opt_ins) {
  KVR_ASSIGN_OR_RETURN(const ContestantParts parts, SplitContestant(text));
  Candidate contestant;
  KVR_ASSIGN_OR_RETURN(contestant.variant, catalog.Find(op, parts.variant));
  const Variant& variant = *contestant.variant;
  KVR_ASSIGN_OR_RETURN(contestant.config, ConfigWith(variant, parts.config));
  if (const ApproximateOptIn* opt_in = FindOptIn(opt_ins, variant)) {
    Config named;
    if (!parts.config.empty()) {
      KVR_ASSIGN_OR_RETURN(named, ParseConfig(parts.config, variant.tunables));
    }
    for (const auto& [name, value] : opt_in->quality) {
      if (named.count(name) == 0) contestant.config[name] = value;
    }
  }
  const absl::Status consent = CheckConsent(opt_ins, variant, contestant.config);
  if (!consent.ok()) {
    return Error(absl::StatusCode::kInvalidArgument, What(consent), Fix(consent));
  }
  return contestant;
}

std::string ContestantText(const Candidate& contestant) {
  const Config defaults = DefaultConfig(contestant.variant->tunables);
  Config differs;
  for (const auto& [name, value] : contestant.config) {
    const auto found = defaults.find(name);
    if (found == defaults.end() || found->second != value) differs[name] = value;
  }
  const std::string& name = contestant.variant->name;
  return differs.empty() ? name : StrCat(name, "{", ConfigText(differs), "}");
}

std::string ShapeText(const OpSpec& op, const Axes& axes) {
  Axes shown;
  for (const AxisSpec& axis : op.axes) {
    const auto it = axes.find(axis.name);
    if (it != axes.end() && !axis.is_const && it->second != axis.default_value) shown.insert(*it);
  }
  return shown.empty() ? "defaults" : AxesText(shown);
}

absl::StatusOr<std::vector<Axes>> ResolveShapes(const OpSpec& op, const std::vector<Axes>& shapes) {
  std::vector<Axes> resolved;
  for (const Axes& axes : shapes.empty() ? std::vector<Axes>(1) : shapes) {
    KVR_ASSIGN_OR_RETURN(const AxisVector all, ResolveAxes(op, axes));
    Axes named = NamedAxes(op, all);
    if (std::find(resolved.begin(), resolved.end(), named) == resolved.end()) {
      resolved.push_back(std::move(named));
    }
  }
  return resolved;
}

RunTime::RunTime(const std::atomic<bool>* cancel, double budget_s)
    : cancel_(cancel),
      deadline_(budget_s > 0 ? absl::Now() + absl::Seconds(budget_s) : absl::InfiniteFuture()) {}

bool RunTime::Going() {
  if (cancel_ != nullptr && cancel_->load(std::memory_order_relaxed)) return false;
  ran_out_ = ran_out_ || absl::Now() > deadline_;
  return !ran_out_;
}

absl::StatusOr<std::unique_ptr<PairedSession>> WorkerSessions::Open(const Axes& axes) {
  const bool swapped = random_() % 2 == 1;
  const std::array<int, 2> subjects = {swapped ? 1 : 0, swapped ? 0 : 1};
  std::vector<WorkItem> items(2);
  for (const Side side : {kIncumbent, kChallenger}) items[subjects[side]] = items_[side];
  KVR_ASSIGN_OR_RETURN(
      std::unique_ptr<WorkerSampler> sampler,
      WorkerSampler::Open(client_, {op_, axes, seeds_}, std::move(items), options_));
  return std::make_unique<WorkerSession>(std::move(sampler), subjects);
}

absl::StatusOr<std::unique_ptr<Contest>> Contest::Start(const Workbench& bench,
                                                        const Catalog::Op& op,
                                                        std::array<Candidate, 2> sides,
                                                        const ContestOptions& options) {
  std::unique_ptr<Contest> contest(new Contest(bench, op, std::move(sides), options));
  contest->seed_ = options.seed;
  contest->seeds_ = Seeds(&contest->seed_, options.input_sets);
  WorkerOptions worker = bench.worker;
  worker.cancel = bench.cancel;
  KVR_ASSIGN_OR_RETURN(contest->worker_, WorkerClient::Start(std::move(worker)));
  KVR_RETURN_IF_ERROR(op.operation->Load());  // what does not load here, no worker is given
  const std::string& target = contest->device().target;
  if (bench.journal != nullptr) {
    bench.journal->SetEnvironment(EnvironmentOf(contest->device(), bench.jit.Identity(target)));
  }
  KVR_ASSIGN_OR_RETURN(contest->files_, BinaryFiles::Create());
  PhaseProgress progress(bench.progress, Phase::kCompile,
                         static_cast<int>(DistinctBuilds(contest->sides_).size()));
  contest->built_ = BuildAll(bench, op.spec(), contest->sides_, target, progress);
  for (const Side side : {kIncumbent, kChallenger}) {
    const absl::StatusOr<Built>& built = contest->built_[side];
    if (absl::IsCancelled(built.status())) return built.status();
    if (!built.ok()) continue;
    KVR_ASSIGN_OR_RETURN(contest->paths_[side], contest->files_->Add(*built->binary));
  }
  if (const absl::StatusOr<BinaryPtr> sentinel = BuildSentinel(bench.jit, target); sentinel.ok()) {
    KVR_ASSIGN_OR_RETURN(contest->sentinel_path_, contest->files_->Add(**sentinel));
  } else {
    progress.Note(StrCat("without a sentinel, nobody sees drift: ", What(sentinel.status())));
  }
  return contest;
}

std::array<std::string, 2> Contest::names() const {
  return {ContestantText(sides_[kIncumbent]), ContestantText(sides_[kChallenger])};
}

absl::Status Contest::Fits(Side side, const Axes& axes) const {
  const Candidate& contestant = sides_[side];
  KVR_ASSIGN_OR_RETURN(const AxisVector shape, ResolveAxes(op_.spec(), axes));
  LaunchPlan plan;
  KVR_RETURN_IF_ERROR(CheckPlan(*contestant.variant, contestant.config, shape, device(), &plan));
  return CheckResources(*contestant.variant, plan, *built_[side]->binary, device());
}

bool NothingToLaunch(const OpSpec& op, const AxisVector& axes) {
  const std::vector<TensorView> tensors = TensorShapes(op, axes);
  return std::all_of(tensors.begin() + static_cast<ptrdiff_t>(op.inputs.size()), tensors.end(),
                     [](const TensorView& output) { return output.bytes() == 0; });
}

// A plan without kernels does nothing either, but for a launch function's, which has none anyway.
absl::StatusOr<bool> Contest::LaunchesNothing(const Axes& axes) const {
  KVR_ASSIGN_OR_RETURN(const AxisVector shape, ResolveAxes(op_.spec(), axes));
  if (NothingToLaunch(op_.spec(), shape)) return true;
  return std::any_of(sides_.begin(), sides_.end(), [&](const Candidate& side) {
    LaunchPlan plan;
    return !side.variant->has_launch_function &&
           CheckPlan(*side.variant, side.config, shape, device(), &plan).ok() &&
           plan.launches().empty();
  });
}

absl::StatusOr<std::array<Finding, 2>> Contest::ProveAt(const Axes& axes) {
  std::array<Finding, 2> findings;
  for (const Side side : {kIncumbent, kChallenger}) {
    const Candidate& contestant = sides_[side];
    if (side == kChallenger && contestant == sides_[kIncumbent]) break;
    Finding& finding = findings[side];
    if (!contestant.variant->Supports(device().target, &finding.reason)) {
      finding.status = TrialStatus::kCompileError;
    } else if (!built_[side].ok()) {
      finding.status = TrialStatus::kCompileError;
      finding.reason = Reason(built_[side].status());
    } else if (const absl::Status fits = Fits(side, axes); !fits.ok()) {
      finding.status = TrialStatus::kRuntimeError;
      finding.reason = Reason(fits);
    } else {
      // One input set; whoever is measured is checked on the others under its own launches.
      KVR_ASSIGN_OR_RETURN(finding, worker_->Verify({op_.name(), axes, {seeds_.front()}},
                                                    ItemOf(contestant, paths_[side])));
    }
    if (finding.status != TrialStatus::kPassed) break;
  }
  return findings;
}

absl::StatusOr<std::vector<std::string>> Contest::Prove(absl::Span<const Axes> shapes,
                                                        RunTime& time) {
  PhaseProgress progress(bench_.progress, Phase::kVerify, static_cast<int>(shapes.size()));
  std::vector<std::string> why_not;
  absl::Status memory;  // the first time it did not suffice
  size_t refused = 0;
  for (const Axes& axes : shapes) {
    if (!time.Going()) break;
    progress.Begin(StrCat(StrJoin(names(), " and "), " at ", ShapeText(op_.spec(), axes)));
    KVR_ASSIGN_OR_RETURN(const bool nothing, LaunchesNothing(axes));
    if (nothing) {
      why_not.emplace_back(kNothingToLaunch);
    } else {
      const absl::StatusOr<std::array<Finding, 2>> findings = ProveAt(axes);
      if (absl::IsCancelled(findings.status())) break;
      if (absl::IsResourceExhausted(findings.status())) {
        if (memory.ok()) memory = findings.status();
        ++refused;
        why_not.push_back(Reason(findings.status()));
      } else {
        KVR_RETURN_IF_ERROR(findings.status());
        for (const Side side : {kIncumbent, kChallenger}) {
          quality_[axes][side] = (*findings)[side].quality;
        }
        why_not.push_back(FaultText(*findings, names()));
      }
    }
    if (!why_not.back().empty()) {
      progress.Note(StrCat(ShapeText(op_.spec(), axes), ": ", why_not.back()));
    }
    progress.Done();
  }
  if (refused == shapes.size()) return memory;
  return why_not;
}

std::vector<QualityMeasure> Contest::QualityAt(const Axes& axes, Side side) const {
  const auto found = quality_.find(axes);
  if (found == quality_.end()) return {};
  // One that meets itself is verified once.
  const bool alike = sides_[kChallenger] == sides_[kIncumbent];
  return found->second[alike ? kIncumbent : side];
}

std::unique_ptr<SessionSource> Contest::SourceOf(Side incumbent, Side challenger) {
  SessionOptions options;
  options.mode = mode_;
  options.sentinel_path = sentinel_path_;
  return std::make_unique<WorkerSessions>(*worker_, op_.name(), seeds_,
                                          ItemOf(sides_[incumbent], paths_[incumbent]),
                                          ItemOf(sides_[challenger], paths_[challenger]), options);
}

std::unique_ptr<SessionSource> Contest::Sides() { return SourceOf(kIncumbent, kChallenger); }
std::unique_ptr<SessionSource> Contest::Itself() { return SourceOf(kIncumbent, kIncumbent); }

std::string Contest::Record(const Axes& axes, std::string_view stage, const SessionResult& result,
                            std::array<Side, 2> who) const {
  if (bench_.journal == nullptr) return "";
  std::string session = bench_.journal->BeginSession();
  for (const Side side : {kIncumbent, kChallenger}) {
    ledger::Trial trial = TrialOf(sides_[who[side]], built_[who[side]], axes, mode_, stage);
    trial.session = session;
    trial.status = std::string(TrialStatusName(result.findings[side].status));
    trial.reason =
        result.findings[side].reason.empty() ? result.trouble : result.findings[side].reason;
    if (result.rounds() > 0) {
      trial.median_us = Median(result.us[side]);
      trial.spread = RelativeSpread(result.us[side]);
      trial.samples = result.us[side];
    }
    trial.quality = QualityText(QualityAt(axes, who[side]));
    trial.clock_mhz = result.info.clock_mhz;
    trial.throttle_bits = static_cast<int64_t>(result.info.throttle_bits);
    bench_.journal->Add(std::move(trial));
  }
  return session;
}

}  // namespace kvr
