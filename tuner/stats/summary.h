// SPDX-License-Identifier: Apache-2.0
//
// Results that came as percentages, without samples: other people's tables. There is nothing to
// compute an interval from, so they are read against a noise band alone: as reported, unconverted,
// strictly beyond the band's upper edge, else inconclusive. A repeated measurement (several
// percentages) must be beyond it each time.
//
// Threading: pure function.
#pragma once

#include "absl/types/span.h"
#include "tuner/stats/verdict.h"

namespace kvr::stats {

// `percents`: of a figure where higher is better (throughput); negate those of times. Empty or not
// finite: kInvalid.
Verdict JudgeSummary(absl::Span<const double> percents, double band_edge_percent);

}  // namespace kvr::stats
