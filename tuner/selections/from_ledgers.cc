// SPDX-License-Identifier: Apache-2.0
#include "tuner/selections/from_ledgers.h"

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
#include "tuner/selections/shipped.h"

namespace kvr {
namespace {

constexpr double kLeastBand = 0.01;
constexpr std::string_view kServes = "graph cold";

struct Candidate {
  std::string variant, fingerprint, config;
  auto operator<=>(const Candidate&) const = default;
};
using Cell = std::pair<std::string, std::string>;  // GPU, axes

// All ledgers' records of one op on one model, in an order that the ledgers' own does not change.
template <class Record>
absl::StatusOr<std::vector<Placed<Record>>> Union(absl::Span<const ledger::Ledger* const> ledgers,
                                                  const std::string& op, const std::string& model) {
  std::vector<std::pair<std::vector<std::string>, std::vector<Placed<Record>>>> parts;
  for (const ledger::Ledger* ledger : ledgers) {
    KVR_ASSIGN_OR_RETURN(std::vector<Placed<Record>> records,
                         PlacedRecords<Record>(*ledger, op, model));
    std::vector<std::string> uids;
    for (const Placed<Record>& placed : records) uids.push_back(placed.record.uid);
    parts.emplace_back(std::move(uids), std::move(records));
  }
  std::sort(parts.begin(), parts.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::set<std::string> seen;
  std::vector<Placed<Record>> all;
  for (auto& [uids, records] : parts) {
    for (Placed<Record>& placed : records) {
      if (seen.insert(placed.record.uid).second) all.push_back(std::move(placed));
    }
  }
  return all;
}

bool IsDecisive(const ledger::Trial& trial) {
  return trial.status == "PASSED" && trial.median_us > 0 && std::isfinite(trial.median_us) &&
         (trial.stage == "final" || trial.stage == "duel" || trial.stage == "ab");
}

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// What the ledgers know of one key.
struct KeyTrials {
  std::map<Candidate, std::map<Cell, std::vector<double>>> times;
  std::map<Candidate, std::set<std::string>> binaries;
  std::set<Cell> cells;
  std::string device, date;
};

class OpMerge {
 public:
  OpMerge(const Catalog::Op& op, const std::set<std::string>& gpus, bool unshipped,
          std::vector<Placed<ledger::Trial>> trials, std::vector<Placed<ledger::Verdict>> verdicts)
      : op_(op), gpus_(gpus), unshipped_(unshipped) {
    for (Placed<ledger::Verdict>& placed : verdicts) {
      const std::optional<Axes> key = KeyOf(op.spec(), op.policy, placed.record.axes);
      if (!key.has_value() || placed.record.kind != "ship") continue;
      shipped_candidates_[*key].insert({placed.record.challenger,
                                        placed.record.challenger_fingerprint,
                                        placed.record.challenger_config});
      keys_[*key].date = std::max(keys_[*key].date, placed.record.time);
      keys_[*key].device = placed.where.device_name;
      verdicts_[DeviceOf(placed.where)].push_back(std::move(placed));
    }
    trials_ = std::move(trials);
    std::set<std::string> modes;
    for (const Placed<ledger::Trial>& placed : trials_) {
      if (IsDecisive(placed.record)) modes.insert(placed.record.mode);
    }
    const std::string mode = modes.empty()                           ? ""
                             : modes.count(std::string(kServes)) > 0 ? std::string(kServes)
                                                                     : *modes.begin();
    for (const Placed<ledger::Trial>& placed : trials_) {
      const ledger::Trial& trial = placed.record;
      const std::optional<Axes> key = KeyOf(op.spec(), op.policy, trial.axes);
      if (!IsDecisive(trial) || trial.mode != mode || !key.has_value()) continue;
      KeyTrials& known = keys_[*key];
      const Candidate candidate{trial.variant, trial.fingerprint, trial.config};
      const Cell cell{DeviceOf(placed.where), trial.axes};
      known.times[candidate][cell].push_back(trial.median_us);
      if (!trial.binary.empty()) known.binaries[candidate].insert(trial.binary);
      known.cells.insert(cell);
      known.device = placed.where.device_name;
      known.date = std::max(known.date, trial.time);
    }
  }

  void Run(FromLedgers& result) {
    SelectionContent::Op& out = result.content.ops[op_.name()];
    out.key_policy = op_.policy.text();
    for (const auto& [key, known] : keys_) {
      MergedKey merged{.op = op_.name(), .key = key};
      std::optional<StoredSelection> selected = Shipped(key, known, merged.why);
      if (!selected.has_value()) selected = Fastest(known, merged.why);
      if (selected.has_value()) {
        merged.selected = ConfigName(selected->variant, ConfigText(selected->config));
        out.by_key.emplace(key, *std::move(selected));
      }
      result.keys.push_back(std::move(merged));
    }
    if (out.by_key.empty()) result.content.ops.erase(op_.name());
  }

 private:
  // As it is here; none: it is not, or not any more, or it may not be selected.
  std::optional<StoredSelection> Resolve(const Candidate& candidate, const KeyTrials& known) const {
    for (const VariantPtr& variant : op_.variants) {
      if (variant->name != candidate.variant) continue;
      if (variant->fingerprint.Hex() != candidate.fingerprint ||
          variant->semantics != Semantics::kExact) {
        return std::nullopt;
      }
      const absl::StatusOr<Config> config = ParseConfig(candidate.config, variant->tunables);
      if (!config.ok() || !CheckConfig(*config, variant->tunables).ok()) return std::nullopt;
      StoredSelection selection{.variant = variant->name,
                                .version = variant->version,
                                .variant_fingerprint = variant->fingerprint,
                                .config = *config};
      // Several compilers give several binaries: then each rank builds its own.
      const auto binaries = known.binaries.find(candidate);
      if (binaries != known.binaries.end() && binaries->second.size() == 1) {
        const absl::StatusOr<Fingerprint> binary = Fingerprint::FromHex(*binaries->second.begin());
        if (binary.ok()) selection.binary = *binary;
      }
      selection.evidence.tried = static_cast<int>(known.times.size());
      selection.evidence.device = known.device;
      selection.evidence.date = known.date;
      return selection;
    }
    return std::nullopt;
  }

  // Geometric mean over the cells; NaN where one is missing or there are none.
  static double Mean(const Candidate& candidate, const std::set<Cell>& cells,
                     const KeyTrials& known) {
    const auto times = known.times.find(candidate);
    if (times == known.times.end() || cells.empty()) return std::nan("");
    double sum = 0;
    for (const Cell& cell : cells) {
      const auto at = times->second.find(cell);
      if (at == times->second.end()) return std::nan("");
      sum += std::log(MedianOf(at->second));
    }
    return std::exp(sum / static_cast<double>(cells.size()));
  }

  std::optional<StoredSelection> Shipped(const Axes& key, const KeyTrials& known,
                                         std::string& why) const {
    std::vector<std::pair<Candidate, StoredSelection>> proven;
    const auto candidates = shipped_candidates_.find(key);
    if (candidates == shipped_candidates_.end()) return std::nullopt;
    for (const Candidate& candidate : candidates->second) {
      std::optional<StoredSelection> selection = Resolve(candidate, known);
      if (!selection.has_value() || IsDefaultBaseline(op_, *selection)) continue;
      Evidence together;
      bool everywhere = true;
      double logs = 0;
      for (const std::string& gpu : gpus_) {
        const auto verdicts = verdicts_.find(gpu);
        const ShipProof proof =
            verdicts == verdicts_.end()
                ? ShipProof()
                : ProofFor(op_, op_.policy, key, *selection, verdicts->second, trials_);
        everywhere &= proof.shipped;
        if (!everywhere) break;
        const bool first = together.verdict.empty();
        const double low = together.gain_low, high = together.gain_high;
        if (first) together = proof.evidence;
        together.gain_low =
            first ? proof.evidence.gain_low : std::min(low, proof.evidence.gain_low);
        together.gain_high =
            first ? proof.evidence.gain_high : std::max(high, proof.evidence.gain_high);
        together.date = std::max(together.date, proof.evidence.date);
        logs += std::log(proof.evidence.median_us);  // -infinity where one has no time: mean 0
      }
      if (!everywhere) continue;
      selection->evidence = together;
      selection->evidence.median_us = std::exp(logs / static_cast<double>(gpus_.size()));
      proven.emplace_back(candidate, *std::move(selection));
    }
    if (proven.empty()) return std::nullopt;
    // Cells that all of them were measured in; the fastest, of equals the first by name.
    std::set<Cell> common = known.cells;
    for (const auto& [candidate, selection] : proven) {
      const auto times = known.times.find(candidate);
      for (auto cell = common.begin(); cell != common.end();) {
        const bool has = times != known.times.end() && times->second.count(*cell) > 0;
        cell = has ? std::next(cell) : common.erase(cell);
      }
    }
    auto best = proven.begin();
    for (auto it = proven.begin(); it != proven.end(); ++it) {
      if (Mean(it->first, common, known) < Mean(best->first, common, known)) best = it;
    }
    why = StrCat("ship verdicts on ", gpus_.size() == 1 ? std::string("the only GPU")
                                                        : StrCat("all ", gpus_.size(), " GPUs"));
    return best->second;
  }

  std::optional<StoredSelection> Fastest(const KeyTrials& known, std::string& why) const {
    if (!unshipped_) {
      why = "nothing has ship verdicts on every GPU";
      return std::nullopt;
    }
    std::set<std::string> seen;
    for (const Cell& cell : known.cells) seen.insert(cell.first);
    std::optional<StoredSelection> best, baseline;
    for (const auto& [candidate, times] : known.times) {
      const double mean = Mean(candidate, known.cells, known);
      std::optional<StoredSelection> selection = Resolve(candidate, known);
      if (std::isnan(mean) || seen != gpus_ || !selection.has_value()) continue;
      selection->evidence.median_us = mean;
      if (IsDefaultBaseline(op_, *selection)) baseline = selection;
      if (!best.has_value() || mean < best->evidence.median_us) best = selection;
    }
    if (!best.has_value()) {
      why = "nothing was measured by every GPU at every shape";
      return std::nullopt;
    }
    if (baseline.has_value() &&
        best->evidence.median_us >= baseline->evidence.median_us * (1 - kLeastBand)) {
      why = "nothing is more than 1 % faster than the baseline, on the mean of all GPUs";
      baseline->evidence.verdict = "BASELINE";
      return baseline;
    }
    why = "fastest on the geometric mean of all GPUs, without ship verdicts";
    return best;
  }

  const Catalog::Op& op_;
  const std::set<std::string>& gpus_;
  const bool unshipped_;
  std::map<std::string, std::vector<Placed<ledger::Verdict>>> verdicts_;  // ship ones, by GPU
  std::vector<Placed<ledger::Trial>> trials_;
  std::map<Axes, std::set<Candidate>> shipped_candidates_;
  std::map<Axes, KeyTrials> keys_;
};

// The one device model that is asked for or that there is, in every ledger. Whatever selects
// nothing (a band, somebody's table) has no say in it.
absl::StatusOr<std::string> ModelOf(absl::Span<const ledger::Ledger* const> ledgers,
                                    const std::set<std::string>& ops, const std::string& asked) {
  std::set<std::string> all;
  for (const ledger::Ledger* ledger : ledgers) {
    std::set<std::string> here;
    for (const std::string& op : ops) {
      KVR_ASSIGN_OR_RETURN(const auto trials, PlacedRecords<ledger::Trial>(*ledger, op, ""));
      KVR_ASSIGN_OR_RETURN(const auto verdicts, PlacedRecords<ledger::Verdict>(*ledger, op, ""));
      const auto note = [&](const auto& records) {
        for (const auto& placed : records) {
          if (Counts(placed.record)) here.insert(placed.where.device_model);
        }
      };
      note(trials);
      note(verdicts);
    }
    all.insert(here.begin(), here.end());
    if (!asked.empty() && here.count(asked) == 0) {
      return Error(absl::StatusCode::kFailedPrecondition,
                   StrCat("the ledger ", ledger->path(), " has nothing of ", asked, ", but of ",
                          here.empty() ? "no device" : StrJoin(here, ", ")),
                   "leave it out, or name another --model: what was measured on one device model "
                   "selects nothing on another");
    }
  }
  if (!asked.empty()) return asked;
  if (all.size() == 1) return *all.begin();
  return Error(absl::StatusCode::kFailedPrecondition,
               all.empty()
                   ? "the ledgers have nothing"
                   : StrCat("the ledgers are of several device models: ", StrJoin(all, ", ")),
               all.empty() ? "measure something first" : "name one with --model");
}

}  // namespace

absl::StatusOr<FromLedgers> MergeLedgers(absl::Span<const ledger::Ledger* const> ledgers,
                                         const Catalog& catalog,
                                         const FromLedgersRequest& request) {
  FromLedgers result;
  std::set<std::string> ops(request.ops.begin(), request.ops.end()), targets;
  for (const std::string& op : ops) KVR_RETURN_IF_ERROR(catalog.FindOp(op).status());
  if (ops.empty()) {
    for (const auto& op : catalog.ops()) ops.insert(op->name());
  }
  KVR_ASSIGN_OR_RETURN(const std::string model, ModelOf(ledgers, ops, request.device_model));
  std::map<std::string,
           std::pair<std::vector<Placed<ledger::Trial>>, std::vector<Placed<ledger::Verdict>>>>
      records;
  std::set<std::string> gpus;
  for (const std::string& op : ops) {
    auto& [trials, verdicts] = records[op];
    KVR_ASSIGN_OR_RETURN(trials, Union<ledger::Trial>(ledgers, op, model));
    KVR_ASSIGN_OR_RETURN(verdicts, Union<ledger::Verdict>(ledgers, op, model));
    for (const auto& placed : trials) gpus.insert(DeviceOf(placed.where));
    for (const auto& placed : verdicts) gpus.insert(DeviceOf(placed.where));
    for (const auto& placed : trials) targets.insert(placed.where.target);
    for (const auto& placed : verdicts) targets.insert(placed.where.target);
  }
  if (targets.size() > 1) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat("the ledgers are of several targets: ", StrJoin(targets, ", ")),
                 "name only those of one");
  }
  result.content.device_model = model;
  result.content.target = targets.empty() ? "" : *targets.begin();
  result.content.number = 1;
  for (auto& [name, of_op] : records) {
    KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, catalog.FindOp(name));
    OpMerge(*op, gpus, request.unshipped, std::move(of_op.first), std::move(of_op.second))
        .Run(result);
  }
  result.gpus.assign(gpus.begin(), gpus.end());
  if (!result.content.ops.empty()) return result;
  std::string keys;
  for (const MergedKey& key : result.keys) {
    StrAppend(&keys, keys.empty() ? ": " : "; ", key.op, " {", AxesText(key.key), "}: ", key.why);
  }
  return Error(absl::StatusCode::kFailedPrecondition,
               StrCat("the ledgers select nothing on ", model, keys),
               request.unshipped ? "tune on every GPU"
                                 : "run `kvr ab OP ... --ship` on every GPU, or give --unshipped");
}

}  // namespace kvr
