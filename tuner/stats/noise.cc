// SPDX-License-Identifier: Apache-2.0
#include "tuner/stats/noise.h"

#include <algorithm>
#include <boost/math/distributions/chi_squared.hpp>
#include <cmath>

#include "core/status.h"
#include "core/strings.h"
#include "tuner/sampler.h"

namespace kvr::stats {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kMadToSigma = 1.4826;  // of a normal distribution

double SquaredErrorOfMedian(const std::vector<double>& ratios, double median) {
  std::vector<double> deviations;
  deviations.reserve(ratios.size());
  for (double ratio : ratios) deviations.push_back(std::abs(ratio - median));
  const double sigma = kMadToSigma * Median(std::move(deviations));
  return kPi / 2 * sigma * sigma / static_cast<double>(ratios.size());
}

}  // namespace

absl::StatusOr<NoiseBand> EstimateBand(absl::Span<const std::vector<double>> sessions,
                                       double epoch_us) {
  if (sessions.empty() || !(epoch_us > 0)) {
    return Error(absl::StatusCode::kInvalidArgument, "a noise band needs sessions of timed epochs",
                 "measure at least one session");
  }
  NoiseBand result;
  double squares = 0, errors = 0;
  for (const std::vector<double>& session : sessions) {
    const bool finite = std::all_of(session.begin(), session.end(),
                                    [](double ratio) { return std::isfinite(ratio); });
    if (session.size() < 2 || !finite) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("session ", result.session_medians.size() + 1,
                          finite ? " has fewer than two rounds" : " has a sample that is no time"),
                   "measure it again");
    }
    const double median = Median(session);
    squares += median * median;
    errors += SquaredErrorOfMedian(session, median);
    result.session_medians.push_back(median);
  }
  const auto k = static_cast<double>(sessions.size());
  const boost::math::chi_squared chi(k);
  result.factor = 1.96 * std::sqrt(k / boost::math::quantile(chi, 0.05));
  result.sigma = std::sqrt(std::max(0.0, (squares - errors) / k));
  result.floor = std::max(kLeastBand, 2 * kClockTickUs / epoch_us);
  result.band = std::max(result.floor, result.factor * result.sigma);
  return result;
}

}  // namespace kvr::stats
