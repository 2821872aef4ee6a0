// SPDX-License-Identifier: Apache-2.0
#include "tuner/stats/summary.h"

#include <algorithm>
#include <cmath>

namespace kvr::stats {

Verdict JudgeSummary(absl::Span<const double> percents, double band_edge_percent) {
  const auto all = [&](auto holds) { return std::all_of(percents.begin(), percents.end(), holds); };
  if (percents.empty() || !all([](double p) { return std::isfinite(p); })) return Verdict::kInvalid;
  if (all([&](double p) { return p > band_edge_percent; })) return Verdict::kWin;
  if (all([&](double p) { return p < -band_edge_percent; })) return Verdict::kLoss;
  return Verdict::kInconclusive;
}

}  // namespace kvr::stats
