// SPDX-License-Identifier: Apache-2.0
//
// The marks that plots are made of (plot.h), as SVG text: scales, ticks that do not overlap, labels
// that fit. Coordinates are pixels of a picture kPlotWidth wide. `css` are classes of html.cc.
//
// Threading: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tuner/report/plot.h"

namespace kvr::report {

inline constexpr double kRight = kPlotWidth - 12;
inline constexpr int kSeriesColours = 6;  // --s0 ... in html.cc; more series repeat them

// A range of values mapped to pixels, linear or logarithmic.
class Scale {
 public:
  Scale(double low, double high, double from, double to, bool log = false);
  double operator()(double value) const;

 private:
  double low_, span_, from_, to_;
  bool log_;
};

// Round steps (1, 2, 5 times a power of ten) that give four to eight ticks.
std::vector<double> Ticks(double low, double high);
// 1, 2, 5, 10, 20, ... within the range.
std::vector<double> LogTicks(double low, double high);
// As many as fit beside each other, the largest first.
std::vector<double> Spaced(std::vector<double> values, const Scale& at, double apart);

double TextWidth(std::string_view text);  // about

std::string Open(double height, std::string_view label);
std::string Line(double x1, double y1, double x2, double y2, std::string_view css);
std::string Text(double x, double y, std::string_view text, std::string_view css);
// Shortened in the middle to `width`; all of it is the tooltip then.
std::string Label(double x, double y, double width, std::string_view text, std::string_view css);
std::string Dot(double x, double y, double r, std::string_view css, std::string_view title);
// For what lies outside the picture: its point at x, y; `dx`, `dy`: which way, one of them 0.
std::string Arrow(double x, double y, int dx, int dy, std::string_view css, std::string_view title);
std::string Rect(double x1, double y, double x2, double height, std::string_view css);
std::string Legend(const std::vector<std::string>& names, bool floor = false);
// An SVG file: `marks` of a picture `height` high between a title and the legend.
std::string Picture(std::string_view title, double height, std::string_view marks,
                    const std::vector<std::string>& names, bool floor);

}  // namespace kvr::report
