// SPDX-License-Identifier: Apache-2.0
#include "tuner/stats/ship.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>

namespace kvr::stats {
namespace {

// P(T <= (value - at) / error). Without spread the sessions agree, and the sign decides.
double LowerTail(double value, double at, double error, double degrees) {
  if (error == 0) return value < at ? 0 : 1;
  return boost::math::cdf(boost::math::students_t(degrees), (value - at) / error);
}

bool AllFinite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

// All but what needs the other shapes.
ShapeVerdict Measure(const std::vector<double>& medians, const ShipOptions& options) {
  ShapeVerdict shape;
  if (medians.size() < 2 || !AllFinite(medians)) return shape;
  const auto count = static_cast<double>(medians.size());
  shape.difference = std::accumulate(medians.begin(), medians.end(), 0.0) / count;
  double squares = 0;
  for (double median : medians) squares += std::pow(median - shape.difference, 2);
  const double error = std::sqrt(squares / (count - 1) / count);
  const double degrees = count - 1;
  const double reach = error * boost::math::quantile(boost::math::students_t(degrees), 0.975);
  shape.interval = {shape.difference - reach, shape.difference + reach};
  shape.p_win = LowerTail(shape.difference, -options.win_margin, error, degrees);
  shape.p_loss = LowerTail(-shape.difference, -options.win_margin, error, degrees);
  shape.regression_bound =
      shape.difference +
      error * boost::math::quantile(boost::math::students_t(degrees), 1 - options.regression_alpha);
  shape.regression_excluded = LowerTail(shape.difference, options.regression_margin, error,
                                        degrees) <= options.regression_alpha;
  const bool same = shape.interval.low > -options.regression_margin &&
                    shape.interval.high < options.regression_margin;
  shape.verdict = same ? Verdict::kEquivalent : Verdict::kInconclusive;
  return shape;
}

}  // namespace

std::vector<bool> Holm(absl::Span<const double> p_values, double alpha) {
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return p_values[a] < p_values[b]; });
  std::vector<bool> rejected(p_values.size(), false);
  for (size_t i = 0; i < order.size(); ++i) {
    if (p_values[order[i]] > alpha / static_cast<double>(order.size() - i)) break;
    rejected[order[i]] = true;
  }
  return rejected;
}

ShipVerdict JudgeShip(absl::Span<const std::vector<double>> session_medians,
                      const ShipOptions& options) {
  ShipVerdict result;
  std::vector<double> p_win, p_loss;
  for (const std::vector<double>& medians : session_medians) {
    result.shapes.push_back(Measure(medians, options));
    p_win.push_back(result.shapes.back().p_win);
    p_loss.push_back(result.shapes.back().p_loss);
  }
  const std::vector<bool> wins = Holm(p_win, options.win_alpha);
  const std::vector<bool> losses = Holm(p_loss, options.win_alpha);
  const auto any = [&](Verdict verdict) {
    return std::any_of(result.shapes.begin(), result.shapes.end(),
                       [&](const ShapeVerdict& shape) { return shape.verdict == verdict; });
  };
  bool safe = true, enough = true;
  for (size_t i = 0; i < result.shapes.size(); ++i) {
    ShapeVerdict& shape = result.shapes[i];
    if (shape.verdict == Verdict::kInvalid) continue;
    if (wins[i]) shape.verdict = Verdict::kWin;
    if (losses[i]) shape.verdict = Verdict::kLoss;
    safe = safe && shape.regression_excluded;
    if (static_cast<int>(session_medians[i].size()) >= options.sessions) continue;
    enough = false;
    if (shape.verdict != Verdict::kLoss) shape.verdict = Verdict::kInconclusive;
  }
  if (safe && enough && any(Verdict::kWin) && !any(Verdict::kInvalid)) {
    result.verdict = Verdict::kWin;
    result.ship = true;
  } else if (any(Verdict::kLoss)) {
    result.verdict = Verdict::kLoss;
  } else if (result.shapes.empty() || any(Verdict::kInvalid)) {
    result.verdict = Verdict::kInvalid;
  } else if (any(Verdict::kInconclusive) || any(Verdict::kWin)) {
    result.verdict = Verdict::kInconclusive;
  } else {
    result.verdict = Verdict::kEquivalent;
  }
  return result;
}

}  // namespace kvr::stats
