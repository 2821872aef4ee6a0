// SPDX-License-Identifier: Apache-2.0
//
// The document of a comparison: what was compared, why and how, where, with which outcome, losers
// kept. Content only; markdown.cc and html.cc render it, collect.h makes it from the ledger.
//
// Units: microseconds; differences as log ratios, challenger over incumbent (stats/verdict.h),
// shown as percent of time.
//
// Threading: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace kvr::report {

struct Contestant {
  std::string variant, config;
};

// One comparison at one shape.
struct Row {
  std::string axes;
  Contestant incumbent, challenger;
  double incumbent_us = 0, challenger_us = 0;  // medians; NaN: not known
  double difference = 0, low = 0, high = 0;    // NaN ends: open
  double band = 0;
  std::string verdict;  // "WIN", ...
  std::string kind;     // "quick", "ship"
  std::string reason;   // of INVALID, and of a contestant that failed
  int64_t rounds = 0, sessions = 0;
};

// Raw samples of one session in the order taken.
struct Samples {
  std::string axes;
  struct Series {
    std::string name;
    std::vector<double> us;
  };
  std::vector<Series> series;
};

// How many configs each stage of a race kept.
struct Funnel {
  std::string axes;
  struct Stage {
    std::string name;
    int64_t entered = 0, kept = 0, rounds = 0;
  };
  std::vector<Stage> stages;
};

// Time over one axis, with what no kernel can beat.
struct Scaling {
  std::string axis, rest;  // "num_tokens", "topk=512"
  struct Point {
    double x = 0, us = 0;
  };
  struct Line {
    std::string name;
    std::vector<Point> points;
  };
  std::vector<Line> lines;
  std::vector<Point> floor;  // bytes that must move over the copy bandwidth
};

struct Report {
  std::string title;
  std::vector<std::string> what, why, how;                       // paragraphs
  std::vector<std::pair<std::string, std::string>> environment;  // name, value
  std::string baseline;                                          // what everything is read against
  std::vector<Row> rows;
  std::vector<std::string> bands;      // a line each
  std::vector<std::string> negatives;  // what was tried and did not work, and why
  std::string conclusion;
  std::vector<Samples> samples;
  std::vector<Funnel> funnels;
  std::vector<Scaling> scalings;
};

std::string ToMarkdown(const Report& report);

// One self-contained page: no script, no reference to anything outside it; light and dark by the
// reader's setting, down to the width of a telephone.
std::string ToHtml(const Report& report);

// "-4.2 %" of a log ratio; "?" for an open end.
std::string PercentText(double log_ratio);
std::string IntervalText(double low, double high);  // "-5.0 % … -3.1 %"
std::string BandText(double band);                  // "±1.2 %"
std::string MicrosecondsText(double us);

}  // namespace kvr::report
