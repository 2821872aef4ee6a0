// SPDX-License-Identifier: Apache-2.0
//
// Plots with a row a shape over an axis of percents: the intervals of verdicts, the noise bands.
#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/str_format.h"
#include "core/strings.h"
#include "tuner/report/svg.h"

namespace kvr::report {
namespace {

constexpr double kTop = 6;
constexpr double kMostReach = 2.4;  // +1000 %: further out nothing is told apart

// How far a plot must reach for most of its rows: one that is far from all others is an arrow.
double Robust(std::vector<double> extents, double least) {
  constexpr double kFar = 4;
  std::erase_if(extents, [](double extent) { return !std::isfinite(extent); });
  if (extents.empty()) return least;
  std::sort(extents.begin(), extents.end());
  const double usual = std::max(extents[(extents.size() - 1) / 2], least);
  return std::min({std::max(extents.back(), least), kFar * usual, kMostReach});
}

// Where rows and their labels go. Labels that would leave no room for the plot stand above the
// rows; those that are longer than the picture are shortened.
class Layout {
 public:
  explicit Layout(const std::vector<std::string>& labels) : rows_(labels.size()) {
    double widest = 0;
    for (const std::string& label : labels) widest = std::max(widest, TextWidth(label));
    above_ = widest > kPlotWidth * 0.45;
    left = above_ ? 12 : widest + 12;
    height_ = above_ ? kRow + 14 : kRow;
    bottom = kTop + height_ * static_cast<double>(rows_);
  }
  static constexpr double kRow = 24;
  double left = 0, bottom = 0;

  double Middle(size_t row) const {
    return kTop + height_ * static_cast<double>(row + 1) - kRow / 2;
  }
  std::string LabelOf(size_t row, const std::string& label) const {
    return above_ ? Label(left, Middle(row) - kRow / 2, kRight - left, label, "l")
                  : Label(left - 8, Middle(row) + 4, left, label, "l end");
  }
  std::string Band(size_t row, const Scale& x, double reach, double band) const {
    const double shown = std::min(band, reach), y = Middle(row);
    std::string out = Rect(x(-shown), y - kRow / 2 + 1, x(shown), kRow - 2, "band");
    if (band > reach) {
      const std::string title = StrCat("band ", BandText(band));
      out += Arrow(x(reach) + 8, y, 1, 0, "beyond", title);
      out += Arrow(x(-reach) - 8, y, -1, 0, "beyond", title);
    }
    return out;
  }

