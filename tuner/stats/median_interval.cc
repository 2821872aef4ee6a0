// SPDX-License-Identifier: Apache-2.0
#include "tuner/stats/median_interval.h"

#include <algorithm>
#include <boost/math/special_functions/gamma.hpp>
#include <cmath>

namespace kvr::stats {
namespace {

double LogBeta(double a, double b) {
  using boost::math::lgamma;
  return lgamma(a) + lgamma(b) - lgamma(a + b);
}

}  // namespace

double LogEvidence(int n, int s) {
  static const double prior = LogBeta(kBetaWeight, kBetaWeight);
  return n * std::log(2.0) + LogBeta(s + kBetaWeight, n - s + kBetaWeight) - prior;
}

MedianInterval::MedianInterval(double alpha) : log_threshold_(-std::log(alpha)) {}

void MedianInterval::Add(double sample) {
  sorted_.insert(std::upper_bound(sorted_.begin(), sorted_.end(), sample), sample);
  const int n = count();
  // e falls in s up to n/2, and a further sample only adds evidence against the same s.
  while (2 * (excluded_ + 1) < n && LogEvidence(n, excluded_ + 1) >= log_threshold_) ++excluded_;
}

Interval MedianInterval::interval() const {
  const int n = count();
  if (n < kLeastSamples || excluded_ < 0) return {};
  return {sorted_[excluded_], sorted_[n - excluded_ - 1]};
}

double MedianInterval::median() const {
  const size_t n = sorted_.size();
  if (n == 0) return std::numeric_limits<double>::quiet_NaN();
  return n % 2 == 1 ? sorted_[n / 2] : (sorted_[n / 2 - 1] + sorted_[n / 2]) / 2;
}

}  // namespace kvr::stats
