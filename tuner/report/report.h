// SPDX-License-Identifier: Apache-2.0
//
// The document of a comparison: what was compared, why and how, where, with which outcome, losers
// kept. Content only; markdown.cc and html.cc render it, collect.h makes it from the ledger. What
// has no content has no section.
//
// Units: microseconds; differences as log ratios, challenger over incumbent (stats/verdict.h),
// shown as percent of time.
//
// Threading: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvr::report {

struct Contestant {
  std::string variant, config;
};

// One comparison at one shape.
struct Row {
  std::string axes;
  std::string where;  // device, mode; empty: the same for all rows
  Contestant incumbent, challenger;
  double incumbent_us = 0, challenger_us = 0;  // medians; NaN: not known
  double difference = 0, low = 0, high = 0;    // NaN ends: open
  double band = 0;
  std::string verdict;  // "WIN", ...
  std::string kind;     // "quick", "ship"
  std::string reason;   // of INVALID, and of a contestant that failed
  int64_t rounds = 0, sessions = 0;
  // How far an approximate side's results are from the exact ones; empty: both are exact.
  std::string quality;
};

// Keys that a finer key policy tells apart, each with a choice of its own, against one choice for
// all of them: what telling them apart is worth.
struct Singles {
  std::string keys;   // what they have in common: "topk=512"; empty: nothing is known of it
  std::string where;  // device, mode; empty: the same for all
  Contestant single;
  std::vector<Row> rows;  // the challengers are the keys' own; no rounds: they do the same work
};

// Raw samples in the order taken.
struct Samples {
  std::string title;
  struct Series {
    std::string name;
    std::vector<double> us;
  };
  std::vector<Series> series;
  std::vector<size_t> sessions;  // where each session but the first begins
};

// What A against A showed: the median of each session's log ratios, and the band they give.
struct Noise {
  std::string axes, where;
  double band = 0, sigma = 0, floor = 0;
  int64_t sessions = 0, rounds = 0;
  std::vector<double> medians;
  std::string date;
};

// A result of somebody else's, without samples. Percent of `unit`, where higher is better.
struct Reported {
  std::string axes;
  Contestant incumbent, challenger;
  std::string unit;
  std::vector<double> percents;
  double band_percent = 0;
  std::string verdict, remark, source;
};

// How many configs each stage of a race kept.
struct Funnel {
  std::string title;
  struct Stage {
    std::string name;
    int64_t entered = 0, kept = 0, rounds = 0;
  };
  std::vector<Stage> stages;
};

// Time over one axis, with what no kernel can beat.
struct Scaling {
  std::string axis, rest;  // "num_tokens", "topk=512"; `rest` may be empty
  struct Point {
    double x = 0, us = 0;
  };
  struct Line {
    std::string name;
    std::vector<Point> points;
  };
  std::vector<Line> lines;   // the incumbent, then the challengers that met it
  std::vector<Point> floor;  // bytes that must move over the copy bandwidth
};
// Sessions differ in the machine's speed, so times of two of them make no ratio.
inline constexpr std::string_view kScalingNote =
    "The incumbent's times are the medians of all its samples; a challenger's are those times the "
    "ratio of its own verdict.";

struct Report {
  std::string title;
  std::vector<std::string> what, why, how;                       // paragraphs
  std::vector<std::pair<std::string, std::string>> environment;  // name, value
  std::vector<std::string> baseline;                             // what the rest is read against
  std::vector<Row> rows;
  std::vector<Singles> singles;
  std::vector<Reported> reported;
  std::vector<Noise> noise;
  std::vector<std::string> negatives;   // what was tried and did not work, and why
  std::vector<std::string> conclusion;  // paragraphs
  std::vector<std::string> published;   // what was selected
  std::vector<Samples> samples;
  std::vector<Funnel> funnels;
  std::vector<std::string> regret;  // races against exhaustive measurements
  std::vector<Scaling> scalings;
};

std::string ToMarkdown(const Report& report);

// One self-contained page: no script, no reference to anything outside it; light and dark by the
// reader's setting, down to the width of a telephone.
std::string ToHtml(const Report& report);

// "-4.2 %" of a log ratio; "?" for an open end; ">1000 %" beyond that.
std::string PercentText(double log_ratio);
std::string IntervalText(double low, double high);  // "-5.0 % … -3.1 %"
// "±1.2 %": bands and spreads are told as kvr noise tells them, in hundredths of a log ratio.
std::string BandText(double band);
std::string SpreadText(double spread);  // "0.40 %"
std::string LogText(double log_ratio);  // "+0.40"
std::string MicrosecondsText(double us);
std::string PercentsText(const std::vector<double>& percents);  // "+3.9 %, +0.6 %"

// A scaling's figures as text: a column a line, then the floor and how near the best is to it.
struct ScalingTable {
  std::vector<std::string> columns;                                    // "w8 µs"
  std::vector<std::pair<std::string, std::vector<std::string>>> rows;  // x, cells
};
ScalingTable Tabulated(const Scaling& scaling);

// "moot": at none of the keys is its own choice faster beyond the noise band.
std::string Worth(const Singles& singles);

std::string Named(const Contestant& contestant);  // "w8 {WARPS=8}"

}  // namespace kvr::report
