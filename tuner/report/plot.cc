// SPDX-License-Identifier: Apache-2.0
#include "tuner/report/plot.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "core/strings.h"

namespace kvr::report {
namespace {

constexpr double kWidth = kPlotWidth, kRight = kWidth - 12;
constexpr double kCharacter = 7.3;  // width of one in a label, about
constexpr int kSeriesColours = 6;   // --s0 ... in html.cc; more series repeat them

// A range of values mapped to pixels, linear or logarithmic.
class Scale {
 public:
  Scale(double low, double high, double from, double to, bool log = false)
      : low_(log ? std::log(low) : low), from_(from), to_(to), log_(log) {
    const double top = log ? std::log(high) : high;
    span_ = top > low_ ? top - low_ : 1;
  }
  double operator()(double value) const {
    const double v = log_ ? std::log(value) : value;
    return from_ + (v - low_) / span_ * (to_ - from_);
  }

 private:
  double low_, span_, from_, to_;
  bool log_;
};

// Round steps (1, 2, 5 times a power of ten) that give four to eight ticks.
std::vector<double> Ticks(double low, double high) {
  const double span = high > low ? high - low : 1;
  double step = std::pow(10, std::floor(std::log10(span / 4)));
  if (span / step > 16) {
    step *= 5;
  } else if (span / step > 8) {
    step *= 2;
  }
  std::vector<double> ticks;
  for (double tick = std::ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) {
    ticks.push_back(std::abs(tick) < step * 1e-9 ? 0 : tick);
  }
  return ticks;
}

// 1, 2, 5, 10, 20, ... within the range.
std::vector<double> LogTicks(double low, double high) {
  std::vector<double> ticks;
  for (double decade = std::pow(10, std::floor(std::log10(low))); decade <= high; decade *= 10) {
    for (double digit : {1.0, 2.0, 5.0}) {
      const double tick = digit * decade;
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push_back(tick);
    }
  }
  return ticks;
}

std::string Open(double height, std::string_view label) {
  return absl::StrFormat("<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s\">\n", kWidth,
                         height, Escaped(label));
}

std::string Line(double x1, double y1, double x2, double y2, std::string_view css) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n",
                         x1, y1, x2, y2, std::string(css));
}

std::string Text(double x, double y, std::string_view text, std::string_view css) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">%s</text>\n", x, y,
                         std::string(css), Escaped(text));
}

std::string Dot(double x, double y, double r, std::string_view css, std::string_view title) {
  return absl::StrFormat(
      "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" class=\"%s\"><title>%s</title></circle>\n", x, y,
      r, std::string(css), Escaped(title));
}

std::string Legend(const std::vector<std::string>& names, bool floor = false) {
  std::string out = "<div class=\"keys\">";
  for (size_t i = 0; i < names.size(); ++i) {
    StrAppend(&out, "<span><i class=\"k", i % kSeriesColours, "\"></i>", Escaped(names[i]),
              "</span> ");
  }
  if (floor) out += "<span><i class=\"kf\"></i>the least that memory allows</span>";
  return out + "</div>\n";
}

// As many as fit beside each other, the largest first; `at` gives a value's pixel.
std::vector<double> Spaced(std::vector<double> values, const Scale& at, double apart) {
  std::sort(values.rbegin(), values.rend());
  std::vector<double> kept;
  for (double value : values) {
    if (kept.empty() || std::abs(at(kept.back()) - at(value)) >= apart) kept.push_back(value);
  }
  return kept;
}

double Quantile(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1))];
}

// Where the labels at the left end, for the longest of them.
double LabelWidth(size_t longest) {
  return std::min(kWidth * 0.5, 12 + kCharacter * static_cast<double>(longest));
}

std::string Rect(double x1, double y, double x2, double height, std::string_view css) {
  return absl::StrFormat(
      "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"%s\"/>\n", x1, y,
      std::max(0.0, x2 - x1), height, std::string(css));
}

