// SPDX-License-Identifier: Apache-2.0
//
// The vocabulary of comparisons. A comparison is of a challenger against an incumbent, in log
// ratios d = ln(challenger time / incumbent time): negative is faster, and swapping the two changes
// the sign and nothing else. Small d read as relative differences: d = -0.05 is 5 % less time.
//
// Threading: values and pure functions, as in all of tuner/stats: no clock, no device, no file.
#pragma once

#include <limits>
#include <string_view>

namespace kvr::stats {

enum class Verdict {
  kWin,           // faster, beyond the noise band
  kLoss,          // slower, beyond the noise band
  kEquivalent,    // as fast, to within what matters
  kInconclusive,  // the samples do not tell
  kInvalid,       // the samples must not be read: drift, throttling, wrong numbers
};
std::string_view VerdictName(Verdict verdict);  // "WIN", ...

// Of a log ratio; the default says nothing.
struct Interval {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

// The log ratio of one pair of samples; NaN unless both are finite and positive.
double LogRatio(double incumbent_us, double challenger_us);

}  // namespace kvr::stats
