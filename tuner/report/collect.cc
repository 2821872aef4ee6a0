// SPDX-License-Identifier: Apache-2.0
#include "tuner/report/collect.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_format.h"
#include "core/quality.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/report/evidence.h"
#include "tuner/stats/noise.h"
#include "tuner/stats/ship.h"
#include "tuner/stats/summary.h"

namespace kvr::report {
namespace {

// What the ledger has of the op, for a request that nothing meets.
absl::Status Nothing(const ledger::Ledger& ledger, const CollectRequest& request) {
  CollectRequest everything;
  everything.op = request.op;
  KVR_ASSIGN_OR_RETURN(const Evidence all, Gather(ledger, everything));
  std::set<std::string> challengers, shapes, kinds;
  for (const auto& [v, place] : all.verdicts) {
    challengers.insert(v.challenger);
    shapes.insert(all.Shape(v.axes));
    kinds.insert(v.kind);
  }
  if (challengers.empty()) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat("the ledger ", ledger.path(), " has no comparison of '", request.op, "'"),
                 StrCat("run `kvr ab ", request.op,
                        " --incumbent baseline --challenger VARIANT`, or name another --ledger"));
  }
  return Error(
      absl::StatusCode::kFailedPrecondition,
      StrCat("the ledger ", ledger.path(), " has nothing of '", request.op, "' that is asked for"),
      StrCat("it has the challengers ", StrJoin(challengers, ", "), " at ", StrJoin(shapes, "; "),
             " (", StrJoin(kinds, ", "), ")"));
}

// A ship verdict needs no band; the one that is known there says what a session may show.
double BandAt(const Evidence& evidence, const Made<ledger::Verdict>& made) {
  for (const auto& [band, place] : evidence.bands) {
    if (place == made.place && band.axes == made.record.axes && band.mode == made.record.mode) {
      return band.band;
    }
  }
  return 0;
}

std::vector<Row> Rows(const Evidence& evidence) {
  std::vector<Row> rows;
  for (const Made<ledger::Verdict>& made : evidence.verdicts) {
    rows.push_back(RowOf(evidence, made));
  }
  return rows;
}

using ConfigName = std::pair<std::string, std::string>;  // variant, config

void AddOnce(std::vector<ConfigName>* names, const ConfigName& name) {
  if (std::find(names->begin(), names->end(), name) == names->end()) names->push_back(name);
}

// "WARPS is 8 instead of 4, STAGES 3 instead of 2"; tunables that one side lacks are named.
std::string Differences(const std::string& incumbent, const std::string& challenger) {
  const std::map<std::string, std::string> before = Pairs(incumbent), after = Pairs(challenger);
  std::vector<std::string> parts, missing;
  for (const auto& [name, value] : after) {
    const auto it = before.find(name);
    if (it == before.end()) {
      parts.push_back(StrCat(name, " ", value, ", which the incumbent lacks"));
    } else if (it->second != value) {
      parts.push_back(StrCat(name, " ", value, " instead of ", it->second));
    }
  }
  for (const auto& [name, value] : before) {
    if (!after.contains(name)) missing.push_back(name);
  }
  if (!missing.empty()) parts.push_back(StrCat("no ", Listed(missing)));
  return Listed(parts);
}

std::vector<std::string> What(const Evidence& evidence, const CollectRequest& request) {
  std::vector<std::string> what;
  std::vector<std::pair<ConfigName, ConfigName>> told;
  std::set<std::string> described;
  for (const auto& [v, place] : evidence.verdicts) {
    const ConfigName incumbent{v.incumbent, v.incumbent_config};
    const ConfigName challenger{v.challenger, v.challenger_config};
    if (std::find(told.begin(), told.end(), std::pair(incumbent, challenger)) != told.end())
      continue;
    told.emplace_back(incumbent, challenger);
    if (incumbent == challenger) {
      what.push_back(StrCat(Named(evidence.Whole(v.incumbent, v.incumbent_config)),
                            " against itself, to see what the method makes of no "
                            "difference."));
      continue;
    }
    std::string text = StrCat(Named(evidence.Whole(v.challenger, v.challenger_config)), " against ",
                              v.incumbent, ".");
    const auto description = request.descriptions.find(v.challenger);
    if (description != request.descriptions.end() && described.insert(v.challenger).second) {
      StrAppend(&text, " ", description->second, ".");
    }
    const std::string differences = Differences(v.incumbent_config, v.challenger_config);
    if (!differences.empty()) StrAppend(&text, " Tunables that differ: ", differences, ".");
    if (differences.empty() && !v.challenger_config.empty()) {
      StrAppend(&text, " All tunables are the same.");
    }
    what.push_back(std::move(text));
  }
  std::string shapes;
  for (const auto& [axis, value] : evidence.shapes.common()) {
    StrAppend(&shapes, shapes.empty() ? "" : ", ", axis, "=", value);
  }
  if (!shapes.empty()) what.push_back(StrCat("Measured at ", shapes, "."));
  return what;
}