// The axis of percents below rows that end at `bottom`, with what it means.
std::string PercentAxis(const Scale& x, double reach, double left, double top, double bottom,
                        std::string_view meaning) {
  std::string out;
  std::vector<double> ticks = Ticks(100 * std::expm1(-reach), 100 * std::expm1(reach));
  for (double tick : ticks) {
    const double at = x(std::log1p(tick / 100));
    out += Line(at, top, at, bottom, tick == 0 ? "zero" : "grid");
    out += Text(at, bottom + 16, tick == 0 ? "0" : absl::StrFormat("%+g %%", tick), "t mid");
  }
  return out + Text((left + kRight) / 2, bottom + 34, meaning, "t mid");
}

std::string_view VerdictClass(std::string_view verdict) {
  if (verdict == "WIN") return "win";
  if (verdict == "LOSS") return "loss";
  return "same";
}

}  // namespace

std::string Escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

double ReachOf(const std::vector<Row>& rows) {
  double reach = std::log(1.05);
  for (const Row& row : rows) {
    for (double value : {1.2 * std::abs(row.difference), row.band}) {
      if (std::isfinite(value)) reach = std::max(reach, value);
    }
  }
  double whole = reach;
  for (const Row& row : rows) {
    for (double end : {row.low, row.high}) {
      if (std::isfinite(end)) whole = std::max(whole, std::abs(end));
    }
  }
  return std::min(whole, 2 * reach) * 1.05;
}

std::string IntervalPlot(const std::vector<Row>& rows, double reach) {
  if (rows.empty()) return "";
  constexpr double kRowHeight = 24, kTop = 6;
  size_t longest = 0;
  for (const Row& row : rows) longest = std::max(longest, row.axes.size());
  // Labels that leave no room for the plot stand above their rows.
  const bool above = kCharacter * static_cast<double>(longest) > kWidth * 0.45;
  const double height = above ? kRowHeight + 14 : kRowHeight;
  const double left = above ? 12 : LabelWidth(longest);
  const double bottom = kTop + height * static_cast<double>(rows.size());
  const Scale x(-reach, reach, left, kRight);
  std::string out = Open(bottom + 42, "differences by shape, with the noise band");
  std::string marks;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const double y = kTop + height * static_cast<double>(i + 1) - kRowHeight / 2;
    marks += above ? Text(left, y - kRowHeight / 2, row.axes, "l")
                   : Text(left - 8, y + 4, row.axes, "l end");
    if (std::isfinite(row.band) && row.band > 0) {
      const double band = std::min(row.band, reach);
      out += Rect(x(-band), y - kRowHeight / 2 + 1, x(band), kRowHeight - 2, "band");
    }
    if (!std::isfinite(row.difference) || row.verdict == "INVALID") {
      marks += Text((left + kRight) / 2, y + 4, row.verdict, "t mid");
      continue;
    }
    const double low = std::isfinite(row.low) ? std::max(row.low, -reach) : -reach;
    const double high = std::isfinite(row.high) ? std::min(row.high, reach) : reach;
    const std::string css(VerdictClass(row.verdict));
    marks += Line(x(low), y, x(high), y, "whisker " + css);
    const std::string band = BandText(row.band);
    marks += Dot(x(row.difference), y, 4.5, "dot " + css,
                 StrCat(row.axes, ": ", row.verdict, ", ", PercentText(row.difference), " (",
                        IntervalText(row.low, row.high), ")", band.empty() ? "" : ", band ", band));
  }
  return out +
         PercentAxis(x, reach, left, kTop, bottom, "challenger's time against the incumbent's") +
         marks + "</svg>\n";
}

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
  const Scale x(0, static_cast<double>(most), kLeft, kWidth - 150);
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

