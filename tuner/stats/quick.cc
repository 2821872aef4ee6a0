// SPDX-License-Identifier: Apache-2.0
#include "tuner/stats/quick.h"

#include <algorithm>
#include <cmath>

namespace kvr::stats {

Verdict Judge(const Interval& interval, double band, double equivalence) {
  const double same = std::max(band, equivalence);
  if (interval.high < -band) return Verdict::kWin;
  if (interval.low > band) return Verdict::kLoss;
  if (interval.low > -same && interval.high < same) return Verdict::kEquivalent;
  return Verdict::kInconclusive;
}

void QuickComparison::Add(double incumbent_us, double challenger_us) {
  const double ratio = LogRatio(incumbent_us, challenger_us);
  if (std::isfinite(ratio)) {
    interval_.Add(ratio);
  } else {
    Invalidate("a sample is not a positive time");
  }
}

void QuickComparison::Invalidate(std::string_view reason) {
  if (why_invalid_.empty()) why_invalid_ = reason;
}

Verdict QuickComparison::verdict() const {
  if (!why_invalid_.empty()) return Verdict::kInvalid;
  return Judge(interval(), options_.band, options_.equivalence);
}

bool QuickComparison::done() const {
  return verdict() != Verdict::kInconclusive || rounds() >= options_.max_rounds;
}

}  // namespace kvr::stats
