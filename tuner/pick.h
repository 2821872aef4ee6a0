// SPDX-License-Identifier: Apache-2.0
//
// From interleaved samples to a winner, by plain medians: a screen that drops what is clearly slow,
// then fresh rounds for the rest, then the best against the incumbent. The incumbent keeps its
// place unless a challenger's median is better by at least `minimum_gain`.
//
// Threading: pure but for the Sampler.
#pragma once

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
};
Picked PickWinner(absl::Span<const double> medians, int incumbent, double minimum_gain);

// Geometric mean of each subject's times over shapes; NaN where any shape is NaN.
// times[shape][subject].
std::vector<double> CombineShapes(const std::vector<std::vector<double>>& times);

}  // namespace kvr
