// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/strings.h"
#include "tuner/report/report.h"

namespace kvr::report {
namespace {

// More says nothing but that something is wrong.
constexpr double kMostPercent = 1000;

}  // namespace

std::string PercentText(double log_ratio) {
  if (!std::isfinite(log_ratio)) return "?";
  const double percent = 100 * std::expm1(log_ratio);
  if (percent > kMostPercent) return ">1000 %";
  return std::abs(percent) < 0.05 ? "0.0 %" : absl::StrFormat("%+.1f %%", percent);
}

std::string IntervalText(double low, double high) {
  return StrCat(PercentText(low), " … ", PercentText(high));
}

std::string BandText(double band) {
  // A ship verdict needs none.
  if (!(band > 0)) return "";
  return 100 * band > kMostPercent ? ">1000 %" : absl::StrFormat("±%.1f %%", 100 * band);
}

std::string SpreadText(double spread) {
  if (!std::isfinite(spread)) return "?";
  return 100 * spread > kMostPercent ? ">1000 %" : absl::StrFormat("%.2f %%", 100 * spread);
}

std::string LogText(double log_ratio) {
  if (!std::isfinite(log_ratio)) return "?";
  if (100 * std::abs(log_ratio) > kMostPercent) return log_ratio > 0 ? ">1000" : "<-1000";
  return absl::StrFormat("%+.2f", 100 * log_ratio);
}

std::string MicrosecondsText(double us) {
  if (!std::isfinite(us)) return "?";
  return us < 100 ? absl::StrFormat("%.2f", us) : absl::StrFormat("%.1f", us);
}

std::string PercentsText(const std::vector<double>& percents) {
  std::string text;
  for (double percent : percents) {
    StrAppend(&text, text.empty() ? "" : ", ", absl::StrFormat("%+g %%", percent));
  }
  return text;
}

ScalingTable Tabulated(const Scaling& scaling) {
  const size_t count = scaling.lines.size();
  std::map<double, std::vector<double>> by_x;  // lines, floor
  const auto add = [&](size_t column, const std::vector<Scaling::Point>& points) {
    for (const Scaling::Point& point : points) {
      by_x.try_emplace(point.x, count + 1, NAN).first->second[column] = point.us;
    }
  };
  ScalingTable table;
  for (size_t i = 0; i < count; ++i) {
    add(i, scaling.lines[i].points);
    table.columns.push_back(scaling.lines[i].name + " µs");
  }
  add(count, scaling.floor);
  if (!scaling.floor.empty()) {
    table.columns.push_back("floor µs");
    table.columns.push_back("best over floor");
  }
  for (const auto& [x, times] : by_x) {
    std::vector<std::string> cells;
    double best = INFINITY;
    for (size_t i = 0; i < count; ++i) {
      cells.push_back(std::isfinite(times[i]) ? MicrosecondsText(times[i]) : "");
      if (times[i] < best) best = times[i];
    }
    if (!scaling.floor.empty()) {
      cells.push_back(std::isfinite(times[count]) ? MicrosecondsText(times[count]) : "");
      const double over = best / times[count];
      cells.push_back(std::isfinite(over) ? absl::StrFormat("%.2f ×", over) : "");
    }
    table.rows.emplace_back(absl::StrFormat("%g", x), std::move(cells));
  }
  return table;
}

std::string Named(const Contestant& contestant) {
  return contestant.config.empty() ? contestant.variant
                                   : StrCat(contestant.variant, " {", contestant.config, "}");
}

}  // namespace kvr::report
