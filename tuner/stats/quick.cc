// SPDX-License-Identifier: Apache-2.0
#include "tuner/stats/quick.h"

#include <algorithm>
#include <cmath>

namespace kvr::stats {

namespace {

bool Inside(const Interval& interval, double reach) {
  return interval.low > -reach && interval.high < reach;
}

}  // namespace

double EquivalenceMargin(const QuickOptions& options) {
  return std::clamp(options.band, options.equivalence, options.most_equivalence);
}

Verdict Judge(const Interval& interval, const QuickOptions& options) {
  if (interval.high < -options.band) return Verdict::kWin;
  if (interval.low > options.band) return Verdict::kLoss;
  return Inside(interval, EquivalenceMargin(options)) ? Verdict::kEquivalent
                                                      : Verdict::kInconclusive;
}

bool BandTooWide(const Interval& interval, const QuickOptions& options) {
  return Inside(interval, options.band) && !Inside(interval, EquivalenceMargin(options));
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
  return Judge(interval(), options_);
}

bool QuickComparison::done() const {
  return verdict() != Verdict::kInconclusive || rounds() >= options_.max_rounds;
}

}  // namespace kvr::stats
