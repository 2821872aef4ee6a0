// SPDX-License-Identifier: Apache-2.0
//
// From interleaved samples to a winner, by plain medians: a screen that drops what is clearly slow,
// then fresh rounds for the rest, then the best against the incumbent, on fresh rounds again: those
// that chose the best of many flatter it. The incumbent keeps its place unless the best's fresh
// median is better by at least `minimum_gain`; gain and evidence are of these rounds alone.
//
// Threading: pure but for the Sampler.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tuner/sampler.h"

namespace kvr {

struct PickOptions {
  int screen_rounds = 2;
  double screen_factor = 1.5;  // dropped when slower than this times the best
  int survivors = 8;           // most that stay, the incumbent besides
  int rounds = 20;
  double minimum_gain = 0.01;
};

// Positions of `medians` that survive the screen, best first; the incumbent (or -1) always does
// while its median is a number.
std::vector<int> Screen(absl::Span<const double> medians, int incumbent,
                        const PickOptions& options);

struct Picked {
  int winner = -1;  // -1: nobody has a number
  bool incumbent_kept = false;
  double gain = 0;  // of the best over the incumbent, 1 - best/incumbent; 0 without an incumbent
  double winner_us = 0, incumbent_us = 0;  // 0: there is none, or it has no number
};
Picked PickWinner(absl::Span<const double> medians, int incumbent, double minimum_gain);

// Medians of `subjects` by position, from rounds not seen before; NaN for who failed in them.
using FreshMedians = std::function<absl::StatusOr<std::vector<double>>(absl::Span<const int>)>;
// The best of `medians` against the incumbent on fresh rounds. A best that fails in them gives way
// to the next.
absl::StatusOr<Picked> Decide(std::vector<double> medians, int incumbent, double minimum_gain,
                              const FreshMedians& fresh);

// Geometric mean of each subject's times over shapes; NaN where any shape is NaN.
// times[shape][subject].
std::vector<double> CombineShapes(const std::vector<std::vector<double>>& times);

}  // namespace kvr
