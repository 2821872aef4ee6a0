// SPDX-License-Identifier: Apache-2.0
//
// The noise band: the relative difference that A against A shows. Interleaving takes drift out of
// one session's log ratios, but a session (a fresh load, fresh allocations) has an effect of its
// own that more rounds cannot average away. K sessions of R paired rounds give
//
//   r_k = median of session k's log ratios        se_k^2 = (pi/2) (1.4826 MAD_k)^2 / R_k
//   sigma^2 = max(0, mean r_k^2 - mean se_k^2)    what the sessions add
//   B = max(floor, 1.96 sqrt(K / chi^2_{0.05,K}) sigma)
//
// The factor makes B cover 95 % of sessions though sigma is known from K of them only. The floor is
// what no clock and nobody's question resolves: 1 %, or two half-microsecond ticks of an epoch.
//
// Threading: pure functions.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace kvr::stats {

inline constexpr double kLeastBand = 0.01;
inline constexpr double kClockTickUs = 0.5;  // of event timing

// Sessions and rounds of `kvr noise`, and of the short one that a tune takes without a stored band.
inline constexpr int kNoiseSessions = 20, kNoiseRounds = 80, kShortNoiseSessions = 3;
// What fewer would give is luck: two sessions that agree by chance say 1 %.
inline constexpr int kLeastNoiseSessions = 3, kLeastNoiseRounds = 8;

struct NoiseBand {
  double band = kLeastBand;
  double sigma = 0;  // of a session's effect
  double floor = kLeastBand;
  double factor = 0;  // 1.96 sqrt(K / chi^2)
  std::vector<double> session_medians;
};

// `sessions[k]`: the log ratios of one session. `epoch_us`: the shortest epoch timed. Errors: no
// session; a session of fewer than two rounds; a ratio that is not finite.
absl::StatusOr<NoiseBand> EstimateBand(absl::Span<const std::vector<double>> sessions,
                                       double epoch_us);

}  // namespace kvr::stats
