// SPDX-License-Identifier: Apache-2.0
#include "tuner/selections/shipped.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/strings.h"
#include "tuner/stats/ship.h"

namespace kvr {
namespace {

// Is it what `text` names: "w8", "w8{BLOCK_H=16}", "w8 {BLOCK_H=16}"? Tunables that a text leaves
// out may have any value.
bool Names(std::string_view text, const std::string& variant, const std::string& config) {
  const size_t brace = text.find('{');
  if (Trim(text.substr(0, brace)) != variant) return false;
  if (brace == std::string_view::npos) return true;
  const size_t end = text.find('}', brace);
  if (end == std::string_view::npos) return false;
  const std::vector<std::string_view> has = Split(config, ',');
  for (const std::string_view pair : Split(text.substr(brace + 1, end - brace - 1), ',')) {
    if (!pair.empty() && std::find(has.begin(), has.end(), pair) == has.end()) return false;
  }
  return true;
}

bool SpeaksOf(const ledger::Verdict& verdict, const StoredSelection& selection) {
  return verdict.kind == "ship" && verdict.challenger == selection.variant &&
         verdict.challenger_fingerprint == selection.variant_fingerprint.Hex() &&
         verdict.challenger_config == ConfigText(selection.config);
}

bool AgainstWhatItReplaces(const Catalog::Op& op, const StoredSelection& selection,
                           const ledger::Verdict& verdict) {
  if (verdict.incumbent == verdict.challenger &&
      verdict.incumbent_config == verdict.challenger_config) {
    return false;  // itself
  }
  const VariantPtr& baseline = op.baseline;
  const bool is_baseline =
      baseline != nullptr && verdict.incumbent == baseline->name &&
      verdict.incumbent_config == ConfigText(DefaultConfig(baseline->tunables));
  return is_baseline ||
         Names(selection.evidence.incumbent, verdict.incumbent, verdict.incumbent_config);
}

std::string Unproven(const Evidence& evidence) {
  if (evidence.verdict.empty()) return "nothing says how it won";
  return StrCat("its verdict is a ", evidence.kind.empty() ? "" : StrCat(evidence.kind, " "),
                evidence.verdict);
}

}  // namespace

std::optional<Axes> KeyOf(const OpSpec& op, const KeyPolicy& policy, const std::string& axes) {
  const absl::StatusOr<Axes> parsed = ParseAxes(axes);
  if (!parsed.ok()) return std::nullopt;
  const absl::StatusOr<AxisVector> resolved = ResolveAxes(op, *parsed);
  if (!resolved.ok()) return std::nullopt;
  return policy.Named(policy.Bucket(*resolved));
}

bool IsDefaultBaseline(const Catalog::Op& op, const StoredSelection& selection) {
  return op.baseline != nullptr && selection.variant == op.baseline->name &&
         selection.config == DefaultConfig(op.baseline->tunables);
}

ShipProof ProofFor(const Catalog::Op& op, const KeyPolicy& policy, const Axes& key,
                   const StoredSelection& selection,
                   absl::Span<const Placed<ledger::Verdict>> verdicts) {
  ShipProof proof{.evidence = selection.evidence};
  proof.shipped = IsDefaultBaseline(op, selection) ||
                  (selection.evidence.kind == "ship" && selection.evidence.verdict == "WIN");
  if (proof.shipped) return proof;

  // The newest row of each shape on each device; later ones replace earlier ones.
  std::map<std::pair<std::string, std::string>, const Placed<ledger::Verdict>*> newest;
  bool another = false;
  for (const Placed<ledger::Verdict>& placed : verdicts) {
    const ledger::Verdict& verdict = placed.record;
    if (!SpeaksOf(verdict, selection) || KeyOf(op.spec(), policy, verdict.axes) != key) continue;
    if (!AgainstWhatItReplaces(op, selection, verdict)) {
      another = true;
      continue;
    }
    newest[{DeviceOf(placed.where), verdict.axes}] = &placed;
  }
  if (newest.empty()) {
    proof.missing =
        StrCat(Unproven(selection.evidence), ", and the ledger has no ship verdict of it",
               another ? " against what it replaced or the baseline" : "");
    return proof;
  }
  const double regression = std::log1p(stats::ShipOptions().regression_margin);
  std::map<std::string, bool> won;  // by device
  Evidence& evidence = proof.evidence;
  evidence.gain_low = std::numeric_limits<double>::infinity();
  evidence.gain_high = -std::numeric_limits<double>::infinity();
  for (const auto& [at, placed] : newest) {
    const ledger::Verdict& verdict = placed->record;
    const bool win = verdict.verdict == "WIN";
    // NaN is no bound at all.
    if (!win && (verdict.verdict == "LOSS" || verdict.verdict == "INVALID" ||
                 !(verdict.high < regression))) {
      proof.missing = StrCat("its ship verdict at {", verdict.axes, "} is ", verdict.verdict,
                             " on ", placed->where.device_name);
      proof.evidence = selection.evidence;
      return proof;
    }
    won[at.first] |= win;
    evidence.gain_low = std::min(evidence.gain_low, verdict.low);
    evidence.gain_high = std::max(evidence.gain_high, verdict.high);
    evidence.incumbent = ConfigName(verdict.incumbent, verdict.incumbent_config);
  }
  for (const auto& [device, win] : won) {
    if (win) continue;
    proof.missing = StrCat("its ship verdicts on ", device, " have no win");
    proof.evidence = selection.evidence;
    return proof;
  }
  evidence.verdict = "WIN";
  evidence.kind = "ship";
  proof.shipped = true;
  return proof;
}

}  // namespace kvr
