// SPDX-License-Identifier: Apache-2.0
#include "cli/tune_text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "cli/samples.h"
#include "cli/table.h"
#include "cli/work.h"
#include "core/quality.h"
#include "core/strings.h"
#include "tuner/feasibility.h"

namespace kvr::cli {
namespace {

bool Has(const std::vector<Axes>& shapes, const Axes& axes) {
  return std::find(shapes.begin(), shapes.end(), axes) != shapes.end();
}

// One reason, and how many configs have it.
struct Tally {
  std::string variant, label, reason;
  int count = 0;
};

// Grouped by variant and kind of reason, in the order met.
class Tallies {
 public:
  void Add(const std::string& variant, std::string label, const std::string& reason) {
    const std::string kind = ReasonKind(reason);
    const auto [found, added] = index_.emplace(std::tuple(variant, label, kind), tallies_.size());
    if (added) tallies_.push_back({variant, std::move(label), reason, 0});
    ++tallies_[found->second].count;
  }
  const std::vector<Tally>& all() const { return tallies_; }

 private:
  std::map<std::tuple<std::string, std::string, std::string>, size_t> index_;
  std::vector<Tally> tallies_;
};

// The gist of a prune reason: "same plan", "topk <= 4096", "block.x = 2048 is out of range".
std::string Gist(const std::string& reason) {
  std::string gist = reason.substr(0, reason.find("; "));
  for (const std::string_view end : {" at these axes", " and plan as "}) {
    gist = gist.substr(0, gist.find(end));
  }
  // What a value was computed from, parentheses of its own included.
  for (size_t at; (at = gist.find(" (")) != std::string::npos;) {
    size_t end = at + 1;
    int open = 0;
    do {
      open += gist[end] == '(' ? 1 : gist[end] == ')' ? -1 : 0;
    } while (++end < gist.size() && open > 0);
    gist.erase(at, end - at);
  }
  if (const size_t colon = gist.rfind(": "); colon != std::string::npos) gist.erase(0, colon + 2);
  return gist;
}

// How one variant's configs did for one key.
struct Standing {
  struct Times {
    std::vector<double> screen, finals;
    std::vector<QualityMeasure> quality;  // at the first shape
  };
  std::map<Config, Times> times;
  std::set<Config> failed, pruned;
  Tallies why_pruned;
};

// Over the shapes of a key, like the selections; negative where one is missing.
double GeometricMean(const std::vector<double>& values, size_t shapes) {
  if (values.size() < shapes) return -1;
  double sum = 0;
  for (double value : values) sum += std::log(value);
  return std::exp(sum / static_cast<double>(values.size()));
}

std::map<std::string, Standing> StandingsOf(const TunedKey& key, const TuneReport& report) {
  std::map<std::string, Standing> standings;
  for (const Trial& trial : report.trials) {
    const bool measured = Has(key.shapes, trial.axes);
    if (!measured && !Has(key.verified, trial.axes)) continue;
    Standing& standing = standings[trial.variant];
    if (trial.status != TrialStatus::kPassed) standing.failed.insert(trial.config);
    if (!measured || trial.screen_us < 0) continue;
    Standing::Times& times = standing.times[trial.config];
    if (times.quality.empty()) times.quality = trial.quality;
    times.screen.push_back(trial.screen_us);
    if (trial.median_us >= 0) times.finals.push_back(trial.median_us);
  }
  for (const TuneReport::PrunedConfig& config : report.pruned) {
    if (!Has(key.shapes, config.axes)) continue;
    Standing& standing = standings[config.variant];
    standing.pruned.insert(config.config);
    standing.why_pruned.Add(config.variant, "", config.reason);
  }
  return standings;
}

std::vector<std::string> Line(const Catalog& catalog, const std::string& op,
                              const std::string& variant, const Standing& standing, size_t shapes,
                              bool with_quality) {
  const Config* best = nullptr;
  std::pair<bool, double> best_us;  // a screening median counts after every final one
  for (const auto& [config, times] : standing.times) {
    if (standing.failed.count(config) > 0) continue;
    const double last = GeometricMean(times.finals, shapes);
    const double us = last >= 0 ? last : GeometricMean(times.screen, shapes);
    if (us < 0) continue;
    const std::pair<bool, double> candidate(last < 0, us);
    if (best != nullptr && !(candidate < best_us)) continue;
    best = &config;
    best_us = candidate;
  }
  const std::vector<Tally>& why = standing.why_pruned.all();
  const auto most = std::max_element(
      why.begin(), why.end(), [](const Tally& a, const Tally& b) { return a.count < b.count; });
  std::vector<std::string> line = {variant,
                                   best == nullptr ? "-" : ShortConfig(catalog, op, variant, *best),
                                   best == nullptr ? "-" : Microseconds(best_us.second),
                                   StrCat(standing.times.size()),
                                   StrCat(standing.failed.size()),
                                   StrCat(standing.pruned.size()),
                                   most == why.end() ? "" : Gist(most->reason)};
  if (with_quality) {
    line.insert(line.begin() + 3,
                best == nullptr ? "-" : WorstErrorText(standing.times.at(*best).quality));
  }
  return line;
}

bool HasQuality(const std::map<std::string, Standing>& standings) {
  for (const auto& [variant, standing] : standings) {
    for (const auto& [config, times] : standing.times) {
      if (!times.quality.empty()) return true;
    }
  }
  return false;
}

void PrintVariants(const Catalog& catalog, const std::string& op, const TuneReport& report) {
  for (const TunedKey& key : report.selections) {
    const std::map<std::string, Standing> standings = StandingsOf(key, report);
    const bool with_quality = HasQuality(standings);
    std::vector<Table::Column> columns = {{"variant"},
                                          {"best config"},
                                          {"median", Table::Align::kRight},
                                          {"timed", Table::Align::kRight},
                                          {"failed", Table::Align::kRight},
                                          {"pruned", Table::Align::kRight},
                                          {"mostly for"}};
    if (with_quality) columns.insert(columns.begin() + 3, {"off exact", Table::Align::kRight});
    Table table(std::move(columns));
    for (const auto& [variant, standing] : standings) {
      table.Row(Line(catalog, op, variant, standing, key.shapes.size(), with_quality));
    }
    if (table.empty()) continue;
    Print("\n" + (report.selections.size() > 1 ? AxesText(key.key) + "\n" : std::string()));
    Print(table.Render(TerminalWidth()));
  }
  Print("\n");
}

// A key's own axes, and what is not at the op's default.
std::string ShapeOf(const Catalog& catalog, const std::string& op, const Axes& key,
                    const Axes& axes) {
  const absl::StatusOr<const Catalog::Op*> found = catalog.FindOp(op);
  if (!found.ok()) return AxesText(axes);
  Axes shown;
  for (const AxisSpec& axis : (*found)->spec().axes) {
    const auto it = axes.find(axis.name);
    if (it == axes.end() || axis.is_const) continue;
    if (key.count(axis.name) > 0 || it->second != axis.default_value) shown.insert(*it);
  }
  return shown.empty() ? "defaults" : AxesText(shown);
}

void PrintShapes(const Catalog& catalog, const std::string& op, const TuneReport& report) {
  for (const TunedKey& key : report.selections) {
    const auto text = [&](const std::vector<Axes>& shapes) {
      std::string list;
      for (const Axes& axes : shapes) {
        list += (list.empty() ? "" : "; ") + ShapeOf(catalog, op, key.key, axes);
      }
      return list;
    };
    Print(Wrap(
        StrCat(AxesText(key.key), ": measured at ", text(key.shapes),
               key.verified.empty() ? "" : StrCat(", verified at ", text(key.verified), " too")),
        TerminalWidth(), 2));
  }
}

// One that all keys share is said once, of all.
void PrintNotes(const std::vector<std::string>& none_passed, const TuneReport& report) {
  std::set<std::string> said;
  for (const TunedKey& key : report.selections) {
    const bool shared = std::all_of(report.selections.begin(), report.selections.end(),
                                    [&](const TunedKey& other) { return other.note == key.note; });
    if (key.note.empty() || (shared && !said.insert(key.note).second)) continue;
    Print(Wrap((shared ? "" : AxesText(key.key) + ": ") + key.note, TerminalWidth(), 0));
  }
  for (const std::string& variant : none_passed) {
    const std::string line = "no config of '" + variant + "' passed";
    if (said.insert(line).second) Print(line + "\n");
  }
}

// "topk=512: one choice for all 11 keys would be w8 (...); a key's own: 3 WIN, 8 EQUIVALENT".
void PrintSingles(const Catalog& catalog, const std::string& op, const TuneReport& report) {
  for (const SingleChoice& choice : report.singles) {
    if (choice.at.empty()) continue;
    std::map<std::string, size_t> verdicts;
    std::set<Axes> keys;  // one may be measured at several shapes
    for (const SingleAt& at : choice.at) {
      ++verdicts[at.verdict];
      keys.insert(at.key);
    }
    std::string counts;
    for (const auto& [verdict, count] : verdicts) {
      StrAppend(&counts, counts.empty() ? "" : ", ", count, " ", verdict);
    }
    Print(Wrap(StrCat(AxesText(choice.key), ": one choice for all ", keys.size(), " keys would be ",
                      choice.variant, " (", ShortConfig(catalog, op, choice.variant, choice.config),
                      "); against it each key's own: ", counts,
                      report.ledger.empty() ? "" : "; `kvr report` shows them"),
               TerminalWidth(), 2));
  }
}

// Of one config of each approximate variant, at each shape measured: its quality tunables have the
// same values in all.
void PrintQuality(const Catalog& catalog, const std::string& op, const TuneReport& report) {
  std::set<std::pair<std::string, Axes>> told;
  for (const Trial& trial : report.trials) {
    if (trial.quality.empty() || trial.screen_us < 0 ||
        !told.insert({trial.variant, trial.axes}).second) {
      continue;
    }
    Print(Wrap(StrCat("quality of ", trial.variant, " at ", ShortShape(catalog, op, trial.axes),
                      ": ", QualityLine(trial.quality)),
               TerminalWidth(), 2));
  }
}

void PrintFailedAndPruned(const TuneReport& report) {
  Tallies failed, pruned;
  int failures = 0;
  for (const Trial& trial : report.trials) {
    if (trial.status == TrialStatus::kPassed) continue;
    ++failures;
    failed.Add(trial.variant, std::string(TrialStatusName(trial.status)), trial.reason);
  }
  for (const TuneReport::PrunedConfig& config : report.pruned) {
    pruned.Add(config.variant, "", config.reason);
  }
  for (const Tally& tally : failed.all()) {
    Print(
        Wrap(StrCat("failed: ", tally.variant, ": ", Count(static_cast<size_t>(tally.count), "run"),
                    ": ", tally.label, ": ", tally.reason),
             TerminalWidth(), 2));
  }
  for (const Tally& tally : pruned.all()) {
    Print(Wrap(StrCat("pruned: ", tally.variant, ": ",
                      Count(static_cast<size_t>(tally.count), "config"), ": ", tally.reason),
               TerminalWidth(), 2));
  }
  Print(StrCat(Count(report.pruned.size(), "config"), " pruned before running, ", failures,
               " failed; measured on ", report.device.name, "\n"));
}

// What was not measured for what the ledger has of it, a line for each way it was rejected.
void PrintRejected(const TuneReport& report) {
  struct Group {
    int count = 0;
    std::string newest;
  };
  std::map<std::string, Group> groups;
  for (const TuneReport::RejectedConfig& config : report.rejected) {
    Group& group = groups[config.status];
    ++group.count;
    group.newest = std::max(group.newest, config.time.substr(0, 10));
  }
  for (const auto& [status, group] : groups) {
    const std::string count = Count(static_cast<size_t>(group.count), "config");
    Print(Wrap(StrCat(count, group.count == 1 ? " was rejected on " : " were rejected on ",
                      group.newest, " here (", status == "PASSED" ? "slower than others" : status,
                      "); --retest measures ", group.count == 1 ? "it" : "them", " again"),
               TerminalWidth(), 0));
  }
}

// A verdict is the challenger's, whom the table does not show where the incumbent stays.
std::string Said(const TunedKey& key) {
  if (key.verdict.empty()) return "-";
  return key.incumbent_kept ? StrCat("kept; ", key.challenger_variant, ": ", key.verdict)
                            : key.verdict;
}

// "w8 {BLOCK_H=16} against it: -3.2 % (-3.9 to -2.5) in 24 rounds, noise band ±1.0 % (...): WIN"
void PrintVerdict(const Catalog& catalog, const std::string& op, const TunedKey& key) {
  const std::string where = AxesText(key.key) + ": ";
  if (!key.race_trouble.empty()) {
    Print(Wrap(StrCat(where, "the race was disturbed: ", key.race_trouble), TerminalWidth(), 2));
  }
  if (key.verdict.empty()) {
    if (!key.reason.empty()) Print(Wrap(where + key.reason, TerminalWidth(), 2));
    return;
  }
  const std::string interval =
      std::isfinite(key.difference.low) && std::isfinite(key.difference.high)
          ? StrCat(" (", RelativeText(key.difference.low), " to ",
                   RelativeText(key.difference.high), ")")
          : "";
  const std::string config =
      ShortConfig(catalog, op, key.challenger_variant, key.challenger_config);
  Print(Wrap(
      StrCat(where, key.verdict, " for the challenger ", key.challenger_variant, " (", config,
             ") against ", key.incumbent_variant, " (",
             ShortConfig(catalog, op, key.incumbent_variant, key.incumbent_config), "): ",
             key.rounds > 0 ? StrCat(RelativeText(std::log1p(-key.gain)), interval, " in ",
                                     Count(static_cast<size_t>(key.rounds), "round"), ", ")
                            : "",
             key.band_source.empty() ? "no noise band" : StrCat("noise band ", key.band_source),
             key.reason.empty() ? "" : StrCat("; ", key.reason),
             key.incumbent_kept ? "; the incumbent stays" : ""),
      TerminalWidth(), 2));
}

}  // namespace

std::vector<std::string> NonePassed(const std::vector<std::string>& named,
                                    const TuneReport& report) {
  std::vector<std::string> none;
  for (const std::string& name : named) {
    // Slow, says the ledger, but right.
    if (std::any_of(report.rejected.begin(), report.rejected.end(), [&](const auto& config) {
          return config.variant == name && config.status == TrialStatusName(TrialStatus::kPassed);
        })) {
      continue;
    }
    if (std::none_of(report.trials.begin(), report.trials.end(), [&](const Trial& trial) {
          return trial.variant == name && trial.status == TrialStatus::kPassed &&
                 trial.screen_us >= 0;
        })) {
      none.push_back(name);
    }
  }
  return none;
}

void PrintTuneText(const Catalog& catalog, const std::string& op, const std::string& selections,
                   const std::vector<std::string>& named, const TuneReport& report) {
  Table table({{"key"},
               {"selected"},
               {"config"},
               {"median", Table::Align::kRight},
               {"incumbent", Table::Align::kRight},
               {"verdict"}});
  for (const TunedKey& key : report.selections) {
    const bool raced = !key.incumbent_variant.empty();
    table.Row({AxesText(key.key), key.variant.empty() ? "nothing" : key.variant,
               key.variant.empty() ? "" : ShortConfig(catalog, op, key.variant, key.config),
               key.variant.empty() ? "-" : Microseconds(key.median_us),
               raced ? Microseconds(key.incumbent_us) : "-", Said(key)});
  }
  if (!table.empty()) Print(table.Render(TerminalWidth()));
  for (const TunedKey& key : report.selections) PrintVerdict(catalog, op, key);
  PrintSingles(catalog, op, report);
  PrintVariants(catalog, op, report);
  PrintQuality(catalog, op, report);
  PrintShapes(catalog, op, report);
  PrintSkipped(report.skipped);
  PrintFailedAndPruned(report);
  PrintRejected(report);
  for (const std::string& cut : report.cut) Print(Wrap(cut, TerminalWidth(), 2));
  if (report.session.buffer_sets > 0) {
    Print(Wrap(SessionInfoText(report.device, report.session), TerminalWidth(), 0));
  }
  if (report.device.kind == "host") Print("host timings rank nothing on a GPU\n");
  PrintNotes(NonePassed(named, report), report);
  if (!report.ledger_trouble.empty()) {
    Print(Wrap("the ledger is not whole: " + report.ledger_trouble, TerminalWidth(), 2));
  }
  if (!report.digest.empty()) {
    Print(StrCat("selections in ", selections, ", digest ", report.digest.substr(0, 12), "\n"));
  }
}

}  // namespace kvr::cli
