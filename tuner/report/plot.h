// SPDX-License-Identifier: Apache-2.0
//
// The report's plots, as inline SVG: colours are the page's CSS variables, sizes scale with the
// column, every mark that encodes a figure has it as a tooltip (<title>).
//
// Threading: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tuner/report/report.h"

namespace kvr::report {

std::string Escaped(std::string_view text);  // for HTML

// A row a comparison: its interval, its median, the noise band shaded around zero.
std::string IntervalPlot(const std::vector<Row>& rows);
// Samples in the order taken; drift and steps are visible. At most kMaxDots a series are drawn.
std::string SamplePlot(const Samples& samples);
std::string FunnelPlot(const Funnel& funnel);
// Both axes logarithmic.
std::string ScalingPlot(const Scaling& scaling);

inline constexpr int kMaxDots = 600;

}  // namespace kvr::report
