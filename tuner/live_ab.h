// SPDX-License-Identifier: Apache-2.0
//
// Is generation B faster than A in a running server? Numbers in, a verdict out. Blocks of steps
// come in rounds of four, ABBA or BAAB by chance, so a round's log ratio
//
//   d = median ln t over the steps of B's two blocks - the same of A's
//
// has drift on both sides alike, and under A against A either sign with one half, whatever the
// traffic and the noise do: the round is the unit that the rules count, not the step, whose
// neighbours share their disturbances. Buckets are compared each with itself.
//
//   quick   tuner/stats/quick.h on the rounds of each bucket, at alpha / number of buckets, so that
//           all intervals hold together; may be looked at after every round
//   ship    tuner/stats/ship.h: 16 sessions, each a few rounds in a row taken together as one, so
//           that what disturbs one session is over in the next; Holm over the buckets
//
// Neither sees what a fresh load of the same kernels would change: the quick verdict's band and the
// ship verdict's margin of 1 % are for that.
//
// A bucket with less than 5 % of the steps is reported, and may lose; nothing waits for it. The
// whole, of a quick verdict: LOSS where any bucket lost, else INCONCLUSIVE where one that is not
// rare is, else WIN where any won, else EQUIVALENT. INVALID: steps went wrong, ran something else
// than their side, or have no positive time.
//
// Threading: one caller at a time.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tuner/stats/median_interval.h"
#include "tuner/stats/noise.h"
#include "tuner/stats/ship.h"
#include "tuner/stats/verdict.h"

namespace kvr {

inline constexpr int kLiveRounds = 160;       // of a quick verdict, at most
inline constexpr int kLiveSessionRounds = 4;  // of each session of a ship verdict
inline constexpr double kRareBucket = 0.05;   // of the steps

struct LiveAbRules {
  bool ship = false;
  double band = stats::kLeastBand;      // quick only
  int rounds = 0;                       // 0: kLiveRounds at most, or kLiveSessionRounds each
  int sessions = stats::kShipSessions;  // ship only; fewer than 16 never ship
};

struct LiveBlock {
  int number = 0;  // from 0, without gaps
  int side = 0;    // 0: A
  int steps = 0, errors = 0, not_applied = 0;
  std::map<std::string, std::vector<double>> us;  // by bucket
};

struct LiveBucket {
  std::string name;
  stats::Verdict verdict = stats::Verdict::kInconclusive;
  std::string reason;
  std::array<double, 2> median_us{-1, -1};  // of all steps of a side; negative: none
  std::array<int64_t, 2> steps{};
  double difference = std::numeric_limits<double>::quiet_NaN();  // log ratio, B over A
  stats::Interval interval;  // quick: 95 % for all buckets together; ship: of this one alone
  int rounds = 0, sessions = 0;
  bool rare = false;
  bool regression_excluded = false;  // ship only
};

struct LiveVerdict {
  std::vector<LiveBucket> buckets;  // by number where they are numbers, else by name
  stats::Verdict verdict = stats::Verdict::kInconclusive;
  bool ship = false;
  std::string reason;  // of INVALID
  int rounds = 0;
  std::array<int64_t, 2> steps{};  // that count
  std::array<int64_t, 2> errors{};
  int64_t not_applied = 0;
};

class LiveComparison {
 public:
  explicit LiveComparison(const LiveAbRules& rules);
  void Add(const LiveBlock& block);
  LiveVerdict Judge() const;
  // Further rounds would change nothing, or there have been enough.
  bool done() const { return done_; }
  int rounds() const { return rounds_; }

 private:
  struct Bucket {
    std::array<std::vector<double>, 2> us;          // all
    std::array<std::vector<double>, 2> round;       // ln t of the round at hand
    std::vector<double> ratios;                     // by round that had enough of both
    std::array<std::vector<double>, 2> session;     // ln t of the session at hand
    std::vector<double> medians;                    // by session
    std::optional<stats::MedianInterval> interval;  // of `ratios`, at alpha_
    bool invalid = false;
  };
  void EndRound();
  bool Enough();
  // All but the medians of the steps, which take a look at every one of them.
  LiveVerdict Decide() const;
  bool Rare(const Bucket& bucket) const;
  void JudgeQuick(LiveVerdict* verdict) const;
  void JudgeShip(LiveVerdict* verdict) const;

  const LiveAbRules rules_;
  std::map<std::string, Bucket> buckets_;
  double alpha_ = 0;  // of a bucket's interval; quick only
  bool done_ = false;
  int rounds_ = 0;
  std::array<int64_t, 2> steps_{}, errors_{};
  int64_t not_applied_ = 0;
};

// "b against a: LOSS at 32 of 3 buckets; ..." for people.
std::string LiveConclusion(const LiveVerdict& verdict, bool ship);

}  // namespace kvr
