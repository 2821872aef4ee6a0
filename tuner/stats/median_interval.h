// SPDX-License-Identifier: Apache-2.0
//
// An interval for the median that is valid however often one looks. For a candidate median m, the
// number s of n samples below it is Binomial(n, 1/2); mixing the likelihood ratio over
// p ~ Beta(a, a) gives a martingale with mean 1,
//
//   e_n(s) = 2^n Beta(s + a, n - s + a) / Beta(a, a)
//
// which exceeds 1/alpha at any time with probability at most alpha (Ville's inequality). The
// interval keeps the m that it does not exclude: with j the largest s < n/2 where e_n(s) >=
// 1/alpha, the order statistics x(j+1) ... x(n-j). No assumption on the samples' distribution but
// that they are exchangeable around the median.
//
// Threading: one caller at a time.
#pragma once

#include <vector>

#include "tuner/stats/verdict.h"

namespace kvr::stats {

// a: the weight that the mixture gives to p near 1/2, chosen for effects that show within 160
// samples. n: below eight samples nothing is said.
inline constexpr double kBetaWeight = 5;
inline constexpr int kLeastSamples = 8;

// ln e_n(s).
double LogEvidence(int n, int s);

class MedianInterval {
 public:
  explicit MedianInterval(double alpha);
  void Add(double sample);  // finite
  int count() const { return static_cast<int>(sorted_.size()); }
  Interval interval() const;
  double median() const;  // NaN without samples

 private:
  const double log_threshold_;
  int excluded_ = -1;  // j; -1: none. Never falls as samples come.
  std::vector<double> sorted_;
};

}  // namespace kvr::stats