std::string Why(const Evidence& evidence, const CollectRequest& request) {
  if (!request.why.empty()) return request.why;
  std::vector<std::string> challengers, incumbents;
  for (const auto& [v, place] : evidence.verdicts) {
    const auto add = [](std::vector<std::string>* list, const std::string& name) {
      if (std::find(list->begin(), list->end(), name) == list->end()) list->push_back(name);
    };
    if (v.challenger != v.incumbent || v.challenger_config != v.incumbent_config) {
      add(&challengers,
          v.challenger == v.incumbent ? StrCat("another config of ", v.challenger) : v.challenger);
      add(&incumbents, v.incumbent);
    }
  }
  if (challengers.empty()) return "";
  return StrCat("Should ", challengers.size() == 1 ? "" : "one of ", Listed(challengers),
                " replace ", Listed(incumbents), ", and at which shapes?");
}

// "16 sessions of 20 rounds", "1 session of 8 to 160 rounds".
std::string Effort(const std::vector<Row>& rows, std::string_view kind) {
  int64_t least_sessions = INT64_MAX, most_sessions = 0, least_rounds = INT64_MAX, most_rounds = 0;
  for (const Row& row : rows) {
    if (row.kind != kind || row.verdict == "INVALID") continue;
    least_sessions = std::min(least_sessions, row.sessions);
    most_sessions = std::max(most_sessions, row.sessions);
    least_rounds = std::min(least_rounds, row.rounds);
    most_rounds = std::max(most_rounds, row.rounds);
  }
  if (most_sessions == 0) return "";
  const auto range = [](int64_t least, int64_t most) {
    return least == most ? StrCat(most) : StrCat(least, " to ", most);
  };
  return StrCat(range(least_sessions, most_sessions),
                most_sessions == 1 ? " session of " : " sessions of ",
                range(least_rounds, most_rounds), " rounds each");
}

std::vector<std::string> How(const Evidence& evidence, const std::vector<Row>& rows) {
  std::set<std::string> modes, accelerated;
  const auto used = [&](const std::string& mode, int place) {
    modes.insert(mode);
    const std::string& kind = evidence.places[static_cast<size_t>(place)].device_kind;
    if (kind != "host" && kind != "null") accelerated.insert(mode);
  };
  for (const auto& [v, place] : evidence.verdicts) used(v.mode, place);
  for (const auto& [v, place] : evidence.singles) used(v.mode, place);
  for (const Race& race : evidence.races) used(race.mode, race.place);
  std::vector<std::string> how;
  for (const std::string& mode : modes) {
    std::string text = StrCat("Mode ", mode, ":");
    if (mode.find("graph") != std::string::npos)
      StrAppend(&text, " launches are replayed from a recorded graph");
    if (mode.find("eager") != std::string::npos)
      StrAppend(&text, " each launch is issued by the host");
    // How cold a session was is not in the ledger. A host's caches hold what its ring can.
    if (mode.find("cold") != std::string::npos && accelerated.contains(mode))
      StrAppend(&text, ", and buffers rotate over more than the cache holds, where memory allows");
    if (mode.find("hot") != std::string::npos)
      StrAppend(&text, ", on the same buffers again and again");
    how.push_back(
        text + ". A sample is the time of a launch, from an epoch of as many as the clock needs.");
  }
  if (!rows.empty()) {
    how.push_back(
        "In a round both sides run once, in random order, so that what drifts touches both alike; "
        "the difference is the median of the rounds' log ratios.");
  }
  if (const std::string effort = Effort(rows, "ship"); !effort.empty()) {
    const stats::ShipOptions options;
    how.push_back(StrCat("Ship verdicts: ", effort,
                         ", a session being a fresh process. Student's t over the session "
                         "medians: a win is more than ",
                         100 * options.win_margin, " % of time at ", 100 * options.win_alpha,
                         " %, one-sided, Holm's procedure over the shapes of a run; to ship, a "
                         "regression of ",
                         100 * options.regression_margin, " % must be excluded at every shape at ",
                         100 * options.regression_alpha,
                         " %. Intervals are of 95 %, each of its shape alone."));
  }
  std::string effort = Effort(rows, "quick");
  if (effort.empty()) effort = Effort(rows, "race");
  if (!effort.empty()) {
    how.push_back(StrCat(
        "Quick verdicts: ", effort,
        ". The interval of the median holds however often one looks; a "
        "win or a loss lies wholly beyond the noise band, which covers what one session cannot "
        "see."));
  }
  if (!evidence.races.empty()) {
    how.push_back(
        "Races: all configs, then the faster half again and again, then the best by intervals; "
        "the winner meets the incumbent on samples drawn afterwards.");
  }
  if (!evidence.singles.empty()) {
    how.push_back(
        "One choice for all keys: the config that lags least behind the best of each key's race, "
        "on "
        "average over the keys. What is selected for a key meets it on samples drawn afterwards, "
        "both in one session, by a quick verdict.");
  }
  return how;
}

