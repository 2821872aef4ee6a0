// SPDX-License-Identifier: Apache-2.0
//
// What was tried and did not work: comparisons that were not won, configs that failed, configs that
// races dropped. Equal reasons share a line.
#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "core/strings.h"
#include "tuner/report/evidence.h"
#include "tuner/stats/summary.h"

namespace kvr::report {
namespace {

using ledger::Trial;

void AddOnce(std::vector<std::string>* list, const std::string& text) {
  if (std::find(list->begin(), list->end(), text) == list->end()) list->push_back(text);
}

// The first line, numbers made alike: "needs 233472 bytes" and "needs 249856 bytes" are one reason.
std::string Alike(std::string_view reason) {
  std::string alike;
  for (char c : reason.substr(0, reason.find('\n'))) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit || alike.empty() || alike.back() != '#') alike += digit ? '#' : c;
  }
  return alike;
}

std::string FirstLine(std::string_view reason) {
  return std::string(Trim(reason.substr(0, reason.find('\n'))));
}

// "w8 {WARPS=8}", or "3 configs of w8, such as {WARPS=8}".
std::string Whose(const Evidence& evidence, const std::string& variant,
                  const std::vector<std::string>& configs) {
  const Contestant first = evidence.Short(variant, configs.front());
  if (configs.size() == 1) return Named(first);
  return StrCat(Plural(configs.size(), "config"), " of ", variant,
                first.config.empty() ? "" : StrCat(", such as {", first.config, "}"));
}

void Comparisons(const std::vector<Row>& rows, std::vector<std::string>* lines) {
  struct Lost {
    std::string text, reason;
    std::vector<std::string> shapes;
  };
  std::vector<Lost> all;
  for (const Row& row : rows) {
    const std::string incumbent = Named(row.incumbent), challenger = Named(row.challenger);
    if (row.verdict == "WIN" || incumbent == challenger) continue;
    const bool invalid = row.verdict == "INVALID";
    const std::string_view did = row.verdict == "LOSS"         ? " lost to "
                                 : row.verdict == "EQUIVALENT" ? " gained nothing over "
                                 : invalid                     ? " could not be compared with "
                                                               : " could not be told from ";
    const std::string text = StrCat(row.where, row.where.empty() ? "" : ": ", challenger, did,
                                    incumbent, " (", row.kind, ") at ");
    auto it = std::find_if(all.begin(), all.end(), [&](const Lost& lost) {
      return lost.text == text && (!invalid || lost.reason == row.reason);
    });
    if (it == all.end()) it = all.insert(it, {text, invalid ? row.reason : "", {}});
    it->shapes.push_back(invalid ? row.axes
                                 : StrCat(row.axes, " (", PercentText(row.difference), ", ",
                                          IntervalText(row.low, row.high), ")"));
  }
  for (const Lost& lost : all) {
    lines->push_back(
        StrCat(lost.text, Listed(lost.shapes), lost.reason.empty() ? "" : ": ", lost.reason));
  }
}

void ReportedLosses(const Evidence& evidence, std::vector<std::string>* lines) {
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;  // text, shapes
  for (const auto& [s, place] : evidence.summaries) {
    if (stats::JudgeSummary(s.percents, s.band_percent) != stats::Verdict::kLoss) continue;
    const std::string text =
        StrCat(Named({s.challenger, s.challenger_config}), " lost to ",
               Named({s.incumbent, s.incumbent_config}), " as reported elsewhere",
               s.reason.empty() ? "" : StrCat(" (", s.reason, ")"), ", at ");
    auto it = std::find_if(groups.begin(), groups.end(),
                           [&](const auto& group) { return group.first == text; });
    if (it == groups.end()) it = groups.insert(it, {text, {}});
    it->second.push_back(StrCat(s.axes, " (", PercentsText(s.percents), " ", s.unit, ")"));
  }
  for (const auto& [text, shapes] : groups) lines->push_back(text + Listed(shapes));
}

// Sessions whose samples were not used, because of the session and not of who was in it.
void Wasted(const Evidence& evidence, std::vector<std::string>* lines) {
  std::vector<std::pair<std::string, std::set<std::string>>> groups;  // reason, sessions
  for (const auto& [trial, place] : evidence.trials) {
    if (!InTrouble(trial) || !evidence.used.contains(place) || StageOf(trial) >= 0) continue;
    auto it = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return Alike(group.first) == Alike(trial.reason);
    });
    if (it == groups.end()) it = groups.insert(it, {trial.reason, {}});
    it->second.insert(StrCat(trial.session, "|", trial.axes));
  }
  for (const auto& [reason, sessions] : groups) {
    lines->push_back(StrCat(Plural(sessions.size(), "session"),
                            sessions.size() == 1 ? " was" : " were",
                            " not used: ", FirstLine(reason)));
  }
}

