// SPDX-License-Identifier: Apache-2.0
//
// The ship verdict: several shapes, several sessions of each. A session's median log ratio is one
// observation, so the session's effect is part of the spread and no noise band is needed: with
// S sessions, D their mean and SE = sd / sqrt(S), t with S - 1 degrees of freedom.
//
//   win at a shape        rejects D >= -1 %, one-sided, alpha 2.5 %, Holm across the shapes
//   loss at a shape       rejects D <= +1 %, likewise
//   regression excluded   rejects D >= +3 % at alpha 5 % at every shape, uncorrected: all must
//                         hold at once (intersection-union)
//   SHIP                  regression excluded everywhere, and at least one win
//
// Fewer than 16 sessions at a shape may lose and decide nothing else: t allows for few, but two
// sessions that agree by chance leave it nothing to allow for.
//
// Threading: pure functions.
#pragma once

#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "tuner/stats/verdict.h"

namespace kvr::stats {

inline constexpr int kShipSessions = 16, kShipRounds = 20;

struct ShipOptions {
  double win_margin = 0.01;
  double win_alpha = 0.025;  // one-sided
  double regression_margin = 0.03;
  double regression_alpha = 0.05;
  int sessions = kShipSessions;  // at least, at every shape
};

struct ShapeVerdict {
  // kWin and kLoss by Holm; kEquivalent where the interval lies inside +-regression_margin;
  // kInvalid where a session has no usable median or there are fewer than two; kInconclusive where
  // there are too few sessions, but for kLoss.
  Verdict verdict = Verdict::kInvalid;
  double difference = 0;  // D
  Interval interval;      // 95 %, of this shape alone
  double p_win = 1, p_loss = 1;
  // One-sided, at regression_alpha: D is not above it. What excludes a regression.
  double regression_bound = std::numeric_limits<double>::infinity();
  bool regression_excluded = false;
};

struct ShipVerdict {
  std::vector<ShapeVerdict> shapes;
  bool ship = false;
  // kWin: ship. kLoss: a shape is. kInvalid: a shape is. kEquivalent: every shape is. Else
  // kInconclusive.
  Verdict verdict = Verdict::kInvalid;
};

// `session_medians[shape][session]`: median log ratios.
ShipVerdict JudgeShip(absl::Span<const std::vector<double>> session_medians,
                      const ShipOptions& options = {});

// Which of `p_values` Holm's procedure rejects at family-wise level `alpha`.
std::vector<bool> Holm(absl::Span<const double> p_values, double alpha);

}  // namespace kvr::stats
