// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "absl/strings/str_format.h"
#include "core/strings.h"
#include "tuner/report/report.h"

namespace kvr::report {

std::string PercentText(double log_ratio) {
  if (!std::isfinite(log_ratio)) return "?";
  const double percent = 100 * std::expm1(log_ratio);
  return std::abs(percent) < 0.05 ? "0.0 %" : absl::StrFormat("%+.1f %%", percent);
}

std::string IntervalText(double low, double high) {
  return StrCat(PercentText(low), " … ", PercentText(high));
}

std::string BandText(double band) { return absl::StrFormat("±%.1f %%", 100 * std::expm1(band)); }

std::string MicrosecondsText(double us) {
  if (!std::isfinite(us)) return "?";
  return absl::StrFormat(us < 100 ? "%.2f" : "%.1f", us);
}

}  // namespace kvr::report
