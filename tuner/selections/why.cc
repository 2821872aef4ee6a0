// SPDX-License-Identifier: Apache-2.0
#include "tuner/selections/why.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/selections/placed.h"
#include "tuner/stats/summary.h"

namespace kvr {
namespace {

// Position among the stages of a race; -1: another trial.
int StageOf(const std::string& stage) {
  constexpr std::string_view kStages[] = {"screen", "halve", "final", "duel"};
  const auto* const at = std::find(std::begin(kStages), std::end(kStages), stage);
  return at == std::end(kStages) ? -1 : static_cast<int>(at - std::begin(kStages));
}

std::string Mirrored(const std::string& verdict) {
  if (verdict == "WIN") return "LOSS";
  if (verdict == "LOSS") return "WIN";
  return verdict;
}

class Finder {
 public:
  explicit Finder(const WhyRequest& request) : request_(request), op_(request.op) {}

  absl::StatusOr<Why> Run() {
    KVR_RETURN_IF_ERROR(ReadLedger());
    const SelectionContent::Op* stored = nullptr;
    if (request_.selections != nullptr) {
      const auto found = request_.selections->ops.find(op_.name());
      if (found != request_.selections->ops.end()) stored = &found->second;
    }
    policy_ = op_.policy;
    if (stored != nullptr) {
      KVR_ASSIGN_OR_RETURN(policy_, KeyPolicy::Parse(stored->key_policy, op_.spec()));
    }
    KVR_ASSIGN_OR_RETURN(const AxisVector shape, ResolveAxes(op_.spec(), request_.shape));
    shape_ = NamedAxes(op_.spec(), shape);
    why_.key = policy_.Named(policy_.Bucket(shape));
    why_.key_policy = policy_.text();
    const StoredSelection* selection = nullptr;
    if (stored != nullptr) {
      const auto found = stored->by_key.find(why_.key);
      if (found != stored->by_key.end()) selection = &found->second;
    }
    KVR_RETURN_IF_ERROR(Decide(selection));
    Verdicts();
    Race();
    Rejected();
    Summaries();
    return std::move(why_);
  }

 private:
  absl::Status ReadLedger() {
    if (request_.ledger != nullptr) {
      const ledger::Ledger& ledger = *request_.ledger;
      KVR_ASSIGN_OR_RETURN(trials_, PlacedRecords<ledger::Trial>(ledger, op_.name(), ""));
      KVR_ASSIGN_OR_RETURN(builds_, PlacedRecords<ledger::Build>(ledger, op_.name(), ""));
      KVR_ASSIGN_OR_RETURN(verdicts_, PlacedRecords<ledger::Verdict>(ledger, op_.name(), ""));
      KVR_ASSIGN_OR_RETURN(published_, PlacedRecords<ledger::Publication>(ledger, op_.name(), ""));
      KVR_ASSIGN_OR_RETURN(summaries_, PlacedRecords<ledger::Summary>(ledger, op_.name(), ""));
    }
    std::set<std::string> models, measured;  // all; those that count
    const auto note = [&](const auto& records) {
      for (const auto& placed : records) {
        if (placed.where.device_model.empty()) continue;  // built for a target, on no device
        models.insert(placed.where.device_model);
        if constexpr (requires { Counts(placed.record); }) {
          if (Counts(placed.record)) measured.insert(placed.where.device_model);
        }
      }
    };
    note(trials_);
    note(builds_);
    note(verdicts_);
    note(published_);
    KVR_RETURN_IF_ERROR(DecideModel(models, measured));
    const auto keep_here = [&](auto& records) {
      std::erase_if(records, [&](const auto& placed) {
        return why_.device_model.empty() || placed.where.device_model != why_.device_model;
      });
    };
    keep_here(trials_);
    keep_here(builds_);
    keep_here(verdicts_);
    keep_here(published_);
    measured.erase(why_.device_model);
    why_.elsewhere.assign(measured.begin(), measured.end());
    return absl::OkStatus();
  }

