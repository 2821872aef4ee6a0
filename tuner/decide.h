// SPDX-License-Identifier: Apache-2.0
//
// From many configs to the one that is selected, by what can be told from samples:
//
//   1. all race (tuner/stats/racing.h); the finalists' numbers are checked right after
//   2. the best of the race that is not the incumbent meets it on fresh samples: the quick verdict
//      (tuner/stats/quick.h), and again the numbers of both
//   3. a WIN takes the incumbent's place; on anything else the incumbent stays
//
// The race's own times decide nothing about the incumbent: who was chosen by them is flattered by
// them. A challenger whose numbers turn out wrong gives way to the next of the ranking. Where no
// incumbent can be measured, the first of the ranking is selected, on fresh samples too.
//
// A session in trouble (drift, throttling, company on the device) is no ground for a verdict: the
// duel is held once more in a new session, then it is INVALID.
//
// Threading: pure but for the KeySampler; one caller.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tuner/key_sampler.h"
#include "tuner/stats/quick.h"
#include "tuner/stats/racing.h"
#include "tuner/stats/verdict.h"

namespace kvr {

struct DecideOptions {
  stats::RaceOptions race;
  stats::QuickOptions duel;
  int duel_look = 4;      // rounds between looks
  int alone_rounds = 20;  // of who has nobody to meet
  // Not empty: no verdict is to be had, and why; the duel is then a short one, for its times, and
  // its verdict is `without`.
  std::string no_verdict;
  stats::Verdict without = stats::Verdict::kInvalid;
};

// A challenger against the incumbent, on fresh samples.
struct Duel {
  int incumbent = -1, challenger = -1;
  stats::Verdict verdict = stats::Verdict::kInconclusive;
  std::string reason;     // of INVALID, and of what was cut short
  double difference = 0;  // log ratio, challenger over incumbent: the median; NaN: no pair
  stats::Interval interval;
  double incumbent_us = -1, challenger_us = -1;  // medians; negative: none
  int rounds = 0;
};

struct KeyDecision {
  stats::RaceResult race;
  std::string race_trouble;  // not empty: its times must not be read, and reject nobody
  int winner = -1;           // what is selected; -1: nobody could be measured
  double winner_us = -1;     // on fresh samples
  bool incumbent_kept = false;
  bool held = false;  // was there a duel?
  Duel duel;
};

// Hears of the race as it goes, and of what comes after it.
class DecideObserver : public stats::RaceObserver {
 public:
  virtual void Raced(const stats::RaceResult&, const std::string& /*trouble*/) {}
  virtual void DuelBegins(int /*incumbent*/, int /*challenger*/) {}
  virtual void DuelLooked(const stats::QuickComparison&) {}
  virtual void Dueled(const Duel&) {}  // also one that its challenger's numbers ended
  virtual void AloneBegins(int /*subject*/) {}
  virtual void Alone(int /*subject*/, double /*us*/) {}
};

// `incumbent`: its subject, or -1. `race_going`, `duel_going`: false where no time is left; the
// duel is then judged by what there is, INCONCLUSIVE unless it was decided.
absl::StatusOr<KeyDecision> DecideKey(KeySampler& sampler, int incumbent,
                                      const DecideOptions& options,
                                      const stats::KeepRacing& race_going,
                                      const stats::KeepRacing& duel_going,
                                      DecideObserver& observer);

}  // namespace kvr
