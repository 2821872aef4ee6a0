// SPDX-License-Identifier: Apache-2.0
//
// The quick verdict: one session of interleaved pairs, looked at after every one of them. The
// interval is anytime-valid (median_interval.h), so looking costs nothing; the noise band covers
// what one session cannot see. In this order: INVALID where something said so; WIN where the
// interval lies below -B; LOSS above +B; EQUIVALENT inside +-clamp(B, 2 %, 5 %); else INCONCLUSIVE.
//
// Usual is +-max(B, 2 %) without the 5 %. But where the band is wide nothing is known, and that is
// not equality: inside a band of 27 % lies an interval of -12 to +22 %. Nobody would call more than
// 5 % equal.
//
//   QuickComparison comparison({.band = 0.012});
//   while (!comparison.done()) comparison.Add(incumbent_us, challenger_us);
//
// A quick verdict may publish locally. It never ships: one session is one draw of its effect.
//
// Threading: one caller at a time.
#pragma once

#include <string>
#include <string_view>

#include "tuner/stats/median_interval.h"
#include "tuner/stats/noise.h"
#include "tuner/stats/verdict.h"

namespace kvr::stats {

struct QuickOptions {
  double band = kLeastBand;
  double alpha = 0.05;
  int max_rounds = 160;
  double equivalence = 0.02;       // differences below it are nobody's business
  double most_equivalence = 0.05;  // differences beyond it are no equality, whatever the band
};
// What an interval must lie inside, either way, to be called equal.
double EquivalenceMargin(const QuickOptions& options);

class QuickComparison {
 public:
  explicit QuickComparison(const QuickOptions& options)
      : options_(options), interval_(options.alpha) {}

  // One pair. A time that is not finite and positive makes the comparison invalid.
  void Add(double incumbent_us, double challenger_us);
  // Drift, throttling, wrong results. The first reason stays.
  void Invalidate(std::string_view reason);

  Verdict verdict() const;
  // Further pairs would change nothing, or there have been enough.
  bool done() const;
  Interval interval() const { return interval_.interval(); }
  double median() const { return interval_.median(); }
  int rounds() const { return interval_.count(); }
  const std::string& why_invalid() const { return why_invalid_; }

 private:
  const QuickOptions options_;
  MedianInterval interval_;
  std::string why_invalid_;
};

// The verdict that an interval of the challenger's log ratio gives.
Verdict Judge(const Interval& interval, const QuickOptions& options);
// Inside the band, and yet not equal: a narrower band would tell.
bool BandTooWide(const Interval& interval, const QuickOptions& options);

}  // namespace kvr::stats
