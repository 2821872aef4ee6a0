// SPDX-License-Identifier: Apache-2.0
#include "tuner/report/plot.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "core/strings.h"

namespace kvr::report {
namespace {

constexpr double kWidth = 720;
constexpr int kSeriesColours = 6;  // --s0 ... in html.cc; more series repeat them

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

std::string Legend(double y, const std::vector<std::string>& names) {
  std::string out;
  double x = 60;
  for (size_t i = 0; i < names.size(); ++i) {
    out +=
        absl::StrFormat("<rect x=\"%.1f\" y=\"%.1f\" width=\"10\" height=\"10\" class=\"f%d\"/>\n",
                        x, y - 9, static_cast<int>(i) % kSeriesColours);
    out += Text(x + 14, y, names[i], "l");
    x += 30 + 7.0 * static_cast<double>(names[i].size());
  }
  return out;
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

std::string IntervalPlot(const std::vector<Row>& rows) {
  // What is drawn spans all intervals and the widest band, at least 5 %; open ends are cut off.
  double reach = std::log(1.05);
  for (const Row& row : rows) {
    for (double value : {row.difference, row.low, row.high, row.band}) {
      if (std::isfinite(value)) reach = std::max(reach, std::abs(value));
    }
  }
  reach *= 1.1;
  constexpr double kLeft = 250, kRowHeight = 26, kTop = 8;
  const double bottom = kTop + kRowHeight * static_cast<double>(rows.size());
  const Scale x(-reach, reach, kLeft, kWidth - 20);
  std::string out = Open(bottom + 44, "differences by shape, with the noise band");
  for (double tick : Ticks(100 * std::expm1(-reach), 100 * std::expm1(reach))) {
    const double at = x(std::log1p(tick / 100));
    out += Line(at, kTop, at, bottom, tick == 0 ? "zero" : "grid");
    out += Text(at, bottom + 16, tick == 0 ? "0" : absl::StrFormat("%+g %%", tick), "t mid");
  }
  out +=
      Text((kLeft + kWidth) / 2, bottom + 36, "challenger's time against the incumbent's", "t mid");
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const double y = kTop + kRowHeight * (static_cast<double>(i) + 0.5);
    out += Text(kLeft - 10, y + 4, StrCat(row.challenger.variant, "  ", row.axes), "l end");
    out += absl::StrFormat(
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"band\"/>\n",
        x(-row.band), y - kRowHeight / 2 + 1, x(row.band) - x(-row.band), kRowHeight - 2);
    if (!std::isfinite(row.difference)) continue;
    const double low = std::isfinite(row.low) ? row.low : -reach;
    const double high = std::isfinite(row.high) ? row.high : reach;
    const std::string css(VerdictClass(row.verdict));
    out += Line(x(low), y, x(high), y, "whisker " + css);
    out += Dot(x(row.difference), y, 4.5, "dot " + css,
               StrCat(row.verdict, ": ", PercentText(row.difference), " (",
                      IntervalText(row.low, row.high), "), band ", BandText(row.band)));
  }
  return out + "</svg>\n";
}

std::string SamplePlot(const Samples& samples) {
  double low = INFINITY, high = -INFINITY;
  size_t longest = 1;
  std::vector<std::string> names;
  for (const Samples::Series& series : samples.series) {
    names.push_back(series.name);
    longest = std::max(longest, series.us.size());
    for (double us : series.us) {
      if (!std::isfinite(us)) continue;
      low = std::min(low, us);
      high = std::max(high, us);
    }
  }
  if (!(low <= high)) return "";
  const double margin = std::max((high - low) * 0.05, high * 0.002);
  constexpr double kHeight = 240, kLeft = 60, kBottom = 190;
  const Scale y(low - margin, high + margin, kBottom, 10);
  const Scale x(0, static_cast<double>(longest), kLeft, kWidth - 10);
  std::string out = Open(kHeight, "samples in the order taken, " + samples.axes);
  for (double tick : Ticks(low - margin, high + margin)) {
    out += Line(kLeft, y(tick), kWidth - 10, y(tick), "grid");
    out += Text(kLeft - 6, y(tick) + 4, absl::StrFormat("%g", tick), "t end");
  }
  out += Text(kLeft - 6, kBottom + 18, "µs", "t end");
  out += Text(kWidth / 2, kBottom + 18, "round", "t mid");
  for (size_t s = 0; s < samples.series.size(); ++s) {
    const std::vector<double>& us = samples.series[s].us;
    const size_t stride = us.size() / kMaxDots + 1;
    for (size_t i = 0; i < us.size(); i += stride) {
      if (!std::isfinite(us[i])) continue;
      out += Dot(x(static_cast<double>(i) + 0.5), y(us[i]), 2,
                 absl::StrFormat("f%d", static_cast<int>(s) % kSeriesColours),
                 StrCat(names[s], ", round ", i + 1, ": ", MicrosecondsText(us[i]), " µs"));
    }
  }
  return out + Legend(kHeight - 8, names) + "</svg>\n";
}

std::string FunnelPlot(const Funnel& funnel) {
  int64_t most = 1;
  for (const Funnel::Stage& stage : funnel.stages) most = std::max(most, stage.entered);
  constexpr double kRowHeight = 30, kLeft = 110;
  const double height = kRowHeight * static_cast<double>(funnel.stages.size()) + 8;
  const Scale x(0, static_cast<double>(most), kLeft, kWidth - 170);
  std::string out = Open(height, "configs that each stage of the race kept, " + funnel.axes);
  for (size_t i = 0; i < funnel.stages.size(); ++i) {
    const Funnel::Stage& stage = funnel.stages[i];
    const double y = 4 + kRowHeight * static_cast<double>(i);
    const auto bar = [&](int64_t value, std::string_view css) {
      out += absl::StrFormat(
          "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"%s\"/>\n", kLeft,
          y + 4, x(static_cast<double>(value)) - kLeft, kRowHeight - 8, std::string(css));
    };
    out += Text(kLeft - 8, y + 20, stage.name, "l end");
    bar(stage.entered, "band");
    bar(stage.kept, "f0");
    out += Text(x(static_cast<double>(stage.entered)) + 8, y + 20,
                StrCat(stage.kept, " of ", stage.entered, ", ", stage.rounds, " rounds"), "t");
  }
  return out + "</svg>\n";
}

std::string ScalingPlot(const Scaling& scaling) {
  double low_x = INFINITY, high_x = 0, low_y = INFINITY, high_y = 0;
  const auto include = [&](const std::vector<Scaling::Point>& points) {
    for (const Scaling::Point& point : points) {
      if (!(point.x > 0) || !(point.us > 0)) continue;
      low_x = std::min(low_x, point.x);
      high_x = std::max(high_x, point.x);
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
  if (!(low_x <= high_x)) return "";
  constexpr double kHeight = 320, kLeft = 60, kBottom = 265;
  const Scale x(low_x, high_x, kLeft, kWidth - 20, true);
  const Scale y(low_y * 0.9, high_y * 1.1, kBottom, 10, true);
  std::string out = Open(kHeight, "time over " + scaling.axis + ", " + scaling.rest);
  for (double tick : LogTicks(low_y * 0.9, high_y * 1.1)) {
    out += Line(kLeft, y(tick), kWidth - 20, y(tick), "grid");
    out += Text(kLeft - 6, y(tick) + 4, absl::StrFormat("%g", tick), "t end");
  }
  for (double tick : LogTicks(low_x, high_x)) {
    out += Line(x(tick), 10, x(tick), kBottom, "grid");
    out += Text(x(tick), kBottom + 16, absl::StrFormat("%g", tick), "t mid");
  }
  out += Text(kLeft - 6, kBottom + 16, "µs", "t end");
  out += Text(kWidth / 2, kBottom + 34, scaling.axis, "t mid");
  const auto draw = [&](const std::vector<Scaling::Point>& points, const std::string& css,
                        const std::string& dot, const std::string& name) {
    std::string path;
    for (const Scaling::Point& point : points) {
      if (!(point.x > 0) || !(point.us > 0)) continue;
      StrAppend(&path,
                absl::StrFormat("%s%.1f %.1f", path.empty() ? "M" : "L", x(point.x), y(point.us)));
    }
    out += StrCat("<path d=\"", path, "\" class=\"", css, "\"/>\n");
    if (dot.empty()) return;
    for (const Scaling::Point& point : points) {
      if (!(point.x > 0) || !(point.us > 0)) continue;
      out += Dot(
          x(point.x), y(point.us), 3.5, dot,
          StrCat(name, ", ", scaling.axis, " ", point.x, ": ", MicrosecondsText(point.us), " µs"));
    }
  };
  draw(scaling.floor, "floor", "", "floor");
  for (size_t i = 0; i < scaling.lines.size(); ++i) {
    const int colour = static_cast<int>(i) % kSeriesColours;
    draw(scaling.lines[i].points, absl::StrFormat("line c%d", colour),
         absl::StrFormat("f%d", colour), names[i]);
  }
  return out + Legend(kHeight - 8, names) + "</svg>\n";
}

}  // namespace kvr::report
