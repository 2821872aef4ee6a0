// SPDX-License-Identifier: Apache-2.0
//
// What the verdicts amount to, in plain words: a paragraph a comparison.
#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <set>

#include "core/strings.h"
#include "tuner/report/evidence.h"
#include "tuner/stats/ship.h"

namespace kvr::report {
namespace {

using Rows = std::vector<const Row*>;

// Is a regression excluded, as stats::JudgeShip reads it? A row has the 95 % interval of both
// sides; the margin is tested on one side, at another level, with the same standard error.
bool RegressionExcluded(const Row& row) {
  const stats::ShipOptions options;
  if (!std::isfinite(row.high) || row.sessions < 2) return false;
  const boost::math::students_t t(static_cast<double>(row.sessions - 1));
  const double shorter =
      boost::math::quantile(t, 1 - options.regression_alpha) / boost::math::quantile(t, 0.975);
  return row.difference + (row.high - row.difference) * shorter <= options.regression_margin;
}

Rows Only(const Rows& rows, std::string_view verdict) {
  Rows chosen;
  for (const Row* row : rows) {
    if (row->verdict == verdict) chosen.push_back(row);
  }
  return chosen;
}

std::string Shapes(const Rows& rows) {
  std::vector<std::string> names;
  for (const Row* row : rows) names.push_back(row->axes);
  return Listed(names);
}

// "num_tokens=8 (+5.0 %, +4.1 % … +5.9 %)", each.
std::string WithFigures(const Rows& rows) {
  std::vector<std::string> texts;
  for (const Row* row : rows) {
    texts.push_back(StrCat(row->axes, " (", PercentText(row->difference), ", ",
                           IntervalText(row->low, row->high), ")"));
  }
  return Listed(texts);
}

void Sentence(std::string* text, std::string_view before, const std::string& shapes) {
  if (!shapes.empty()) StrAppend(text, before, shapes, ".");
}

std::string ShipText(const Rows& rows, const std::string& incumbent,
                     const std::string& challenger) {
  const Rows wins = Only(rows, "WIN"), losses = Only(rows, "LOSS"), same = Only(rows, "EQUIVALENT"),
             unclear = Only(rows, "INCONCLUSIVE"), invalid = Only(rows, "INVALID");
  Rows unsafe;
  for (const Row* row : rows) {
    if (row->verdict != "INVALID" && !RegressionExcluded(*row)) unsafe.push_back(row);
  }
  const bool whole = invalid.empty();
  std::string text;
  if (whole && unsafe.empty() && !wins.empty()) {
    text = StrCat(
        "Ship ", challenger, ": it is faster than ", incumbent, " at ", WithFigures(wins),
        ", and a regression of 3 % is excluded at ",
        rows.size() == 1 ? "that shape." : StrCat("all ", Plural(rows.size(), "shape"), "."));
    Sentence(&text, " As fast at ", Shapes(same));
    Sentence(&text, " Slower, but by less than that, at ", WithFigures(losses));
    Sentence(&text, " Not told apart at ", Shapes(unclear));
    return text;
  }
  text = StrCat("Do not ship ", challenger, " for ", incumbent, ".");
  Sentence(&text, " It is slower at ", WithFigures(losses));
  Sentence(&text, " It is faster at ", WithFigures(wins));
  if (losses.empty() && wins.empty() && whole) {
    StrAppend(&text, " It is faster nowhere.");
  }
  Sentence(&text, " As fast, to within 3 %, at ", Shapes(same));
  Sentence(&text, " Not told apart at ", WithFigures(unclear));
  if (losses.empty() && !wins.empty()) {
    Sentence(&text, " A regression of 3 % is not excluded at ", Shapes(unsafe));
  }
  Sentence(&text, " There is no valid measurement at ", Shapes(invalid));
  return text;
}

std::string QuickText(const Rows& rows, const std::string& incumbent, const std::string& challenger,
                      bool itself) {
  std::string text = itself
                         ? StrCat(incumbent, " against itself, which no honest method tells apart:")
                         : StrCat(challenger, " against ", incumbent, ", by quick verdicts:");
  std::vector<std::string> parts;
  const auto part = [&](std::string_view what, const std::string& shapes) {
    if (!shapes.empty()) parts.push_back(StrCat(what, " at ", shapes));
  };
  part("faster", WithFigures(Only(rows, "WIN")));
  part("slower", WithFigures(Only(rows, "LOSS")));
  part("as fast", Shapes(Only(rows, "EQUIVALENT")));
  part("not told apart", Shapes(Only(rows, "INCONCLUSIVE")));
  part("not measured validly", Shapes(Only(rows, "INVALID")));
  StrAppend(&text, " ", StrJoin(parts, "; "), ".");
  if (!itself && !Only(rows, "WIN").empty()) {
    StrAppend(&text, " One session is no ground to ship on: kvr ab --ship measures several.");
  }
  return text;
}

std::string RaceText(const Evidence& evidence, const ledger::Verdict& v) {
  return StrCat("The race at ", evidence.Shape(v.axes), " chose ",
                Named(evidence.Short(v.challenger, v.challenger_config)),
                "; on fresh samples against ",
                Named(evidence.Short(v.incumbent, v.incumbent_config)), ": ", v.verdict, " (",
                PercentText(v.difference), ", ", IntervalText(v.low, v.high), ").",
                v.verdict == "WIN" ? "" : " The incumbent stays.");
}

}  // namespace

std::vector<std::string> Conclusion(const Evidence& evidence, const std::vector<Row>& rows) {
  // Comparisons in the order of their first row.
  std::vector<std::pair<std::string, Rows>> comparisons;
  for (const Row& row : rows) {
    if (row.kind == "race") continue;
    const std::string key =
        StrCat(row.kind, "\n", row.where, "\n", Named(row.incumbent), "\n", Named(row.challenger));
    const auto it = std::find_if(comparisons.begin(), comparisons.end(),
                                 [&](const auto& known) { return known.first == key; });
    if (it == comparisons.end()) {
      comparisons.push_back({key, {&row}});
    } else {
      it->second.push_back(&row);
    }
  }
  std::vector<std::string> paragraphs;
  for (const auto& [key, members] : comparisons) {
    const Row& first = *members.front();
    const std::string incumbent = Named(first.incumbent), challenger = Named(first.challenger);
    std::string text = first.where.empty() ? "" : StrCat(first.where, ": ");
    if (first.kind == "ship" && incumbent != challenger) {
      StrAppend(&text, ShipText(members, incumbent, challenger));
    } else {
      StrAppend(&text, QuickText(members, incumbent, challenger, incumbent == challenger));
    }
    paragraphs.push_back(std::move(text));
  }
  std::set<std::string> told;  // uids
  const auto race = [&](const Made<ledger::Verdict>& made) {
    if (!told.insert(made.record.uid).second) return;
    const std::string where = evidence.Where(made.place, made.record.mode);
    paragraphs.push_back(StrCat(where, where.empty() ? "" : ": ", RaceText(evidence, made.record)));
  };
  for (const Made<ledger::Verdict>& made : evidence.verdicts) {
    if (made.record.kind == "race") race(made);
  }
  for (const Race& run : evidence.races) {
    if (run.verdict.has_value()) {
      race(*run.verdict);
      continue;
    }
    const std::string where = evidence.Where(run.place, run.mode);
    const ledger::Trial* winner = WinnerOf(run);
    const bool judged =
        std::any_of(evidence.verdicts.begin(), evidence.verdicts.end(), [&](const auto& made) {
          return winner != nullptr && made.place == run.place && made.record.axes == run.axes &&
                 made.record.challenger == winner->variant &&
                 made.record.challenger_config == winner->config;
        });
    if (judged) continue;
    paragraphs.push_back(
        StrCat(where, where.empty() ? "" : ": ", "The race at ", evidence.Shape(run.axes),
               winner == nullptr
                   ? " has no winner."
                   : StrCat(" chose ", Named(evidence.Short(winner->variant, winner->config)),
                            "; no comparison with an incumbent is in the ledger.")));
  }
  return paragraphs;
}

}  // namespace kvr::report
