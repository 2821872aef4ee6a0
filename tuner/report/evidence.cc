// SPDX-License-Identifier: Apache-2.0
#include "tuner/report/evidence.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "core/status.h"
#include "core/strings.h"
#include "tuner/sampler.h"

namespace kvr::report {
namespace {

using ledger::Trial;

constexpr std::array<std::string_view, 3> kRaceStages = {"screen", "halve", "final"};

// The part of `text` that says which device it is: a new driver or compiler is the same one.
std::string DeviceOf(const ledger::Environment& e) {
  return StrCat(e.device_kind, "|", e.device_model, "|", e.device_uuid);
}

bool Holds(const CollectRequest& request, const std::string& axes) {
  if (request.axes.empty()) return true;
  const std::map<std::string, std::string> pairs = Pairs(axes);
  return std::any_of(request.axes.begin(), request.axes.end(), [&](const Axes& wanted) {
    return std::all_of(wanted.begin(), wanted.end(), [&](const auto& axis) {
      const auto it = pairs.find(axis.first);
      return it != pairs.end() && it->second == StrCat(axis.second);
    });
  });
}

bool Asked(const CollectRequest& request, const std::string& variant) {
  return request.variants.empty() || std::find(request.variants.begin(), request.variants.end(),
                                               variant) != request.variants.end();
}

// Shapes in the order of their numbers.
Axes Numbers(const std::string& axes) {
  const absl::StatusOr<Axes> parsed = ParseAxes(axes);
  return parsed.ok() ? *parsed : Axes{};
}

class Gatherer {
 public:
  Gatherer(const ledger::Ledger& ledger, const CollectRequest& request)
      : ledger_(ledger), request_(request) {}

  // The records of the op and, where they have some, of the request's axes and time.
  template <class Record>
  absl::StatusOr<std::vector<Made<Record>>> Load() {
    KVR_ASSIGN_OR_RETURN(std::vector<Record> records, ledger_.Find<Record>({{"op", request_.op}}));
    std::vector<Made<Record>> made;
    for (Record& record : records) {
      if (record.time < request_.since) continue;
      if constexpr (requires { record.axes; }) {
        if (!Holds(request_, record.axes)) continue;
      }
      KVR_ASSIGN_OR_RETURN(const ledger::Environment environment, ledger_.EnvironmentOf(record));
      const auto it = std::find_if(places_.begin(), places_.end(),
                                   [&](const auto& known) { return known.uid == environment.uid; });
      made.push_back({std::move(record), static_cast<int>(it - places_.begin())});
      if (it == places_.end()) places_.push_back(environment);
    }
    return made;
  }

  // Of records with one key, the newest.
  template <class Record, class Key>
  static void KeepNewest(std::vector<Made<Record>>* records, Key key) {
    std::map<decltype(key(records->front())), size_t> newest;
    for (size_t i = 0; i < records->size(); ++i) newest[key((*records)[i])] = i;
    std::vector<Made<Record>> kept;
    for (size_t i = 0; i < records->size(); ++i) {
      if (newest[key((*records)[i])] == i) kept.push_back(std::move((*records)[i]));
    }
    *records = std::move(kept);
  }

  std::string Device(int place) const { return DeviceOf(places_[static_cast<size_t>(place)]); }
  const std::vector<ledger::Environment>& places() const { return places_; }