std::vector<std::pair<std::string, std::string>> Environment(const Evidence& evidence) {
  std::string first, last;
  int64_t slowest = INT64_MAX, fastest = 0, throttled = 0;
  for (const auto& [trial, place] : evidence.trials) {
    if (!evidence.used.contains(place)) continue;
    if (trial.clock_mhz > 0) {
      slowest = std::min(slowest, trial.clock_mhz);
      fastest = std::max(fastest, trial.clock_mhz);
    }
    throttled |= trial.throttle_bits;
  }
  const auto dated = [&](const std::string& time) {
    if (first.empty() || time < first) first = time;
    if (last.empty() || time > last) last = time;
  };
  for (const auto& [v, place] : evidence.verdicts) {
    dated(v.time);
    for (const Pair& pair : SessionsOf(evidence, {v, place})) dated(pair.incumbent->time);
  }
  for (const Race& race : evidence.races) dated(race.trials.front()->time);
  std::vector<std::pair<std::string, std::string>> lines;
  for (int place : evidence.used) {
    const ledger::Environment& e = evidence.places[static_cast<size_t>(place)];
    const std::vector<std::pair<std::string, std::string>> facts = {
        {"device", StrCat(e.device_name, e.device_uuid.empty() ? "" : ", ", e.device_uuid)},
        {"target", e.target},
        {"driver", e.driver},
        {"compiler", e.compiler},
        {"KVR", e.kvr_version},
        {"host", e.host}};
    if (evidence.used.size() == 1) {
      for (const auto& fact : facts) {
        if (!fact.second.empty()) lines.push_back(fact);
      }
      continue;
    }
    std::string text;
    for (const auto& [name, value] : facts) {
      if (value.empty()) continue;
      StrAppend(&text, text.empty() ? "" : "; ", name, " ", value);
    }
    lines.emplace_back(evidence.Place(place), text);
  }
  // To the minute.
  const auto minute = [](const std::string& time) {
    std::string text = time.substr(0, 16);
    if (text.size() == 16) text[10] = ' ';
    return text;
  };
  if (!first.empty()) {
    lines.emplace_back("measured", minute(first) == minute(last)
                                       ? minute(first) + " UTC"
                                       : StrCat(minute(first), " to ", minute(last), " UTC"));
  }
  if (fastest > 0) {
    lines.emplace_back("clock", slowest == fastest ? StrCat(fastest, " MHz")
                                                   : StrCat(slowest, " to ", fastest, " MHz"));
  }
  if (throttled != 0) {
    lines.emplace_back("throttled", absl::StrFormat("reasons 0x%x of NVML's", throttled));
  }
  return lines;
}

std::vector<std::string> Baseline(const Evidence& evidence) {
  std::vector<ConfigName> incumbents;
  std::map<ConfigName, std::set<std::string>> fingerprints;
  for (const auto& [v, place] : evidence.verdicts) {
    const ConfigName name{v.incumbent, v.incumbent_config};
    AddOnce(&incumbents, name);
    if (!v.incumbent_fingerprint.empty()) {
      fingerprints[name].insert(v.incumbent_fingerprint.substr(0, 12));
    }
  }
  std::vector<std::string> lines;
  for (const ConfigName& name : incumbents) {
    const std::set<std::string>& of = fingerprints[name];
    const bool usual = evidence.IsDefault(name.first, name.second);
    lines.push_back(StrCat(name.first, usual ? ", its default config" : "",
                           name.second.empty() ? "" : StrCat(" {", name.second, "}"),
                           of.empty() ? "" : ", fingerprint ", StrJoin(of, ", "), "."));
  }
  return lines;
}

std::vector<Noise> AllNoise(const Evidence& evidence) {
  std::vector<Noise> all;
  for (const auto& [band, place] : evidence.bands) {
    all.push_back({evidence.Shape(band.axes), evidence.Where(place, band.mode), band.band,
                   band.sigma, band.floor, band.sessions, band.rounds, band.session_medians,
                   band.time.substr(0, 10)});
  }
  return all;
}

std::vector<std::string> Published(const Evidence& evidence) {
  std::vector<std::string> lines;
  for (const auto& [p, place] : evidence.publications) {
    if (p.outcome == "failed") continue;
    const std::string where = evidence.Where(place, "");
    lines.push_back(StrCat(where, where.empty() ? "" : ": ", evidence.Key(p.axes), ": ",
                           Named(evidence.Short(p.variant, p.config)), " ", p.outcome, " by ",
                           p.trigger, " on ", p.time.substr(0, 10),
                           p.reason.empty() ? "" : StrCat(" (", p.reason, ")")));
  }
  return lines;
}