std::string ScalingPlot(const Scaling& scaling) {
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
  std::vector<std::string> names;
  for (const Scaling::Line& line : scaling.lines) {
    include(line.points);
    names.push_back(line.name);
  }
  include(scaling.floor);
  if (xs.empty()) return "";
  low_y *= 0.9;
  high_y *= 1.1;
  const auto [low_x, high_x] = std::minmax_element(xs.begin(), xs.end());
  constexpr double kHeight = 300, kLeft = 50, kTop = 8, kBottom = 256;
  const Scale x(*low_x, *high_x, kLeft + 8, kRight - 8, true);
  const Scale y(low_y, high_y, kBottom, kTop, true);
  std::string out = Open(kHeight, "time over " + scaling.axis + ", " + scaling.rest);
  std::vector<double> ticks = LogTicks(low_y, high_y);
  if (ticks.size() < 3) ticks = Ticks(low_y, high_y);
  for (double tick : ticks) {
    out += Line(kLeft, y(tick), kRight, y(tick), "grid");
    out += Text(kLeft - 6, y(tick) + 4, absl::StrFormat("%g", tick), "t end");
  }
  for (double tick : Spaced(xs, x, 30)) {
    out += Line(x(tick), kTop, x(tick), kBottom, "grid");
    out += Text(x(tick), kBottom + 16, absl::StrFormat("%g", tick), "t mid");
  }
  out += Text(kLeft - 6, kBottom + 16, "µs", "t end");
  out += Text((kLeft + kRight) / 2, kBottom + 34, scaling.axis, "t mid");
  const auto draw = [&](const std::vector<Scaling::Point>& points, const std::string& css) {
    std::string path;
    for (const Scaling::Point& point : points) {
      if (!(point.x > 0) || !(point.us > 0)) continue;
      StrAppend(&path,
                absl::StrFormat("%s%.1f %.1f", path.empty() ? "M" : "L", x(point.x), y(point.us)));
    }
    if (!path.empty()) StrAppend(&out, "<path d=\"", path, "\" class=\"", css, "\"/>\n");
  };
  draw(scaling.floor, "floor");
  for (size_t i = 0; i < scaling.lines.size(); ++i) {
    const size_t colour = i % kSeriesColours;
    draw(scaling.lines[i].points, StrCat("line c", colour));
    for (const Scaling::Point& point : scaling.lines[i].points) {
      if (!(point.x > 0) || !(point.us > 0)) continue;
      out += Dot(x(point.x), y(point.us), 3.5, StrCat("f", colour),
                 StrCat(names[i], ", ", scaling.axis, " ", point.x, ": ",
                        MicrosecondsText(point.us), " µs"));
    }
  }
  return out + "</svg>\n" + Legend(names, !scaling.floor.empty());
}

std::string NoisePlot(const std::vector<Noise>& noise) {
  if (noise.empty()) return "";
  double reach = std::log(1.01);
  size_t longest = 0;
  std::vector<std::string> labels;
  for (const Noise& n : noise) {
    labels.push_back(StrCat(n.axes, n.where.empty() ? "" : ", ", n.where));
    longest = std::max(longest, labels.back().size());
    if (std::isfinite(n.band)) reach = std::max(reach, n.band);
    for (double median : n.medians) {
      if (std::isfinite(median)) reach = std::max(reach, std::abs(median));
    }
  }
  reach *= 1.1;
  constexpr double kRowHeight = 24, kTop = 6;
  const bool above = kCharacter * static_cast<double>(longest) > kWidth * 0.45;
  const double height = above ? kRowHeight + 14 : kRowHeight;
  const double left = above ? 12 : LabelWidth(longest);
  const double bottom = kTop + height * static_cast<double>(noise.size());
  const Scale x(-reach, reach, left, kRight);
  std::string out = Open(bottom + 42, "noise bands with the medians of their sessions");
  std::string marks;
  for (size_t i = 0; i < noise.size(); ++i) {
    const Noise& n = noise[i];
    const double y = kTop + height * static_cast<double>(i + 1) - kRowHeight / 2;
    marks += above ? Text(left, y - kRowHeight / 2, labels[i], "l")
                   : Text(left - 8, y + 4, labels[i], "l end");
    if (std::isfinite(n.band)) {
      out += Rect(x(-n.band), y - kRowHeight / 2 + 1, x(n.band), kRowHeight - 2, "band");
    }
    for (double median : n.medians) {
      if (std::isfinite(median)) marks += Dot(x(median), y, 2.5, "median", PercentText(median));
    }
  }
  return out +
         PercentAxis(x, reach, left, kTop, bottom,
                     "median of a session, the incumbent against itself") +
         marks + "</svg>\n";
}

}  // namespace kvr::report
