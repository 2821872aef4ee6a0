// SPDX-License-Identifier: Apache-2.0
#include "tuner/rejections.h"

#include <cmath>

#include "core/status.h"
#include "core/strings.h"
#include "tuner/compare.h"

namespace kvr {
namespace {

constexpr int kLookBack = 32;  // records of one config at one shape, of any machine

}  // namespace

bool SameConditions(const ledger::Environment& a, const ledger::Environment& b) {
  return a.device_kind == b.device_kind && a.device_uuid == b.device_uuid && a.target == b.target &&
         a.driver == b.driver && a.compiler == b.compiler && a.kvr_version == b.kvr_version &&
         (!a.device_uuid.empty() || a.host == b.host);  // a device without a name of its own
}

absl::StatusOr<bool> Rejections::InTrouble(const std::string& session) const {
  KVR_ASSIGN_OR_RETURN(const std::vector<ledger::Verdict> verdicts,
                       ledger_.Find<ledger::Verdict>(
                           {{"session", session}, {"kind", "race"}, {"verdict", "INVALID"}}, 1));
  return !verdicts.empty();
}

absl::StatusOr<double> Rejections::BestOf(const std::string& session,
                                          const std::string& axes) const {
  const auto [known, is_new] = best_.try_emplace({session, axes}, NAN);
  if (!is_new) return known->second;
  KVR_ASSIGN_OR_RETURN(const std::vector<ledger::Trial> trials,
                       ledger_.Find<ledger::Trial>({{"session", session}, {"axes", axes}}, 0,
                                                   ledger::Samples::kLeaveOut));
  for (const ledger::Trial& trial : trials) {
    if (trial.status != TrialStatusName(TrialStatus::kPassed) || !(trial.median_us > 0)) continue;
    known->second = std::fmin(known->second, trial.median_us);
  }
  return known->second;
}

absl::StatusOr<std::optional<RejectedBefore>> Rejections::Built(const Candidate& candidate) const {
  const Variant& variant = *candidate.variant;
  const Config config = CompileScope(candidate.config, variant.tunables);
  KVR_ASSIGN_OR_RETURN(const std::vector<ledger::Build> builds,
                       ledger_.Find<ledger::Build>({{"op", op_},
                                                    {"fingerprint", variant.fingerprint.Hex()},
                                                    {"config", ConfigText(config)},
                                                    {"target", here_.target}},
                                                   kLookBack));
  for (auto build = builds.rbegin(); build != builds.rend(); ++build) {
    KVR_ASSIGN_OR_RETURN(const ledger::Environment where, ledger_.EnvironmentOf(*build));
    if (!SameConditions(where, here_)) continue;
    if (build->status != "failed") break;
    RejectedBefore rejected;
    rejected.status = std::string(TrialStatusName(TrialStatus::kCompileError));
    rejected.reason = build->reason;
    rejected.time = build->time;
    return rejected;
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<RejectedBefore>> Rejections::Tried(const Candidate& candidate,
                                                                const Axes& axes) const {
  const std::string passed(TrialStatusName(TrialStatus::kPassed));
  KVR_ASSIGN_OR_RETURN(
      const std::vector<ledger::Trial> trials,
      ledger_.Find<ledger::Trial>({{"op", op_},
                                   {"fingerprint", candidate.variant->fingerprint.Hex()},
                                   {"config", ConfigText(candidate.config)},
                                   {"axes", AxesText(axes)}},
                                  kLookBack));
  for (auto trial = trials.rbegin(); trial != trials.rend(); ++trial) {
    KVR_ASSIGN_OR_RETURN(const ledger::Environment where, ledger_.EnvironmentOf(*trial));
    if (!SameConditions(where, here_)) continue;
    // Wrong numbers are wrong in every mode; slow is slow in one.
    RejectedBefore rejected;
    rejected.status = trial->status;
    rejected.reason = trial->reason;
    rejected.time = trial->time;
    if (trial->status != passed) return rejected;
    if (trial->mode != mode_) continue;
    // Measured, but not in a race; or in one and not once.
    if (trial->outcome.empty() || !std::isfinite(trial->median_us)) continue;
    if (trial->outcome != "dropped") break;
    KVR_ASSIGN_OR_RETURN(const bool trouble, InTrouble(trial->session));
    if (trouble) continue;
    KVR_ASSIGN_OR_RETURN(const double best, BestOf(trial->session, trial->axes));
    rejected.reason.clear();
    rejected.behind = std::log(trial->median_us / best);
    return rejected;
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<RejectedBefore>> Rejections::Find(
    const Candidate& candidate, const std::vector<Axes>& measured,
    const std::vector<Axes>& proofs) const {
  KVR_ASSIGN_OR_RETURN(std::optional<RejectedBefore> rejected, Built(candidate));
  if (rejected.has_value()) return rejected;
  const std::string_view passed = TrialStatusName(TrialStatus::kPassed);
  bool slow_everywhere = true;
  std::optional<RejectedBefore> slow;
  double behind = 0;  // over the shapes
  for (const std::vector<Axes>* shapes : {&measured, &proofs}) {
    for (const Axes& axes : *shapes) {
      KVR_ASSIGN_OR_RETURN(rejected, Tried(candidate, axes));
      if (rejected.has_value() && rejected->status != passed) return rejected;
      if (shapes == &proofs) continue;
      if (rejected.has_value()) {
        slow = rejected;
        behind += rejected->behind;
      } else {
        slow_everywhere = false;
      }
    }
  }
  if (!slow_everywhere || !slow.has_value()) return std::nullopt;
  slow->behind = behind / static_cast<double>(measured.size());
  return slow;
}

}  // namespace kvr
