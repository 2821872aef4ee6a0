// SPDX-License-Identifier: Apache-2.0
#include "tuner/selections/shipped.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
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

// A win, or no regression worth speaking of. NaN is no bound at all.
bool Excludes(const ledger::Verdict& verdict) {
  if (verdict.verdict == "WIN") return true;
  return verdict.verdict != "LOSS" && verdict.verdict != "INVALID" &&
         verdict.high < std::log1p(stats::ShipOptions().regression_margin);
}

std::string ShapeText(const OpSpec& op, const std::string& axes) {
  const absl::StatusOr<Axes> parsed = ParseAxes(axes);
  const std::string least = parsed.ok() ? AxesText(LeastAxes(op, *parsed)) : axes;
  return least.empty() ? "the op's defaults" : least;
}

// Where the selection was last measured, else the key's own shape.
std::vector<Axes> MeasuredShapes(const Catalog::Op& op, const KeyPolicy& policy, const Axes& key,
                                 const StoredSelection& selection,
                                 absl::Span<const Placed<ledger::Trial>> trials) {
  std::string session;
  std::set<std::string> shapes;
  for (auto it = trials.rbegin(); it != trials.rend(); ++it) {
    const ledger::Trial& t = it->record;
    if (!Counts(t) || t.variant != selection.variant ||
        t.fingerprint != selection.variant_fingerprint.Hex() ||
        t.config != ConfigText(selection.config) || KeyOf(op.spec(), policy, t.axes) != key) {
      continue;
    }
    if (shapes.empty()) session = t.session;
    if (t.session == session) shapes.insert(t.axes);
  }
  std::vector<Axes> measured;
  for (const std::string& axes : shapes) measured.push_back(*ParseAxes(axes));
  if (measured.empty()) {
    const absl::StatusOr<AxisVector> shape = ResolveAxes(op.spec(), key);
    measured.push_back(shape.ok() ? NamedAxes(op.spec(), *shape) : key);
  }
  return measured;
}

using NewestVerdicts =
    std::map<std::pair<std::string, std::string>, const Placed<ledger::Verdict>*>;

// What ship verdicts say together, with the time of the session that was the last of each.
Evidence EvidenceOf(const NewestVerdicts& verdicts, absl::Span<const Placed<ledger::Trial>> trials,
                    int tried) {
  Evidence evidence{.tried = tried, .verdict = "WIN", .kind = "ship"};
  evidence.gain_low = std::numeric_limits<double>::infinity();
  evidence.gain_high = -std::numeric_limits<double>::infinity();
  double logs = 0;
  size_t timed = 0;
  for (const auto& [at, placed] : verdicts) {
    const ledger::Verdict& v = placed->record;
    evidence.gain_low = std::min(evidence.gain_low, v.low);
    evidence.gain_high = std::max(evidence.gain_high, v.high);
    evidence.incumbent = ConfigName(v.incumbent, v.incumbent_config);
    evidence.device = placed->where.device_name;
    evidence.date = std::max(evidence.date, v.time);
    const auto trial = std::find_if(trials.begin(), trials.end(), [&](const auto& other) {
      const ledger::Trial& t = other.record;
      return Counts(t) && t.session == v.session && t.axes == v.axes && t.mode == v.mode &&
             t.variant == v.challenger && t.fingerprint == v.challenger_fingerprint &&
             t.config == v.challenger_config && DeviceOf(other.where) == at.first;
    });
    if (trial == trials.end()) continue;
    logs += std::log(trial->record.median_us);
    ++timed;
  }
  if (timed == verdicts.size()) evidence.median_us = std::exp(logs / static_cast<double>(timed));
  return evidence;
}

}  // namespace

std::optional<Axes> KeyOf(const OpSpec& op, const KeyPolicy& policy, const std::string& axes) {
  const absl::StatusOr<Axes> parsed = ParseAxes(axes);
  if (!parsed.ok()) return std::nullopt;
  const absl::StatusOr<AxisVector> resolved = ResolveAxes(op, *parsed);
  if (!resolved.ok()) return std::nullopt;
  return policy.Named(policy.Bucket(*resolved));
}

Axes LeastAxes(const OpSpec& op, const Axes& axes) {
  Axes least = axes;
  for (const AxisSpec& axis : op.axes) {
    const auto it = least.find(axis.name);
    if (it == least.end()) continue;
    if (axis.is_const || it->second == axis.default_value) least.erase(it);
  }
  return least;
}

bool IsDefaultBaseline(const Catalog::Op& op, const StoredSelection& selection) {
  return op.baseline != nullptr && selection.variant == op.baseline->name &&
         selection.config == DefaultConfig(op.baseline->tunables);
}

ShipProof ProofFor(const Catalog::Op& op, const KeyPolicy& policy, const Axes& key,
                   const StoredSelection& selection,
                   absl::Span<const Placed<ledger::Verdict>> verdicts,
                   absl::Span<const Placed<ledger::Trial>> trials) {
  ShipProof proof{.evidence = selection.evidence};
  proof.shipped = IsDefaultBaseline(op, selection) ||
                  (selection.evidence.kind == "ship" && selection.evidence.verdict == "WIN");
  if (proof.shipped) return proof;

  // The newest row of each shape on each device; later ones replace earlier ones.
  NewestVerdicts newest;
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
    proof.shapes = MeasuredShapes(op, policy, key, selection, trials);
    return proof;
  }
  std::set<std::string> bad, undecided;  // shapes
  std::map<std::string, bool> won;       // by device
  const auto note = [&](std::string_view what) {
    StrAppend(&proof.missing, proof.missing.empty() ? "" : ", ", what);
  };
  for (const auto& [at, placed] : newest) {
    const ledger::Verdict& verdict = placed->record;
    if (Excludes(verdict)) {
      won[at.first] |= verdict.verdict == "WIN";
      continue;
    }
    note(StrCat("its ship verdict at {", ShapeText(op.spec(), verdict.axes), "} is ",
                verdict.verdict, " on ", placed->where.device_name));
    bad.insert(verdict.axes);
  }
  for (const auto& [device, win] : won) {
    if (win || !bad.empty()) continue;
    note(StrCat("its ship verdicts on ", device, " have no win"));
    for (const auto& [at, placed] : newest) {
      if (at.first == device) undecided.insert(placed->record.axes);
    }
  }
  if (!proof.missing.empty()) {
    for (const std::string& axes : bad.empty() ? undecided : bad) {
      proof.shapes.push_back(*ParseAxes(axes));  // it has been in KeyOf
    }
    return proof;
  }
  proof.evidence = EvidenceOf(newest, trials, selection.evidence.tried);
  proof.shipped = true;
  return proof;
}

}  // namespace kvr