std::vector<Reported> AllReported(const Evidence& evidence) {
  std::vector<Reported> all;
  for (const auto& [s, place] : evidence.summaries) {
    all.push_back({s.axes,
                   {s.incumbent, s.incumbent_config},
                   {s.challenger, s.challenger_config},
                   s.unit,
                   s.percents,
                   s.band_percent,
                   std::string(stats::VerdictName(stats::JudgeSummary(s.percents, s.band_percent))),
                   s.reason,
                   s.source});
  }
  return all;
}

std::string Title(const Evidence& evidence, const CollectRequest& request) {
  if (!request.title.empty()) return request.title;
  std::set<std::string> challengers, incumbents;
  for (const auto& [v, place] : evidence.verdicts) {
    challengers.insert(v.challenger);
    incumbents.insert(v.incumbent);
  }
  if (challengers.empty()) return request.op;
  for (const std::string& incumbent : incumbents) {
    if (challengers.size() > 1) challengers.erase(incumbent);  // against itself: a control
  }
  return StrCat(request.op, ": ", Listed({challengers.begin(), challengers.end()}), " against ",
                Listed({incumbents.begin(), incumbents.end()}));
}

// "y.relative_error 0.012, kept 0.98" of the challenger; of the incumbent with its name before.
std::string QualityOf(const std::vector<Pair>& sessions) {
  std::string quality;
  const auto add = [&](std::string_view whose, const ledger::Trial* Pair::*side) {
    for (const Pair& pair : sessions) {
      const auto measures = ParseQuality((pair.*side)->quality);
      if (!measures.ok() || measures->empty()) continue;
      StrAppend(&quality, quality.empty() ? "" : "; ", whose, QualityLine(*measures));
      return;
    }
  };
  add("", &Pair::challenger);
  add("incumbent: ", &Pair::incumbent);
  return quality;
}

}  // namespace

Row RowOf(const Evidence& evidence, const Made<ledger::Verdict>& made) {
  const ledger::Verdict& v = made.record;
  Row row;
  row.axes = evidence.Shape(v.axes);
  row.where = evidence.Where(made.place, v.mode);
  row.incumbent = evidence.Short(v.incumbent, v.incumbent_config);
  row.challenger = evidence.Short(v.challenger, v.challenger_config);
  const std::vector<Pair> sessions =
      v.rounds > 0 || v.kind != "single" ? SessionsOf(evidence, made) : std::vector<Pair>();
  row.incumbent_us = MedianUs(sessions, &Pair::incumbent);
  row.challenger_us = MedianUs(sessions, &Pair::challenger);
  row.difference = v.difference;
  row.low = v.low;
  row.high = v.high;
  row.band = v.band;
  if (!(row.band > 0)) row.band = BandAt(evidence, made);
  row.verdict = v.verdict;
  row.kind = v.kind;
  row.reason = v.reason;
  row.rounds = v.rounds / std::max<int64_t>(v.sessions, 1);
  row.sessions = v.sessions;
  row.quality = QualityOf(sessions);
  return row;
}

absl::StatusOr<Report> Collect(const ledger::Ledger& ledger, const CollectRequest& request) {
  KVR_ASSIGN_OR_RETURN(const Evidence evidence, Gather(ledger, request));
  if (evidence.verdicts.empty() && evidence.singles.empty() && evidence.races.empty() &&
      evidence.bands.empty() && evidence.summaries.empty()) {
    return Nothing(ledger, request);
  }
  Report report;
  report.rows = Rows(evidence);
  report.title = Title(evidence, request);
  report.what = What(evidence, request);
  if (std::string why = Why(evidence, request); !why.empty()) report.why = {std::move(why)};
  report.how = How(evidence, report.rows);
  report.environment = Environment(evidence);
  report.baseline = Baseline(evidence);
  report.reported = AllReported(evidence);
  report.noise = AllNoise(evidence);
  report.singles = AllSingles(evidence);
  report.conclusion = Conclusion(evidence, report.rows);
  for (const Singles& singles : report.singles) {
    report.conclusion.push_back(
        StrCat(singles.where, singles.where.empty() ? "" : ": ", Worth(singles)));
  }
  report.negatives = Negatives(evidence, report.rows);
  report.published = Published(evidence);
  report.samples = AllSamples(evidence);
  report.funnels = Funnels(evidence);
  report.regret = Regret(evidence);
  report.scalings = Scalings(evidence, request);
  return report;
}

}  // namespace kvr::report
