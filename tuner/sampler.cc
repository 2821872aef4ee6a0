// SPDX-License-Identifier: Apache-2.0
#include "tuner/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace kvr {
namespace {

std::vector<double> Finite(std::vector<double> samples) {
  samples.erase(std::remove_if(samples.begin(), samples.end(),
                               [](double sample) { return !std::isfinite(sample); }),
                samples.end());
  std::sort(samples.begin(), samples.end());
  return samples;
}

// Linear interpolation between order statistics of a sorted, non-empty list.
double Quantile(const std::vector<double>& sorted, double q) {
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(position);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (position - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

}  // namespace

double Median(std::vector<double> samples) {
  samples = Finite(std::move(samples));
  return samples.empty() ? std::numeric_limits<double>::quiet_NaN() : Quantile(samples, 0.5);
}

double RelativeSpread(std::vector<double> samples) {
  samples = Finite(std::move(samples));
  if (samples.size() < 2) return std::numeric_limits<double>::quiet_NaN();
  return (Quantile(samples, 0.75) - Quantile(samples, 0.25)) / 2 / Quantile(samples, 0.5);
}

std::vector<double> Column(const SampleTable& table, int position) {
  std::vector<double> column;
  column.reserve(table.size());
  for (const std::vector<double>& round : table) column.push_back(round[position]);
  return column;
}

}  // namespace kvr
