// SPDX-License-Identifier: Apache-2.0
#include "tuner/stats/drift.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "tuner/sampler.h"

namespace kvr::stats {
namespace {

// A sentinel steadier than this is not asked to stay so: two steps of an H200's clock, each 0.8 %.
// What is compared is interleaved, so one step is felt by both.
constexpr double kLeastRelativeScale = 0.015;
// Center and spread of a few times are estimates. Taken as they are, they raise an alarm over 200
// sentinels of a device that only spreads by 1 % in 18 of 100 sessions; so in 2.
constexpr double kScaleFactor = 2;

}  // namespace

void Cusum::Add(double z) {
  z = std::clamp(z, -kWinsor, kWinsor);
  up_ = std::max(0.0, up_ + z - kSlack);
  down_ = std::max(0.0, down_ - z - kSlack);
  alarmed_ = alarmed_ || up_ > kAlarm || down_ > kAlarm;
}

void DriftMonitor::Add(double sentinel_us) {
  if (!std::isfinite(sentinel_us)) return;
  last_.push_back(sentinel_us);
  if (last_.size() > kBaseline) last_.pop_front();
  if (static_cast<int>(first_.size()) < kBaseline) {
    first_.push_back(sentinel_us);
    if (static_cast<int>(first_.size()) < kBaseline) return;
    center_ = Median(first_);
    std::vector<double> deviations;
    for (double first : first_) deviations.push_back(std::abs(first - center_));
    spread_ = 1.4826 * Median(std::move(deviations)) / center_;
    scale_ = std::max(kScaleFactor * spread_, kLeastRelativeScale) * center_;
    return;
  }
  cusum_.Add((sentinel_us - center_) / scale_);
}

double DriftMonitor::change() const {
  return center_ > 0 ? Median({last_.begin(), last_.end()}) / center_ - 1 : 0;
}

void SharingMonitor::Add(double sentinel_us) {
  if (!std::isfinite(sentinel_us)) return;
  last_.push_back(sentinel_us);
  if (last_.size() > kWindow) last_.pop_front();
  least_ = std::min(least_, sentinel_us);
  longest_ = std::max(longest_, sentinel_us);
  const auto waits = std::count_if(last_.begin(), last_.end(),
                                   [this](double us) { return us > least_ + kWaitUs; });
  shared_ = shared_ || waits > kMostWaits;
}

void DeviceWatch::Add(double sentinel_us, double lead_us) {
  drift_.Add(sentinel_us);
  sharing_.Add(std::max(sentinel_us, lead_us));
}

std::string DeviceWatch::TakeTrouble() {
  std::string trouble;
  if (sharing_.shared()) {
    trouble = absl::StrFormat(
        "the device is not ours alone: the sentinel took up to %.1f ms, more than %d times of %d "
        "it had to wait",
        sharing_.longest_us() / 1000, SharingMonitor::kMostWaits, SharingMonitor::kWindow);
  } else if (drift_.spread_out()) {
    trouble = absl::StrFormat(
        "the device is not ours alone: the sentinel's times spread by %.1f %%, an idle device's "
        "by about 1 %%",
        100 * drift_.spread());
  } else if (drift_.drifted()) {
    const double percent = 100 * drift_.change();
    trouble = absl::StrFormat("the device drifted: the sentinel takes %.1f %% %s than before",
                              std::abs(percent), percent < 0 ? "less" : "longer");
  }
  if (!trouble.empty()) *this = DeviceWatch();
  return trouble;
}

}  // namespace kvr::stats
