// SPDX-License-Identifier: Apache-2.0
#include "tuner/pick.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/status.h"

namespace kvr {

std::vector<int> Screen(absl::Span<const double> medians, int incumbent,
                        const PickOptions& options) {
  std::vector<int> order;
  for (size_t i = 0; i < medians.size(); ++i) {
    if (std::isfinite(medians[i])) order.push_back(static_cast<int>(i));
  }
  // Ties keep their order. (std::stable_sort trips over its own deprecation under Clang.)
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return medians[a] != medians[b] ? medians[a] < medians[b] : a < b;
  });
  std::vector<int> kept;
  for (int i : order) {
    const bool fast = medians[i] <= options.screen_factor * medians[order.front()];
    if (fast && static_cast<int>(kept.size()) < options.survivors) kept.push_back(i);
  }
  if (incumbent >= 0 && std::isfinite(medians[incumbent]) &&
      std::find(kept.begin(), kept.end(), incumbent) == kept.end()) {
    kept.push_back(incumbent);
  }
  return kept;
}

Picked PickWinner(absl::Span<const double> medians, int incumbent, double minimum_gain) {
  Picked picked;
  for (size_t i = 0; i < medians.size(); ++i) {
    if (!std::isfinite(medians[i])) continue;
    if (picked.winner < 0 || medians[i] < medians[picked.winner]) {
      picked.winner = static_cast<int>(i);
    }
  }
  if (picked.winner < 0) return picked;
  picked.winner_us = medians[picked.winner];
  if (incumbent < 0 || !std::isfinite(medians[incumbent])) return picked;
  picked.gain = 1 - medians[picked.winner] / medians[incumbent];
  picked.incumbent_us = medians[incumbent];
  if (picked.winner == incumbent || picked.gain < minimum_gain) {
    picked.winner = incumbent;
    picked.incumbent_kept = true;
  }
  picked.winner_us = medians[picked.winner];
  return picked;
}

absl::StatusOr<Picked> Decide(std::vector<double> medians, int incumbent, double minimum_gain,
                              const FreshMedians& fresh) {
  for (;;) {
    const int best = PickWinner(medians, -1, minimum_gain).winner;
    if (best < 0) return Picked();
    std::vector<int> duel = {best};
    if (incumbent >= 0 && incumbent != best && std::isfinite(medians[incumbent])) {
      duel.push_back(incumbent);
    }
    KVR_ASSIGN_OR_RETURN(const std::vector<double> again, fresh(duel));
    std::vector<double> decisive(medians.size(), std::numeric_limits<double>::quiet_NaN());
    for (size_t i = 0; i < duel.size(); ++i) {
      decisive[duel[i]] = again[i];
      if (!std::isfinite(again[i])) medians[duel[i]] = again[i];
    }
    if (std::isfinite(decisive[best])) return PickWinner(decisive, incumbent, minimum_gain);
  }
}

std::vector<double> CombineShapes(const std::vector<std::vector<double>>& times) {
  if (times.empty()) return {};
  if (times.size() == 1) return times.front();
  std::vector<double> logs(times.front().size(), 0);
  for (const std::vector<double>& shape : times) {
    for (size_t i = 0; i < logs.size(); ++i) logs[i] += std::log(shape[i]);
  }
  for (double& value : logs) value = std::exp(value / static_cast<double>(times.size()));
  return logs;
}

}  // namespace kvr