  absl::Status DecideModel(const std::set<std::string>& models,
                           const std::set<std::string>& measured) {
    const std::string& asked = request_.device_model;
    const std::string file =
        request_.selections == nullptr ? "" : request_.selections->device_model;
    std::set<std::string> known = models;
    if (!file.empty()) known.insert(file);
    if (!asked.empty() && known.count(asked) == 0) {
      return UnknownName("device model", asked,
                         std::vector<std::string_view>(known.begin(), known.end()));
    }
    if (!asked.empty() && !file.empty() && asked != file) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("the selection file is for ", file, ": it selects nothing on ", asked),
                   StrCat("leave --model out, or name a file for ", asked));
    }
    why_.device_model = !asked.empty() ? asked : file;
    if (!why_.device_model.empty() || measured.empty()) return absl::OkStatus();
    if (measured.size() > 1) {
      return Error(absl::StatusCode::kFailedPrecondition,
                   StrCat("the ledger knows several device models: ", StrJoin(measured, ", ")),
                   "name one with --model");
    }
    why_.device_model = *measured.begin();
    return absl::OkStatus();
  }

  bool IsOfKey(const std::string& axes) {
    const auto [at, fresh] = is_of_key_.emplace(axes, false);
    if (fresh) at->second = KeyOf(op_.spec(), policy_, axes) == why_.key;
    return at->second;
  }

  // The variant as it is here; null: it is not, for the reason given.
  VariantPtr Here(const std::string& name, const std::string& fingerprint, std::string* reason) {
    for (const VariantPtr& variant : op_.variants) {
      if (variant->name != name) continue;
      if (variant->fingerprint.Hex() == fingerprint) return variant;
      *reason = StrCat("variant '", name, "' has changed since it was measured");
      return nullptr;
    }
    *reason = StrCat("variant '", name, "' is not here");
    return nullptr;
  }

  // Of this key: the last that says what is selected.
  const ledger::Publication* LastPublication() {
    for (auto it = published_.rbegin(); it != published_.rend(); ++it) {
      if (it->record.axes.empty()) continue;  // what a process served, not what is selected
      const absl::StatusOr<Axes> axes = ParseAxes(it->record.axes);
      const bool is_key = axes.ok() && *axes == why_.key;
      if (it->record.outcome == "published" && (is_key || IsOfKey(it->record.axes))) {
        return &it->record;
      }
    }
    return nullptr;
  }

  absl::Status Decide(const StoredSelection* stored) {
    const ledger::Publication* publication = LastPublication();
    Selection selection;
    std::string stale, by = "selection";
    if (stored != nullptr) {
      selection.variant = Here(stored->variant, stored->variant_fingerprint.Hex(), &stale);
      selection.config = stored->config;
      why_.evidence = stored->evidence;
      if (publication != nullptr && publication->variant == stored->variant &&
          publication->config == ConfigText(stored->config)) {
        why_.published = publication->time;
      }
    } else if (request_.selections == nullptr && publication != nullptr) {
      by = "publication";
      selection.variant = Here(publication->variant, publication->fingerprint, &stale);
      if (selection.variant != nullptr) {
        KVR_ASSIGN_OR_RETURN(selection.config,
                             ParseConfig(publication->config, selection.variant->tunables));
      }
      why_.published = publication->time;
    }
    const Selection* selected = selection.variant == nullptr ? nullptr : &selection;
    static const Overrides kNone;
    const Overrides& overrides = request_.overrides == nullptr ? kNone : *request_.overrides;
    KVR_ASSIGN_OR_RETURN(const Choice choice,
                         Choose(op_, selected, overrides, request_.approximate));
    why_.variant = choice.selection.variant->name;
    fingerprint_ = choice.selection.variant->fingerprint.Hex();
    why_.config = choice.selection.config;
    if (choice.selection.overridden) {
      why_.by = "override";
      why_.because = choice.why;
    } else if (choice.from_generation) {
      why_.by = by;
      why_.because = by == "selection" ? "the selection file selects it"
                                       : "by the ledger it was the last to be published; there is "
                                         "no selection file to look into";
    } else {
      why_.by = "baseline";
      why_.stale = !stale.empty();
      why_.because =
          !stale.empty()                   ? StrCat("what is selected does not hold: ", stale)
          : !choice.refused.ok()           ? StrCat(What(choice.refused), "; ", Fix(choice.refused))
          : request_.selections != nullptr ? "the selection file selects nothing for this key"
                                           : "nothing was published for this key";
    }
    return absl::OkStatus();
  }

