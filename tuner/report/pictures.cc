// SPDX-License-Identifier: Apache-2.0
//
// What is drawn: samples in the order taken, the funnels of races, time over an axis against the
// floor; and what a race cost against an exhaustive measurement.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "absl/strings/str_format.h"
#include "core/strings.h"
#include "tuner/report/evidence.h"
#include "tuner/sampler.h"

namespace kvr::report {
namespace {

using ledger::Trial;

// "At num_tokens=8, NVIDIA H200".
std::string At(const Evidence& evidence, const std::string& axes, int place,
               const std::string& mode) {
  const std::string where = evidence.Where(place, mode);
  return StrCat(evidence.Shape(axes), where.empty() ? "" : ", ", where);
}

using ConfigName = std::pair<std::string, std::string>;  // variant, config
ConfigName NameOf(const Trial& trial) { return {trial.variant, trial.config}; }

std::optional<double> Number(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return static_cast<double>(value);
}

// One contestant's time at one shape.
struct Timed {
  std::string line;
  std::map<std::string, std::string> axes;
  double us = 0;
};

// A challenger's difference from the incumbent at one shape, by the verdict of most rounds.
struct Met {
  std::string challenger, axes;
  double difference = 0;
  int64_t rounds = 0;
};

void KeepBest(std::vector<Met>* all, Met met) {
  for (Met& known : *all) {
    if (known.challenger != met.challenger || known.axes != met.axes) continue;
    if (met.rounds > known.rounds) known = std::move(met);
    return;
  }
  all->push_back(std::move(met));
}

double FloorUs(const CollectRequest& request, const std::map<std::string, std::string>& axes,
               double bandwidth) {
  if (request.operation == nullptr || !(bandwidth > 0)) return 0;
  const OpSpec& op = request.operation->spec();
  Axes given;
  for (const auto& [name, value] : axes) {
    const int index = op.AxisIndex(name);
    const std::optional<double> number = Number(value);
    if (index < 0 || !number.has_value()) return 0;
    if (!op.axes[static_cast<size_t>(index)].is_const) given[name] = static_cast<int64_t>(*number);
  }
  const absl::StatusOr<AxisVector> resolved = ResolveAxes(op, given);
  if (!resolved.ok()) return 0;
  return static_cast<double>(request.operation->MinimumBytes(*resolved)) / bandwidth * 1e6;
}

// The lines over `axis` of those that agree in all other axes.
std::vector<Scaling> Over(const std::string& axis, const std::vector<Timed>& all,
                          const std::set<std::string>& varying, const CollectRequest& request,
                          double bandwidth) {
  std::map<std::map<std::string, std::string>, std::vector<const Timed*>> by_rest;
  for (const Timed& timed : all) {
    std::map<std::string, std::string> rest = timed.axes;
    if (rest.erase(axis) > 0) by_rest[rest].push_back(&timed);
  }
  std::vector<Scaling> scalings;
  for (const auto& [rest, members] : by_rest) {
    std::map<std::string, std::string> told = rest;
    std::erase_if(told, [&](const auto& pair) { return !varying.contains(pair.first); });
    Scaling scaling{axis, JoinPairs(told), {}, {}};
    std::map<double, double> floor;
    for (const Timed* timed : members) {
      const std::optional<double> x = Number(timed->axes.at(axis));
      if (!x.has_value()) continue;
      auto line = std::find_if(scaling.lines.begin(), scaling.lines.end(),
                               [&](const auto& known) { return known.name == timed->line; });
      if (line == scaling.lines.end()) line = scaling.lines.insert(line, {timed->line, {}});
      line->points.push_back({*x, timed->us});
      const double least = FloorUs(request, timed->axes, bandwidth);
      if (least > 0) floor[*x] = least;
    }
    size_t most = 0;
    for (Scaling::Line& line : scaling.lines) {
      std::sort(line.points.begin(), line.points.end(),
                [](const auto& a, const auto& b) { return a.x < b.x; });
      most = std::max(most, line.points.size());
    }
    if (most < 2) continue;
    for (const auto& [x, us] : floor) scaling.floor.push_back({x, us});
    scalings.push_back(std::move(scaling));
  }
  return scalings;
}

}  // namespace

std::vector<Samples> AllSamples(const Evidence& evidence) {
  std::vector<Samples> all;
  for (const Made<ledger::Verdict>& made : evidence.verdicts) {
    const ledger::Verdict& v = made.record;
    const std::vector<Pair> sessions = SessionsOf(evidence, made);
    if (sessions.empty()) continue;
    const std::string incumbent = Named(evidence.Short(v.incumbent, v.incumbent_config));
    const std::string challenger = Named(evidence.Short(v.challenger, v.challenger_config));
    Samples samples;
    samples.title = StrCat(At(evidence, v.axes, made.place, v.mode), ": ", challenger, " against ",
                           incumbent, " (", v.kind, ")");
    samples.series = {{incumbent, {}},
                      {StrCat(challenger, challenger == incumbent ? " again" : ""), {}}};
    for (const Pair& pair : sessions) {
      // A side that has fewer samples failed: its place stays empty.
      const size_t begin = samples.series[0].us.size();
      if (begin > 0) samples.sessions.push_back(begin);
      const size_t rounds =
          std::max(pair.incumbent->samples.size(), pair.challenger->samples.size());
      samples.series[0].us.insert(samples.series[0].us.end(), pair.incumbent->samples.begin(),
                                  pair.incumbent->samples.end());
      samples.series[1].us.insert(samples.series[1].us.end(), pair.challenger->samples.begin(),
                                  pair.challenger->samples.end());
      for (Samples::Series& series : samples.series) series.us.resize(begin + rounds, NAN);
    }
    all.push_back(std::move(samples));
  }
  return all;
}

std::vector<Funnel> Funnels(const Evidence& evidence) {
  constexpr std::string_view kStages[] = {"screen", "halve", "final"};
  std::vector<Funnel> funnels;
  for (const Race& race : evidence.races) {
    // How far each config got: the last stage it was in, and whether it was dropped there. A stage
    // may be several trials of one config.
    std::map<ConfigName, std::pair<int, bool>> reached;
    std::map<std::pair<int, ConfigName>, int64_t> taken;
    int64_t rounds[3] = {};
    for (const Trial* trial : race.trials) {
      const int stage = StageOf(*trial);
      int64_t& mine = taken[{stage, NameOf(*trial)}];
      mine += static_cast<int64_t>(trial->samples.size());
      rounds[stage] = std::max(rounds[stage], mine);
      std::pair<int, bool>& known = reached.try_emplace(NameOf(*trial), -1, false).first->second;
      known = std::max(known, {stage, trial->outcome != "kept"});
    }
    Funnel funnel;
    funnel.title = At(evidence, race.axes, race.place, race.mode);
    if (!race.unfit.empty()) {
      const auto fit = static_cast<int64_t>(reached.size());
      funnel.stages.push_back({"verify", fit + static_cast<int64_t>(race.unfit.size()), fit, 0});
    }
    for (int stage = 0; stage < 3; ++stage) {
      int64_t entered = 0, kept = 0;
      for (const auto& [name, last] : reached) {
        entered += last.first >= stage ? 1 : 0;
        kept += last.first > stage || (last.first == stage && !last.second) ? 1 : 0;
      }
      if (entered == 0) break;
      funnel.stages.push_back({std::string(kStages[stage]), entered, kept, rounds[stage]});
    }
    funnels.push_back(std::move(funnel));
  }
  return funnels;
}

std::vector<std::string> Regret(const Evidence& evidence) {
  // Rounds of every config that make a measurement exhaustive.
  constexpr size_t kLong = 20;
  std::vector<std::string> lines;
  for (const Race& race : evidence.races) {
    const Trial* winner = WinnerOf(race);
    if (winner == nullptr) continue;
    std::set<ConfigName> raced;
    for (const Trial* trial : race.trials) {
      if (trial->status == "PASSED") raced.insert(NameOf(*trial));
    }
    if (raced.size() < 2) continue;
    // The newest other session with all of them, each long.
    std::map<std::string, std::map<ConfigName, const Trial*>> sessions;
    for (const auto& [trial, place] : evidence.trials) {
      if (place != race.place || trial.axes != race.axes || trial.mode != race.mode) continue;
      if (trial.session == race.session || trial.samples.size() < kLong) continue;
      if (raced.contains(NameOf(trial)) && trial.median_us > 0) {
        sessions[trial.session][NameOf(trial)] = &trial;
      }
    }
    const std::map<ConfigName, const Trial*>* whole = nullptr;
    for (const auto& [session, trials] : sessions) {
      if (trials.size() != raced.size()) continue;
      if (whole == nullptr || trials.begin()->second->id > whole->begin()->second->id)
        whole = &trials;
    }
    if (whole == nullptr) continue;
    const Trial* best = whole->begin()->second;
    size_t rounds = best->samples.size();
    for (const auto& [name, trial] : *whole) {
      if (trial->median_us < best->median_us) best = trial;
      rounds = std::min(rounds, trial->samples.size());
    }
    const double chosen = whole->at(NameOf(*winner))->median_us;
    lines.push_back(StrCat(At(evidence, race.axes, race.place, race.mode), ": all ", raced.size(),
                           " configs, measured for ", rounds, " rounds each, have ",
                           Named(evidence.Short(best->variant, best->config)), " first at ",
                           MicrosecondsText(best->median_us), " µs; the race's choice, ",
                           Named(evidence.Short(winner->variant, winner->config)), ", took ",
                           MicrosecondsText(chosen), " µs there: a regret of ",
                           absl::StrFormat("%.2f %%", 100 * (chosen / best->median_us - 1)), "."));
  }
  return lines;
}

std::vector<Scaling> Scalings(const Evidence& evidence, const CollectRequest& request) {
  // Of one incumbent at one place in one mode: its samples by shape, and who met it where.
  struct Group {
    int place = 0;
    std::string mode, incumbent;
    std::map<std::string, std::vector<double>> samples;  // by shape
    std::vector<Met> met;
  };
  std::vector<Group> groups;
  std::map<std::string, std::set<std::string>> values;  // by axis
  std::set<std::string> incumbents;
  for (const Made<ledger::Verdict>& made : evidence.verdicts) {
    const ledger::Verdict& v = made.record;
    const std::vector<Pair> sessions = SessionsOf(evidence, made);
    if (v.verdict == "INVALID" || sessions.empty()) continue;
    for (const auto& [axis, value] : Pairs(v.axes)) values[axis].insert(value);
    const std::string incumbent = Named(evidence.Short(v.incumbent, v.incumbent_config));
    const std::string challenger = Named(evidence.Short(v.challenger, v.challenger_config));
    incumbents.insert(incumbent);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& known) {
      return known.place == made.place && known.mode == v.mode && known.incumbent == incumbent;
    });
    if (group == groups.end()) {
      group = groups.insert(group, Group{made.place, v.mode, incumbent, {}, {}});
    }
    std::vector<double>& samples = group->samples[v.axes];
    for (const Pair& pair : sessions) {
      samples.insert(samples.end(), pair.incumbent->samples.begin(), pair.incumbent->samples.end());
    }
    if (challenger == incumbent) continue;
    KeepBest(&group->met,
             {v.kind == "race" ? "winners of races" : challenger, v.axes, v.difference, v.rounds});
  }
  std::set<std::string> varying;
  for (const auto& [axis, seen] : values) {
    if (seen.size() > 1) varying.insert(axis);
  }
  std::vector<Scaling> scalings;
  for (Group& group : groups) {
    std::vector<Timed> timed;
    std::map<std::string, double> medians;
    for (auto& [axes, samples] : group.samples) {
      const double us = Median(std::move(samples));
      if (us > 0) timed.push_back({group.incumbent, Pairs(axes), medians[axes] = us});
    }
    for (const Met& met : group.met) {
      const double us = medians[met.axes] * std::exp(met.difference);
      if (std::isfinite(us) && us > 0) timed.push_back({met.challenger, Pairs(met.axes), us});
    }
    const double bandwidth =
        request.bandwidth ? request.bandwidth(evidence.places[static_cast<size_t>(group.place)])
                          : 0;
    std::string told = evidence.Where(group.place, group.mode);
    if (incumbents.size() > 1) {
      StrAppend(&told, told.empty() ? "" : ", ", "against ", group.incumbent);
    }
    for (const std::string& axis : varying) {
      for (Scaling& scaling : Over(axis, timed, varying, request, bandwidth)) {
        if (!told.empty()) StrAppend(&scaling.rest, scaling.rest.empty() ? "" : ", ", told);
        scalings.push_back(std::move(scaling));
      }
    }
  }
  return scalings;
}

}  // namespace kvr::report
