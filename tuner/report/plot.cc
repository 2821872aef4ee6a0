// SPDX-License-Identifier: Apache-2.0
#include "tuner/report/plot.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "core/strings.h"
#include "tuner/report/svg.h"

namespace kvr::report {
namespace {

double Quantile(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1))];
}

}  // namespace

std::string SamplePlot(const Samples& samples) {
  std::vector<double> sorted;
  size_t longest = 1;
  std::vector<std::string> names;
  for (const Samples::Series& series : samples.series) {
    names.push_back(series.name);
    longest = std::max(longest, series.us.size());
    for (double us : series.us) {
      if (std::isfinite(us)) sorted.push_back(us);
    }
  }
  if (sorted.empty()) return "";
  std::sort(sorted.begin(), sorted.end());
  // A few stray samples must not press all others into a line.
  const double usual = Quantile(sorted, 0.98) - Quantile(sorted, 0.02);
  const double low = std::max(sorted.front(), Quantile(sorted, 0.02) - 1.5 * usual);
  const double high = std::min(sorted.back(), Quantile(sorted, 0.98) + 1.5 * usual);
  const double margin = std::max((high - low) * 0.05, high * 0.002);
  constexpr double kHeight = 206, kLeft = 50, kTop = 14, kBottom = 168;
  const Scale y(low - margin, high + margin, kBottom, kTop);
  const Scale x(0, static_cast<double>(longest), kLeft, kRight);
  std::string out = Open(kHeight, "samples in the order taken, " + samples.title);
  const std::vector<double> ticks = Ticks(low - margin, high + margin);
  for (double tick : ticks) {
    out += Line(kLeft, y(tick), kRight, y(tick), "grid");
    out += Text(kLeft - 6, y(tick) + 4, absl::StrFormat("%g", tick), "t end");
  }
  for (size_t session : samples.sessions) {
    const double at = x(static_cast<double>(session));
    out += Line(at, kTop, at, kBottom, "session");
  }
  out += Text(kLeft - 6, kBottom + 16, "µs", "t end");
  out += Text((kLeft + kRight) / 2, kBottom + 16,
              samples.sessions.empty()
                  ? StrCat(longest, " rounds")
                  : StrCat(longest, " rounds in ", samples.sessions.size() + 1, " sessions"),
              "t mid");
  size_t stray = 0;
  for (size_t s = 0; s < samples.series.size(); ++s) {
    const std::vector<double>& us = samples.series[s].us;
    // Dots of one path: lines without length, with round ends.
    std::string path;
    for (size_t i = 0; i < us.size(); ++i) {
      if (!std::isfinite(us[i])) continue;
      const double shown = std::clamp(us[i], low - margin, high + margin);
      stray += shown == us[i] ? 0 : 1;
      StrAppend(&path, absl::StrFormat("M%.1f %.1fh0", x(static_cast<double>(i) + 0.5), y(shown)));
    }
    if (path.empty()) continue;
    StrAppend(&out, "<path d=\"", path, "\" class=\"dots c", s % kSeriesColours, "\"><title>",
              Escaped(names[s]), "</title></path>\n");
  }
  if (stray > 0) {
    out += Text(kRight, kBottom + 32,
                StrCat(stray, stray == 1 ? " sample lies" : " samples lie",
                       " beyond; drawn at the edge, and counted"),
                "t end");
  }
  return out + "</svg>\n" + Legend(names);
}

std::string FunnelPlot(const Funnel& funnel) {
  if (funnel.stages.empty()) return "";
  int64_t most = 1;
  for (const Funnel::Stage& stage : funnel.stages) most = std::max(most, stage.entered);
  constexpr double kRowHeight = 30, kLeft = 64;
  const double height = kRowHeight * static_cast<double>(funnel.stages.size()) + 8;
  const Scale x(0, static_cast<double>(most), kLeft, kPlotWidth - 150);
  std::string out = Open(height, "configs that each stage of the race kept, " + funnel.title);
  for (size_t i = 0; i < funnel.stages.size(); ++i) {
    const Funnel::Stage& stage = funnel.stages[i];
    const double y = 4 + kRowHeight * static_cast<double>(i);
    out += Text(kLeft - 8, y + 20, stage.name, "l end");
    out += Rect(kLeft, y + 4, x(static_cast<double>(stage.entered)), kRowHeight - 8, "band");
    out += Rect(kLeft, y + 4, x(static_cast<double>(stage.kept)), kRowHeight - 8, "f0");
    out += Text(x(static_cast<double>(stage.entered)) + 8, y + 20,
                StrCat(stage.kept, " of ", stage.entered,
                       stage.rounds > 0 ? StrCat(", ", stage.rounds, " rounds") : ""),
                "t");
  }
  return out + "</svg>\n";
}

