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
#include "tuner/stats/verdict.h"

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
  // Rounds asked of the sampler at once: more than one where each request costs, as over several
  // shapes. The race looks, and can be stopped, between requests.
  int look_every = 1;
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
  std::vector<int> finalists;  // left at the end, best first
  // All that have a time, best first: the finalists, then who left last. Who stands behind whom.
  std::vector<int> ranking;
  int samples = 0;       // taken in all
  bool stopped = false;  // by KeepRacing
};

// Asked before rounds are taken; false stops the race, which answers with what is known.
using KeepRacing = std::function<bool()>;

// The race at one of its looks.
struct RaceLook {
  std::string_view stage;
  int entered = 0, remaining = 0;  // subjects: at the start, still in it
  int best = -1;                   // -1: nobody has a time
  double best_us = 0;
  Interval interval;      // of the best's median, microseconds; unbounded below eight samples
  int samples = 0;        // taken
  int samples_ahead = 0;  // at most
};

class RaceObserver {
 public:
  virtual ~RaceObserver() = default;
  virtual void StageBegins(const RaceStage&) {}
  virtual void Looked(const RaceLook&) {}
  // Who is in `left` is out; the medians are those of the stage.
  virtual void StageEnds(const RaceStage&, const std::vector<double>& /*medians*/) {}
};

absl::StatusOr<RaceResult> Race(Sampler& sampler, const RaceOptions& options,
                                const KeepRacing& keep_racing = nullptr,
                                RaceObserver* observer = nullptr);

}  // namespace kvr::stats