  bool IsServed(const std::string& variant, const std::string& fingerprint,
                const std::string& config) const {
    return variant == why_.variant && config == ConfigText(why_.config) &&
           fingerprint == fingerprint_;
  }

  void Verdicts() {
    std::map<std::tuple<std::string, std::string, std::string, std::string, std::string>, size_t>
        order;  // later rows replace earlier ones
    std::vector<std::optional<WhyVerdict>> all;
    for (const Placed<ledger::Verdict>& placed : verdicts_) {
      const ledger::Verdict& v = placed.record;
      if (!IsOfKey(v.axes)) continue;
      const bool challenger = IsServed(v.challenger, v.challenger_fingerprint, v.challenger_config);
      const bool incumbent = IsServed(v.incumbent, v.incumbent_fingerprint, v.incumbent_config);
      if (challenger == incumbent) continue;  // neither, or A against A
      WhyVerdict told{.other = challenger ? ConfigName(v.incumbent, v.incumbent_config)
                                          : ConfigName(v.challenger, v.challenger_config),
                      .variant = challenger ? v.incumbent : v.challenger,
                      .config = challenger ? v.incumbent_config : v.challenger_config,
                      .kind = v.kind,
                      .verdict = challenger ? v.verdict : Mirrored(v.verdict),
                      .reason = v.reason,
                      .difference = challenger ? v.difference : -v.difference,
                      .low = challenger ? v.low : -v.high,
                      .high = challenger ? v.high : -v.low,
                      .rounds = v.rounds,
                      .sessions = v.sessions,
                      .mode = v.mode,
                      .axes = v.axes,
                      .device = placed.where.device_name,
                      .time = v.time};
      const auto [at, fresh] = order.emplace(
          std::tuple(told.other, v.axes, v.kind, v.mode, DeviceOf(placed.where)), all.size());
      if (!fresh) {
        all[at->second].reset();
        at->second = all.size();
      }
      all.emplace_back(std::move(told));
    }
    for (auto it = all.rbegin(); it != all.rend(); ++it) {
      if (it->has_value()) why_.verdicts.push_back(**std::move(it));
    }
  }

  // Null: nothing of this key was measured.
  const Placed<ledger::Trial>* Anchor() {
    const Placed<ledger::Trial>* best = nullptr;
    std::tuple<bool, bool, bool> most;
    const std::string asked = AxesText(shape_);
    for (const Placed<ledger::Trial>& placed : trials_) {
      const ledger::Trial& t = placed.record;
      if (!Counts(t) || !IsOfKey(t.axes)) continue;
      const bool served = IsServed(t.variant, t.fingerprint, t.config);
      const bool race = StageOf(t.stage) >= 0;
      if (!served && !race) continue;
      const std::tuple rank(served, t.axes == asked, race);
      if (best != nullptr && rank < most) continue;  // of equals the newest
      best = &placed;
      most = rank;
    }
    return best;
  }

  // The newest row of each config says how far it got.
  void Race() {
    const Placed<ledger::Trial>* const anchor = Anchor();
    if (anchor == nullptr) return;
    const ledger::Trial& at = anchor->record;
    why_.measured = {
        .axes = at.axes, .mode = at.mode, .device = anchor->where.device_name, .time = at.time};
    std::map<std::string, std::pair<int, WhyOther>> newest;
    for (const Placed<ledger::Trial>& placed : trials_) {
      const ledger::Trial& t = placed.record;
      if (!Counts(t) || t.session != at.session || t.axes != at.axes || t.mode != at.mode ||
          DeviceOf(placed.where) != DeviceOf(anchor->where)) {
        continue;
      }
      if (IsServed(t.variant, t.fingerprint, t.config)) {
        why_.measured.median_us = t.median_us;
        why_.measured.quality = t.quality;
        continue;
      }
      const int stage = StageOf(t.stage);
      if (stage < 0) continue;
      const std::string name = ConfigName(t.variant, t.config);
      newest[name] = {
          stage,
          {.name = name,
           .variant = t.variant,
           .config = t.config,
           .median_us = t.median_us,
           .reason = StrCat(t.outcome.empty() ? "measured" : t.outcome, " in ", t.stage),
           .quality = t.quality,
           .device = placed.where.device_name,
           .time = t.time}};
    }
    std::vector<std::pair<int, WhyOther>> others;
    for (auto& [name, other] : newest) others.push_back(std::move(other));
    std::sort(others.begin(), others.end(), [](const auto& a, const auto& b) {
      return std::tie(b.first, a.second.median_us, a.second.name) <
             std::tie(a.first, b.second.median_us, b.second.name);
    });
    for (auto& [stage, other] : others) {
      if (why_.measured.median_us > 0) {
        other.difference = std::log(other.median_us / why_.measured.median_us);
      }
      why_.runners_up.push_back(std::move(other));
    }
  }