namespace {

constexpr double kScalingHeight = 300;

// What is drawn, without frame and legend; empty where nothing can be.
std::string ScalingMarks(const Scaling& scaling) {
  std::vector<double> xs;
  double low_y = INFINITY, high_y = 0;
  const auto include = [&](const std::vector<Scaling::Point>& points) {
    for (const Scaling::Point& point : points) {
      if (!(point.x > 0) || !(point.us > 0)) continue;
      xs.push_back(point.x);
      low_y = std::min(low_y, point.us);
      high_y = std::max(high_y, point.us);
    }
  };
  for (const Scaling::Line& line : scaling.lines) include(line.points);
  include(scaling.floor);
  if (xs.empty()) return "";
  // A line that is far off the incumbent's must not press the others together.
  constexpr double kFar = 11;
  double least = INFINITY, most = 0;
  for (const Scaling::Point& point :
       scaling.lines.empty() ? scaling.floor : scaling.lines.front().points) {
    least = std::min(least, point.us);
    most = std::max(most, point.us);
  }
  for (const Scaling::Point& point : scaling.floor) least = std::min(least, kFar * point.us);
  if (most > 0) {
    low_y = std::max(low_y, least / kFar);
    high_y = std::min(high_y, most * kFar);
  }
  low_y *= 0.9;
  high_y *= 1.1;
  const auto [low_x, high_x] = std::minmax_element(xs.begin(), xs.end());
  constexpr double kLeft = 50, kTop = 8, kBottom = 256;
  const Scale x(*low_x, *high_x, kLeft + 8, kRight - 8, true);
  const Scale y(low_y, high_y, kBottom, kTop, true);
  std::string out;
  std::vector<double> ticks = LogTicks(low_y, high_y);
  if (ticks.size() < 3) ticks = Ticks(low_y, high_y);
  for (double tick : Spaced(ticks, y, 15)) {
    out += Line(kLeft, y(tick), kRight, y(tick), "grid");
    out += Text(kLeft - 6, y(tick) + 4, absl::StrFormat("%g", tick), "t end");
  }
  double widest = 0;
  for (double tick : xs) widest = std::max(widest, TextWidth(absl::StrFormat("%g", tick)));
  for (double tick : Spaced(xs, x, widest + 8)) {
    out += Line(x(tick), kTop, x(tick), kBottom, "grid");
    out += Text(x(tick), kBottom + 16, absl::StrFormat("%g", tick), "t mid");
  }
  out += Text(kLeft - 6, kBottom + 16, "µs", "t end");
  out += Text((kLeft + kRight) / 2, kBottom + 34, scaling.axis, "t mid");
  const auto draw = [&](const std::vector<Scaling::Point>& points, const std::string& css) {
    std::string path;
    for (const Scaling::Point& point : points) {
      if (!(point.x > 0) || !(point.us > 0)) continue;
      StrAppend(&path, absl::StrFormat("%s%.1f %.1f", path.empty() ? "M" : "L", x(point.x),
                                       y(std::clamp(point.us, low_y, high_y))));
    }
    if (!path.empty()) StrAppend(&out, "<path d=\"", path, "\" class=\"", css, "\"/>\n");
  };
  draw(scaling.floor, "floor");
  for (size_t i = 0; i < scaling.lines.size(); ++i) {
    const size_t colour = i % kSeriesColours;
    draw(scaling.lines[i].points, StrCat("line c", colour));
    for (const Scaling::Point& point : scaling.lines[i].points) {
      if (!(point.x > 0) || !(point.us > 0)) continue;
      const std::string css = StrCat("f", colour);
      const std::string title = StrCat(scaling.lines[i].name, ", ", scaling.axis, " ", point.x,
                                       ": ", MicrosecondsText(point.us), " µs");
      if (point.us < low_y || point.us > high_y) {
        const bool up = point.us > high_y;
        out += Arrow(x(point.x), up ? kTop : kBottom, 0, up ? -1 : 1, css, title);
      } else {
        out += Dot(x(point.x), y(point.us), 3.5, css, title);
      }
    }
  }
  return out;
}

std::vector<std::string> LineNames(const Scaling& scaling) {
  std::vector<std::string> names;
  for (const Scaling::Line& line : scaling.lines) names.push_back(line.name);
  return names;
}

}  // namespace

std::string ScalingPlot(const Scaling& scaling) {
  const std::string marks = ScalingMarks(scaling);
  if (marks.empty()) return "";
  return Open(kScalingHeight, "time over " + scaling.axis + ", " + scaling.rest) + marks +
         "</svg>\n" + Legend(LineNames(scaling), !scaling.floor.empty());
}

std::string ScalingPicture(const Scaling& scaling, std::string_view title) {
  const std::string marks = ScalingMarks(scaling);
  if (marks.empty()) return "";
  return Picture(title, kScalingHeight, marks, LineNames(scaling), !scaling.floor.empty());
}

}  // namespace kvr::report
