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
    return RejectedBefore{std::string(TrialStatusName(TrialStatus::kCompileError)), build->reason,
                          build->time};
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
    if (trial->status != passed) return RejectedBefore{trial->status, trial->reason, trial->time};
    if (trial->mode != mode_) continue;
    // Measured, but not in a race; or in one and not once.
    if (trial->outcome.empty() || !std::isfinite(trial->median_us)) continue;
    if (trial->outcome != "dropped") break;
    KVR_ASSIGN_OR_RETURN(const bool trouble, InTrouble(trial->session));
    if (trouble) continue;
    return RejectedBefore{passed, "", trial->time};
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
  for (const std::vector<Axes>* shapes : {&measured, &proofs}) {
    for (const Axes& axes : *shapes) {
      KVR_ASSIGN_OR_RETURN(rejected, Tried(candidate, axes));
      if (rejected.has_value() && rejected->status != passed) return rejected;
      if (shapes == &proofs) continue;
      if (rejected.has_value()) {
        slow = rejected;
      } else {
        slow_everywhere = false;
      }
    }
  }
  return slow_everywhere ? slow : std::nullopt;
}

}  // namespace kvr
