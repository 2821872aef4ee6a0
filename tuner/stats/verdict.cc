// SPDX-License-Identifier: Apache-2.0
#include "tuner/stats/verdict.h"

#include <cmath>

namespace kvr::stats {

std::string_view VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kWin:
      return "WIN";
    case Verdict::kLoss:
      return "LOSS";
    case Verdict::kEquivalent:
      return "EQUIVALENT";
    case Verdict::kInconclusive:
      return "INCONCLUSIVE";
    case Verdict::kInvalid:
      return "INVALID";
  }
  return "INVALID";
}

double LogRatio(double incumbent_us, double challenger_us) {
  const bool usable = std::isfinite(incumbent_us) && std::isfinite(challenger_us) &&
                      incumbent_us > 0 && challenger_us > 0;
  return usable ? std::log(challenger_us / incumbent_us) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace kvr::stats