 private:
  size_t rows_;
  bool above_ = false;
  double height_ = 0;
};

std::string TickText(double percent) {
  return percent == 0 ? "0" : absl::StrFormat("%+g %%", percent);
}

// Multiples of a round step on the side of `sign` whose labels stand apart from each other and
// inside the picture: of the finest one that leaves at most eight, or as few as one.
double StepThatFits(const Scale& x, double reach, int sign, size_t* count) {
  const double end = std::abs(100 * std::expm1(sign * reach)) * (1 + 1e-9);
  double best = 0;
  *count = 0;
  const int first = static_cast<int>(std::floor(std::log10(end))) - 1;
  for (int i = 0; i < 6; ++i) {
    constexpr double kDigits[] = {1, 2, 5};
    const double step = kDigits[i % 3] * std::pow(10, first + i / 3);
    if (step > end || end / step > 8) continue;
    double free = x(0) + sign * TextWidth("0") / 2;
    size_t fitting = 0;
    bool whole = true;
    for (double tick = step; whole && tick <= end; tick += step) {
      const double at = x(std::log1p(sign * tick / 100));
      const double half = TextWidth(TickText(sign * tick)) / 2;
      whole = sign * (at - free) - half >= 6 && at + half <= kPlotWidth && at - half >= 0;
      free = at + sign * half;
      fitting += whole ? 1 : 0;
    }
    if (fitting == 0) continue;
    best = step;
    *count = fitting;
    if (whole) break;
  }
  return best;
}

// The axis of percents below the rows, with what it means.
std::string PercentAxis(const Scale& x, double reach, const Layout& layout,
                        std::string_view meaning) {
  std::vector<double> ticks = {0};
  for (int sign : {-1, 1}) {
    size_t count = 0;
    const double step = StepThatFits(x, reach, sign, &count);
    for (size_t i = 1; i <= count; ++i) ticks.push_back(sign * step * static_cast<double>(i));
  }
  std::string out;
  for (double tick : ticks) {
    const double at = x(std::log1p(tick / 100));
    out += Line(at, kTop, at, layout.bottom, tick == 0 ? "zero" : "grid");
    out += Text(at, layout.bottom + 16, TickText(tick), "t mid");
  }
  return out + Text((layout.left + kRight) / 2, layout.bottom + 34, meaning, "t mid");
}

std::string_view VerdictClass(std::string_view verdict) {
  if (verdict == "WIN") return "win";
  if (verdict == "LOSS") return "loss";
  return "same";
}

// Room for arrows at both ends.
Scale Across(double reach, const Layout& layout) {
  return {-reach, reach, layout.left + 10, kRight - 10};
}

}  // namespace

double ReachOf(const std::vector<Row>& rows) {
  std::vector<double> extents, bands, ends;
  for (const Row& row : rows) {
    bands.push_back(row.band);
    if (row.verdict == "INVALID") continue;
    extents.push_back(1.2 * std::abs(row.difference));
    for (double end : {row.low, row.high}) ends.push_back(std::abs(end));
  }
  const double reach = Robust(extents, std::log(1.05));
  // Bands and intervals may be much wider: then their ends are outside.
  double whole = reach;
  for (const std::vector<double>* widths : {&bands, &ends}) {
    for (double width : *widths) {
      if (std::isfinite(width)) whole = std::max(whole, width);
    }
  }
  return std::min({whole, 2 * reach, kMostReach}) * 1.05;
}

std::string IntervalPlot(const std::vector<Row>& rows) {
  if (rows.empty()) return "";
  std::vector<std::string> labels;
  for (const Row& row : rows) labels.push_back(row.axes);
  const Layout layout(labels);
  const double reach = ReachOf(rows);
  const Scale x = Across(reach, layout);
  std::string out = Open(layout.bottom + 42, "differences by shape, with the noise band");
  std::string marks;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const double y = layout.Middle(i);
    marks += layout.LabelOf(i, row.axes);
    if (std::isfinite(row.band) && row.band > 0) out += layout.Band(i, x, reach, row.band);
    if (!std::isfinite(row.difference) || row.verdict == "INVALID") {
      marks += Text((layout.left + kRight) / 2, y + 4, row.verdict, "t mid");
      continue;
    }
    const std::string css(VerdictClass(row.verdict)), band = BandText(row.band);
    const std::string title =
        StrCat(row.axes, ": ", row.verdict, ", ", PercentText(row.difference), " (",
               IntervalText(row.low, row.high), ")", band.empty() ? "" : ", band ", band);
    const double low = std::isfinite(row.low) ? row.low : -INFINITY;
    const double high = std::isfinite(row.high) ? row.high : INFINITY;
    if (low <= reach && high >= -reach) {
      marks += Line(x(std::max(low, -reach)), y, x(std::min(high, reach)), y, "whisker " + css);
    }
    if (low < -reach) marks += Arrow(x(-reach) - 8, y, -1, 0, "dot " + css, title);
    if (high > reach) marks += Arrow(x(reach) + 8, y, 1, 0, "dot " + css, title);
    if (std::abs(row.difference) <= reach) {
      marks += Dot(x(row.difference), y, 4.5, "dot " + css, title);
    } else {
      const int sign = row.difference > 0 ? 1 : -1;
      marks += Text(x(sign * reach) - sign * 4, y + 4, PercentText(row.difference),
                    sign > 0 ? "l end" : "l");
    }
  }
  return out + PercentAxis(x, reach, layout, "challenger's time against the incumbent's") + marks +
         "</svg>\n";
}

std::string NoisePlot(const std::vector<Noise>& noise) {
  if (noise.empty()) return "";
  std::vector<std::string> labels;
  std::vector<double> extents;
  for (const Noise& n : noise) {
    labels.push_back(StrCat(n.axes, n.where.empty() ? "" : ", ", n.where));
    double extent = n.band;
    for (double median : n.medians) {
      if (std::isfinite(median)) extent = std::max(extent, std::abs(median));
    }
    extents.push_back(extent);
  }
  const Layout layout(labels);
  const double reach = 1.1 * Robust(extents, std::log(1.01));
  const Scale x = Across(reach, layout);
  std::string out = Open(layout.bottom + 42, "noise bands with the medians of their sessions");
  std::string marks;
  for (size_t i = 0; i < noise.size(); ++i) {
    const Noise& n = noise[i];
    const double y = layout.Middle(i);
    marks += layout.LabelOf(i, labels[i]);
    if (std::isfinite(n.band)) out += layout.Band(i, x, reach, n.band);
    for (double median : n.medians) {
      if (!std::isfinite(median)) continue;
      const int sign = median > 0 ? 1 : -1;
      const std::string title = LogText(median) + " %";
      marks += std::abs(median) <= reach
                   ? Dot(x(median), y, 2.5, "median", title)
                   : Arrow(x(sign * reach) + sign * 8, y, sign, 0, "median", title);
    }
  }
  return out + PercentAxis(x, reach, layout, "median of a session, the incumbent against itself") +
         marks + "</svg>\n";
}

}  // namespace kvr::report
