// SPDX-License-Identifier: Apache-2.0
//
// The report's plots, as inline SVG and, where there are several series, a legend below it. Colours
// are the page's CSS variables; a plot is kPlotWidth wide, made to be read on a telephone and to
// stand beside others on a wide page; single marks that encode a figure have it as a tooltip
// (<title>). What cannot be drawn gives an empty text.
//
// Threading: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tuner/report/report.h"

namespace kvr::report {

inline constexpr double kPlotWidth = 460;

std::string Escaped(std::string_view text);  // for HTML

// A row a comparison: its interval, its median, the noise band shaded around zero. What lies
// outside is an arrow.
std::string IntervalPlot(const std::vector<Row>& rows);
// How far both sides of it reach, a log ratio: to every difference that is not far from all others,
// to bands and intervals unless they are much wider.
double ReachOf(const std::vector<Row>& rows);
// Samples in the order taken; drift and steps are visible. Stray ones are drawn at the edge.
std::string SamplePlot(const Samples& samples);
std::string FunnelPlot(const Funnel& funnel);
// Both axes logarithmic.
std::string ScalingPlot(const Scaling& scaling);
// The same as a file of its own: with its title, its colours, and its legend inside.
std::string ScalingPicture(const Scaling& scaling, std::string_view title);
// A row a band: shaded, with the medians of its sessions.
std::string NoisePlot(const std::vector<Noise>& noise);

}  // namespace kvr::report