 private:
  const ledger::Ledger& ledger_;
  const CollectRequest& request_;
  std::vector<ledger::Environment> places_;
};

void ChooseVerdicts(const Gatherer& gatherer, const CollectRequest& request, Evidence* evidence) {
  std::erase_if(evidence->verdicts, [&](const Made<ledger::Verdict>& made) {
    return !Asked(request, made.record.challenger) ||
           (!request.kind.empty() && made.record.kind != request.kind);
  });
  // The quick verdict that ends a race is told as the race's.
  std::set<std::tuple<int, std::string, std::string>> races;
  for (const auto& [trial, place] : evidence->trials) {
    if (StageOf(trial) >= 0) races.insert({place, trial.session, trial.axes});
  }
  for (auto& [v, place] : evidence->verdicts) {
    if (v.kind == "quick" && races.contains({place, v.session, v.axes})) v.kind = "race";
  }
  if (request.since.empty()) {
    // A race's challenger is what it happened to choose: another run supersedes it. So it is with a
    // single choice.
    Gatherer::KeepNewest(&evidence->verdicts, [&](const Made<ledger::Verdict>& made) {
      const ledger::Verdict& v = made.record;
      const bool single = v.kind == "single", race = single || v.kind == "race";
      return std::make_tuple(gatherer.Device(made.place), v.axes, v.mode, v.kind,
                             single ? "" : v.incumbent, race ? "" : v.incumbent_config,
                             race ? "" : v.challenger, race ? "" : v.challenger_config);
    });
  }
  const auto key = [](const Made<ledger::Verdict>& made) {
    const ledger::Verdict& v = made.record;
    const bool itself = v.challenger == v.incumbent && v.challenger_config == v.incumbent_config;
    return std::make_tuple(itself, v.kind == "race", v.kind != "ship", v.challenger,
                           v.challenger_config, v.incumbent, v.incumbent_config, made.place, v.mode,
                           Numbers(v.axes), v.id);
  };
  std::sort(evidence->verdicts.begin(), evidence->verdicts.end(),
            [&](const auto& a, const auto& b) { return key(a) < key(b); });
  std::erase_if(evidence->verdicts, [&](const Made<ledger::Verdict>& made) {
    if (made.record.kind != "single") return false;
    evidence->singles.push_back(made);
    return true;
  });
  const auto by_shape = [](const Made<ledger::Verdict>& made) {
    return std::make_tuple(made.place, made.record.mode, Numbers(made.record.axes));
  };
  std::sort(evidence->singles.begin(), evidence->singles.end(),
            [&](const auto& a, const auto& b) { return by_shape(a) < by_shape(b); });
}

// Comparisons that nobody who is asked for was in tell nothing, be it of clocks or of trouble.
void ChooseTrials(const CollectRequest& request, std::vector<Made<Trial>>* trials) {
  std::set<std::string> sessions;
  for (const auto& [trial, place] : *trials) {
    if (Asked(request, trial.variant)) sessions.insert(trial.session);
  }
  std::erase_if(*trials, [&](const Made<Trial>& made) {
    return made.record.stage == "ab" && !sessions.contains(made.record.session);
  });
}

void ChooseRaces(const Gatherer& gatherer, const CollectRequest& request,
                 const std::vector<Made<ledger::Verdict>>& verdicts, Evidence* evidence) {
  std::map<std::tuple<int, std::string, std::string, std::string>, size_t> known;
  std::vector<Race> races;
  for (const Made<Trial>& made : evidence->trials) {
    const Trial& trial = made.record;
    if (StageOf(trial) < 0) continue;
    const auto [it, fresh] =
        known.try_emplace({made.place, trial.session, trial.axes, trial.mode}, races.size());
    if (fresh) races.push_back({trial.axes, trial.mode, trial.session, made.place, {}, {}, {}});
    races[it->second].trials.push_back(&trial);
  }
  for (const Made<Trial>& made : evidence->trials) {
    const Trial& trial = made.record;
    const auto it = known.find({made.place, trial.session, trial.axes, trial.mode});
    if (it == known.end() || trial.stage != "verify" || trial.status == "PASSED") continue;
    races[it->second].unfit.insert({trial.variant, trial.config});
  }
  // Its own verdict, also where newer or other ones are what the report is about.
  for (const Made<ledger::Verdict>& made : verdicts) {
    const auto it =
        known.find({made.place, made.record.session, made.record.axes, made.record.mode});
    if (it != known.end()) races[it->second].verdict = made;
  }
  std::erase_if(races, [&](const Race& race) {
    return std::none_of(race.trials.begin(), race.trials.end(),
                        [&](const Trial* trial) { return Asked(request, trial->variant); });
  });
  if (request.since.empty()) {
    std::map<std::tuple<std::string, std::string, std::string>, Race> newest;
    for (Race& race : races) {
      newest[{gatherer.Device(race.place), race.axes, race.mode}] = std::move(race);
    }
    races.clear();
    for (auto& [key, race] : newest) races.push_back(std::move(race));
  }
  std::sort(races.begin(), races.end(), [](const Race& a, const Race& b) {
    return std::make_tuple(a.place, a.mode, Numbers(a.axes), a.trials[0]->id) <
           std::make_tuple(b.place, b.mode, Numbers(b.axes), b.trials[0]->id);
  });
  evidence->races = std::move(races);
}

// A config that failed and later passed at the same place is no failure any more.
void ChooseFailures(const Gatherer& gatherer, const CollectRequest& request,
                    std::vector<Made<ledger::Build>> builds, Evidence* evidence) {
  std::vector<Made<Trial>> last = evidence->trials;
  Gatherer::KeepNewest(&last, [&](const Made<Trial>& made) {
    return std::make_tuple(gatherer.Device(made.place), made.record.variant, made.record.config,
                           made.record.axes);
  });
  std::set<std::pair<std::string, std::string>> spoken_of;
  for (Made<Trial>& made : last) {
    if (!Asked(request, made.record.variant)) continue;
    spoken_of.insert({made.record.variant, made.record.config});
    if (made.record.status != "PASSED") evidence->failures.push_back(std::move(made));
  }
  Gatherer::KeepNewest(&builds, [](const Made<ledger::Build>& made) {
    return std::make_tuple(made.record.variant, made.record.config, made.record.target);
  });
  for (Made<ledger::Build>& made : builds) {
    const ledger::Build& build = made.record;
    if (build.status != "failed" || !Asked(request, build.variant)) continue;
    if (spoken_of.contains({build.variant, build.config})) continue;
    evidence->builds.push_back(std::move(made));
  }
}

void ChooseTheRest(const Gatherer& gatherer, const CollectRequest& request, Evidence* evidence) {
  std::erase_if(evidence->summaries, [&](const Made<ledger::Summary>& made) {
    return !Asked(request, made.record.challenger);
  });
  std::erase_if(evidence->publications, [](const Made<ledger::Publication>& made) {
    return made.record.axes.empty();  // of a generation, not of one choice
  });
  Gatherer::KeepNewest(&evidence->publications, [&](const Made<ledger::Publication>& made) {
    return std::make_tuple(gatherer.Device(made.place), made.record.axes);
  });
  if (request.since.empty()) {
    Gatherer::KeepNewest(&evidence->bands, [&](const Made<ledger::Band>& made) {
      return std::make_tuple(gatherer.Device(made.place), made.record.axes, made.record.mode);
    });
    Gatherer::KeepNewest(&evidence->summaries, [](const Made<ledger::Summary>& made) {
      const ledger::Summary& s = made.record;
      return std::make_tuple(s.axes, s.incumbent, s.incumbent_config, s.challenger,
                             s.challenger_config, s.unit, s.source);
    });
  }
  const auto by_shape = [](const auto& a, const auto& b) {
    return std::make_tuple(a.place, Numbers(a.record.axes), a.record.id) <
           std::make_tuple(b.place, Numbers(b.record.axes), b.record.id);
  };
  std::sort(evidence->bands.begin(), evidence->bands.end(), by_shape);
  std::sort(evidence->publications.begin(), evidence->publications.end(), by_shape);
}

// Which shapes, configs, places and modes there are, so that only what differs need be said.
void FindNames(Evidence* evidence) {
  std::set<std::string> shapes, modes;
  // Configs that somebody named come first: what a race tried is told by how it differs from them.
  std::map<std::string, std::set<std::string>> named, configs;
  for (const auto& [v, place] : evidence->verdicts) {
    shapes.insert(v.axes);
    modes.insert(v.mode);
    std::map<std::string, std::set<std::string>>& of = v.kind == "race" ? configs : named;
    of[v.incumbent].insert(v.incumbent_config);
    of[v.challenger].insert(v.challenger_config);
    evidence->used.insert(place);
  }
  for (const auto& [v, place] : evidence->singles) {
    shapes.insert(v.axes);
    modes.insert(v.mode);
    configs[v.incumbent].insert(v.incumbent_config);
    configs[v.challenger].insert(v.challenger_config);
    evidence->used.insert(place);
  }
  for (const Race& race : evidence->races) {
    shapes.insert(race.axes);
    modes.insert(race.mode);
    for (const Trial* trial : race.trials) configs[trial->variant].insert(trial->config);
    if (race.verdict.has_value()) {
      const ledger::Verdict& v = race.verdict->record;
      configs[v.incumbent].insert(v.incumbent_config);
      configs[v.challenger].insert(v.challenger_config);
    }
    evidence->used.insert(race.place);
  }
  for (const auto& [band, place] : evidence->bands) {
    shapes.insert(band.axes);
    modes.insert(band.mode);
    evidence->used.insert(place);
  }
  for (const auto& [trial, place] : evidence->failures) {
    shapes.insert(trial.axes);
    configs[trial.variant].insert(trial.config);
    evidence->used.insert(place);
  }
  // A publication names a tuning key, which may be part of a shape: it is told by the shapes' rule.
  for (const auto& [publication, place] : evidence->publications) {
    if (shapes.empty()) shapes.insert(publication.axes);
    configs[publication.variant].insert(publication.config);
  }
  for (const auto& [build, place] : evidence->builds) evidence->used.insert(place);
  modes.erase("");
  shapes.erase("");
  evidence->shapes = ShortNames(shapes);
  for (const auto& [variant, texts] : configs) evidence->configs[variant] = ShortNames(texts);
  for (const auto& [variant, texts] : named) evidence->configs[variant] = ShortNames(texts);
  evidence->several_modes = modes.size() > 1;
}

}  // namespace

absl::StatusOr<Evidence> Gather(const ledger::Ledger& ledger, const CollectRequest& asked) {
  KVR_ASSIGN_OR_RETURN(const CollectRequest request, Checked(ledger, asked));
  Gatherer gatherer(ledger, request);
  Evidence evidence;
  if (request.operation != nullptr) evidence.op = &request.operation->spec();
  evidence.defaults = request.defaults;
  KVR_ASSIGN_OR_RETURN(evidence.verdicts, gatherer.Load<ledger::Verdict>());
  KVR_ASSIGN_OR_RETURN(evidence.trials, gatherer.Load<Trial>());
  KVR_ASSIGN_OR_RETURN(evidence.bands, gatherer.Load<ledger::Band>());
  KVR_ASSIGN_OR_RETURN(evidence.publications, gatherer.Load<ledger::Publication>());
  KVR_ASSIGN_OR_RETURN(evidence.summaries, gatherer.Load<ledger::Summary>());
  KVR_ASSIGN_OR_RETURN(std::vector<Made<ledger::Build>> builds, gatherer.Load<ledger::Build>());
  evidence.places = gatherer.places();
  const std::vector<Made<ledger::Verdict>> verdicts = evidence.verdicts;
  ChooseVerdicts(gatherer, request, &evidence);
  ChooseTrials(request, &evidence.trials);
  ChooseRaces(gatherer, request, verdicts, &evidence);
  ChooseFailures(gatherer, request, std::move(builds), &evidence);
  ChooseTheRest(gatherer, request, &evidence);
  FindNames(&evidence);
  return evidence;
}

std::vector<Pair> SessionsOf(const Evidence& evidence, const Made<ledger::Verdict>& made) {
  const ledger::Verdict& v = made.record;
  std::vector<std::string> order;
  std::map<std::string, Pair> sessions;
  for (const auto& [trial, place] : evidence.trials) {
    if (place != made.place || trial.axes != v.axes || trial.mode != v.mode) continue;
    if (trial.stage != "ab" && trial.stage != "duel") continue;
    const bool incumbent = trial.variant == v.incumbent && trial.config == v.incumbent_config;
    const bool challenger = trial.variant == v.challenger && trial.config == v.challenger_config;
    if (!incumbent && !challenger) continue;
    const auto [it, fresh] = sessions.try_emplace(trial.session);
    if (fresh) order.push_back(trial.session);
    // Of A against A, the incumbent's is stored first.
    const Trial* Pair::*side = incumbent && !(challenger && it->second.incumbent != nullptr)
                                   ? &Pair::incumbent
                                   : &Pair::challenger;
    it->second.*side = &trial;
  }
  std::erase_if(order, [&](const std::string& session) {
    return sessions[session].incumbent == nullptr || sessions[session].challenger == nullptr;
  });
  // Of sessions in trouble only the last is a verdict's, if any is: the others were taken again.
  std::erase_if(order, [&](const std::string& session) {
    return session != v.session && InTrouble(*sessions[session].incumbent);
  });
  // A verdict's own are the last before it, as many as it says. It may name the last of them.
  auto end = std::find(order.begin(), order.end(), v.session);
  if (end != order.end()) {
    ++end;
  } else {
    end = std::find_if(order.begin(), order.end(), [&](const std::string& session) {
      return sessions[session].challenger->time > v.time;
    });
  }
  const auto count = std::min<int64_t>(std::max<int64_t>(v.sessions, 1), end - order.begin());
  std::vector<Pair> pairs;
  for (auto it = end - count; it != end; ++it) pairs.push_back(sessions[*it]);
  return pairs;
}

double MedianUs(const std::vector<Pair>& sessions, const Trial* Pair::*side) {
  std::vector<double> all;
  for (const Pair& pair : sessions) {
    const std::vector<double>& samples = (pair.*side)->samples;
    all.insert(all.end(), samples.begin(), samples.end());
  }
  return Median(std::move(all));
}

bool InTrouble(const Trial& trial) { return trial.status == "PASSED" && !trial.reason.empty(); }

int StageOf(const Trial& trial) {
  const auto it = std::find(kRaceStages.begin(), kRaceStages.end(), trial.stage);
  return it == kRaceStages.end() ? -1 : static_cast<int>(it - kRaceStages.begin());
}

const Trial* WinnerOf(const Race& race) {
  const Trial* best = nullptr;
  for (const Trial* trial : race.trials) {
    if (trial->outcome != "kept" || !std::isfinite(trial->median_us)) continue;
    const bool better = best == nullptr || StageOf(*trial) > StageOf(*best) ||
                        (StageOf(*trial) == StageOf(*best) && trial->median_us < best->median_us);
    if (better) best = trial;
  }
  return best;
}

}  // namespace kvr::report