  void Rejected() {
    std::map<std::string, WhyOther> failed;
    for (const Placed<ledger::Build>& placed : builds_) {
      const ledger::Build& b = placed.record;
      const std::string name = ConfigName(b.variant, b.config);
      if (b.status != "failed") {
        failed.erase(name);
      } else {
        failed[name] = {.name = name,
                        .variant = b.variant,
                        .config = b.config,
                        .reason = StrCat("does not build: ", b.reason),
                        .device = placed.where.device_name,
                        .time = b.time};
      }
    }
    for (const Placed<ledger::Trial>& placed : trials_) {
      const ledger::Trial& t = placed.record;
      if (!IsOfKey(t.axes)) continue;
      const std::string name = ConfigName(t.variant, t.config);
      if (t.status == "PASSED") {
        failed.erase(name);
      } else {
        failed[name] = {.name = name,
                        .variant = t.variant,
                        .config = t.config,
                        .reason = StrCat(t.status, t.reason.empty() ? "" : ": ", t.reason),
                        .device = placed.where.device_name,
                        .time = t.time};
      }
    }
    for (auto& [name, other] : failed) why_.rejected.push_back(std::move(other));
  }

  // Of any device: each says where. A shape of theirs is one if no axis contradicts.
  void Summaries() {
    for (const Placed<ledger::Summary>& placed : summaries_) {
      const ledger::Summary& s = placed.record;
      const absl::StatusOr<Axes> axes = ParseAxes(s.axes);
      const bool here = axes.ok() && std::all_of(axes->begin(), axes->end(), [&](const auto& axis) {
                          const auto at = request_.shape.find(axis.first);
                          return at != request_.shape.end() && at->second == axis.second;
                        });
      if (!here) continue;
      const stats::Verdict verdict = stats::JudgeSummary(s.percents, s.band_percent);
      why_.summaries.push_back(
          {.other = StrCat(ConfigName(s.challenger, s.challenger_config), " against ",
                           ConfigName(s.incumbent, s.incumbent_config)),
           .kind = "summary",
           .verdict = std::string(stats::VerdictName(verdict)),
           .reason = StrCat(StrJoin(s.percents, ", "), " % of ", s.unit, ", band ", s.band_percent,
                            " %", s.reason.empty() ? "" : StrCat("; ", s.reason), "; ", s.source),
           .axes = s.axes,
           .device = placed.where.device_name,
           .time = s.time});
    }
  }

  const WhyRequest& request_;
  const Catalog::Op& op_;
  KeyPolicy policy_;
  Why why_;
  Axes shape_;  // as asked, every axis
  std::string fingerprint_;
  std::map<std::string, bool> is_of_key_;  // by the text of axes: a ledger has few
  std::vector<Placed<ledger::Trial>> trials_;
  std::vector<Placed<ledger::Build>> builds_;
  std::vector<Placed<ledger::Verdict>> verdicts_;
  std::vector<Placed<ledger::Publication>> published_;
  std::vector<Placed<ledger::Summary>> summaries_;
};

}  // namespace

absl::StatusOr<Why> ExplainSelection(const WhyRequest& request) { return Finder(request).Run(); }

}  // namespace kvr
