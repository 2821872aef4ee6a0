// SPDX-License-Identifier: Apache-2.0
#include "tuner/stats/drift.h"

#include <algorithm>
#include <cmath>

#include "tuner/sampler.h"

namespace kvr::stats {
namespace {

// A sentinel steadier than this is not asked to stay so: 0.5 %, half of the least noise band.
constexpr double kLeastRelativeScale = 0.005;

}  // namespace

void Cusum::Add(double z) {
  z = std::clamp(z, -kWinsor, kWinsor);
  up_ = std::max(0.0, up_ + z - kSlack);
  down_ = std::max(0.0, down_ - z - kSlack);
  alarmed_ = alarmed_ || up_ > kAlarm || down_ > kAlarm;
}

void DriftMonitor::Add(double sentinel_us) {
  if (!std::isfinite(sentinel_us)) return;
  if (static_cast<int>(first_.size()) < kBaseline) {
    first_.push_back(sentinel_us);
    if (static_cast<int>(first_.size()) < kBaseline) return;
    center_ = Median(first_);
    std::vector<double> deviations;
    for (double first : first_) deviations.push_back(std::abs(first - center_));
    scale_ = std::max(1.4826 * Median(std::move(deviations)), kLeastRelativeScale * center_);
    return;
  }
  cusum_.Add((sentinel_us - center_) / scale_);
}

}  // namespace kvr::stats