void Failures(const Evidence& evidence, std::vector<std::string>* lines) {
  struct Failed {
    std::string place, variant, status, reason;
    std::vector<std::string> configs, shapes;
  };
  std::vector<std::pair<std::string, Failed>> groups;
  const auto add = [&](const std::string& place, const std::string& variant,
                       const std::string& config, const std::string& axes,
                       const std::string& status, const std::string& reason) {
    const std::string key = StrCat(place, "|", variant, "|", status, "|", Alike(reason));
    auto it = std::find_if(groups.begin(), groups.end(),
                           [&](const auto& group) { return group.first == key; });
    if (it == groups.end()) {
      groups.push_back({key, {place, variant, status, FirstLine(reason), {}, {}}});
      it = groups.end() - 1;
    }
    AddOnce(&it->second.configs, config);
    if (!axes.empty()) AddOnce(&it->second.shapes, evidence.Shape(axes));
  };
  for (const auto& [trial, place] : evidence.failures) {
    add(evidence.Where(place, ""), trial.variant, trial.config, trial.axes, trial.status,
        trial.reason);
  }
  for (const auto& [build, place] : evidence.builds) {
    add(evidence.Where(place, ""), build.variant, build.config, "",
        "did not build for " + build.target, build.reason);
  }
  for (const auto& [key, group] : groups) {
    lines->push_back(StrCat(group.place, group.place.empty() ? "" : ": ",
                            Whose(evidence, group.variant, group.configs),
                            group.shapes.empty() ? "" : " at ", Listed(group.shapes), ": ",
                            group.status, group.reason.empty() ? "" : ": ", group.reason));
  }
}

// What a stage drops for, where the trial does not say.
std::string_view WhyDropped(int stage) {
  switch (stage) {
    case 0:
      return "far from the best in the first rounds";
    case 1:
      return "not in the faster half";
    default:
      return "slower than the best of the last";
  }
}

void Dropped(const Evidence& evidence, std::vector<std::string>* lines) {
  for (const Race& race : evidence.races) {
    struct Drop {
      int stage;
      std::string variant, reason;
      std::vector<std::string> configs;
      double least = INFINITY, most = 0;
    };
    std::vector<Drop> drops;
    for (const Trial* trial : race.trials) {
      if (trial->outcome != "dropped" || trial->status != "PASSED") continue;
      const int stage = StageOf(*trial);
      const std::string reason =
          trial->reason.empty() ? std::string(WhyDropped(stage)) : FirstLine(trial->reason);
      auto it = std::find_if(drops.begin(), drops.end(), [&](const Drop& drop) {
        return drop.stage == stage && drop.variant == trial->variant &&
               Alike(drop.reason) == Alike(reason);
      });
      if (it == drops.end()) it = drops.insert(it, Drop{stage, trial->variant, reason, {}});
      it->configs.push_back(trial->config);
      if (!std::isfinite(trial->median_us)) continue;
      it->least = std::min(it->least, trial->median_us);
      it->most = std::max(it->most, trial->median_us);
    }
    std::sort(drops.begin(), drops.end(), [](const Drop& a, const Drop& b) {
      return std::tie(a.stage, a.variant, a.reason) < std::tie(b.stage, b.variant, b.reason);
    });
    constexpr std::string_view kStages[] = {"screening", "halving", "the final"};
    const std::string where = evidence.Where(race.place, race.mode);
    for (const Drop& drop : drops) {
      std::string times;
      if (drop.least == drop.most) times = StrCat(" (", MicrosecondsText(drop.least), " µs)");
      if (drop.least < drop.most) {
        times =
            StrCat(" (", MicrosecondsText(drop.least), " … ", MicrosecondsText(drop.most), " µs)");
      }
      lines->push_back(StrCat("Race at ", evidence.Shape(race.axes), where.empty() ? "" : ", ",
                              where, ": ", kStages[drop.stage], " dropped ",
                              Whose(evidence, drop.variant, drop.configs), times, ": ",
                              drop.reason));
    }
  }
}

}  // namespace

std::vector<std::string> Negatives(const Evidence& evidence, const std::vector<Row>& rows) {
  std::vector<std::string> lines;
  Comparisons(rows, &lines);
  for (const auto& [publication, place] : evidence.publications) {
    if (publication.outcome != "failed") continue;
    lines.push_back(StrCat(Named(evidence.Short(publication.variant, publication.config)), " at ",
                           evidence.Key(publication.axes),
                           " could not be published: ", FirstLine(publication.reason)));
  }
  ReportedLosses(evidence, &lines);
  Wasted(evidence, &lines);
  Failures(evidence, &lines);
  Dropped(evidence, &lines);
  return lines;
}

}  // namespace kvr::report
