// SPDX-License-Identifier: Apache-2.0
//
// From many configs to one: race all, drop the hopeless early, spend the rounds on those that are
// close, and believe nothing that the choice itself was made on.
//
//   1. screen    two interleaved rounds; dropped beyond 1.5 times the best
//   2. halve     all that remain, in random order each round; the better half stays; rounds grow
//                by half from three, until four are left
//   3. final     fresh samples; each against the best so far by anytime-valid intervals at
//                alpha / 4; those that lose are dropped; at most 80 rounds
//
// The winner's own figure is flattered by having been chosen. Whoever compares it with an
// incumbent does so on samples drawn afterwards (quick.h).
//
// Ranking is by the median over all rounds that the remaining have shared. A subject whose sample
// is not a positive time is out.
//
// Threading: one caller; pure but for the sampler.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tuner/sampler.h"
#include "tuner/stats/noise.h"

namespace kvr::stats {

struct RaceOptions {
  int screen_rounds = 2;
  double screen_factor = 1.5;
  int first_rounds = 3;  // of the first halving
  double growth = 1.5;
  int finalists = 4;
  int final_rounds = 80;
  double alpha = 0.05;
  double band = kLeastBand;  // a finalist loses when it is slower beyond this
};

struct RaceStage {
  std::string_view name;  // "screen", "halve", "final"
  int rounds = 0;
  std::vector<int> entered, left;  // subjects
};

struct RaceResult {
  int winner = -1;              // -1: nobody has a time
  std::vector<double> medians;  // by subject, over the stage that it left in; NaN: failed
  std::vector<RaceStage> stages;
  int samples = 0;  // taken in all
};

// Asked before every round; false stops the race, which answers with what is known.
using KeepRacing = std::function<bool()>;

absl::StatusOr<RaceResult> Race(Sampler& sampler, const RaceOptions& options,
                                const KeepRacing& keep_racing = nullptr);

}  // namespace kvr::stats
