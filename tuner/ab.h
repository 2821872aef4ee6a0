// SPDX-License-Identifier: Apache-2.0
//
// kvr ab: is the challenger faster than the incumbent? Two rules (tuner/stats):
//
//   quick   at each shape one session, looked at every four rounds, against the noise band
//   ship    at each shape 16 sessions of 20 rounds, each in a fresh process; Holm over the shapes
//
// The comparison as a whole. A ship verdict is one: its rule is made for several shapes. Quick
// verdicts are one a shape, and the whole is what a careful reader makes of the list: LOSS where
// any shape lost, for no gain elsewhere pays who is served that shape, and no trouble elsewhere
// unsays it; else INVALID where any is; WIN where every shape won or is equivalent, and one won;
// EQUIVALENT where every shape is; else INCONCLUSIVE.
//
// Both contestants may be one: A against A, two loads of the same code, which must not be told
// apart.
//
// Threading: as TuneOp (tuner/tune.h). Cancelling and budget: what is finished is judged and
// reported. Sessions that a budget has cut are judged by those that were finished, for time does
// not look at results; those that a person has cut are not, for people do. Fewer than 16 sessions
// at a shape never ship, whoever wanted them. Errors: a wrong request,
// no worker, insufficient memory for every shape. A contestant that does not build, fit or compute
// what it should makes its shapes INVALID.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tuner/noise_run.h"
#include "tuner/stats/quick.h"
#include "tuner/stats/ship.h"

namespace kvr {

inline constexpr int kQuickRounds = 160;

struct AbRequest {
  std::string op;
  std::vector<Axes> shapes;  // axes left out take the op's defaults; empty: one, all defaults
  std::string incumbent, challenger;  // "w8", "w8{TARGET_CTAS=512}" (tuner/contest.h)
  std::array<Candidate, 2> sides;     // [Side]; instead of the texts, if both have a variant
  std::vector<ApproximateOptIn> approximate;  // contestants that are approximate need one
  bool ship = false;
  MeasureMode mode;
  int input_sets = 2;
  int sessions = stats::kShipSessions;  // of a ship verdict
  int rounds = 0;       // the most of a quick verdict, those of each ship session; 0: 160, 20
  uint64_t seed = 0;    // 0: drawn anew
  double budget_s = 0;  // 0: as long as it takes
};

struct AbShape {
  Axes axes;
  stats::Verdict verdict = stats::Verdict::kInconclusive;
  std::string reason;                            // of INVALID, and of what was cut short
  double incumbent_us = -1, challenger_us = -1;  // medians of all samples; negative: none
  // Log ratio, challenger over incumbent: the median of a quick verdict, the mean of the sessions'
  // medians of a ship verdict; NaN: none.
  double difference = std::numeric_limits<double>::quiet_NaN();
  stats::Interval interval;          // 95 %
  BandInUse band;                    // quick only
  bool band_too_wide = false;        // for their equality to show; quick only
  bool regression_excluded = false;  // ship only
  double regression_bound = std::numeric_limits<double>::infinity();  // log ratio; ship only
  double p_win = 1, p_loss = 1;                                       // ship only
  int rounds = 0;                                                     // in all
  std::vector<SessionResult> sessions;  // what was judged; of a quick verdict also what was not
  // [Side]: of approximate contestants, against the exact reference.
  std::array<std::vector<QualityMeasure>, 2> quality;
};

struct AbReport {
  DeviceInfo device;
  std::string op;
  std::array<Candidate, 2> sides;    // [Side]
  std::array<std::string, 2> names;  // ContestantText
  bool ship_asked = false;
  MeasureMode mode;
  uint64_t seed = 0;
  int planned_sessions = 1;
  std::vector<AbShape> shapes;
  stats::Verdict verdict = stats::Verdict::kInvalid;
  bool ship = false;    // a ship verdict that says so
  SessionInfo session;  // merged over all of them
  int respawns = 0;     // workers that were brought down
  bool cancelled = false, out_of_time = false;
};

absl::StatusOr<AbReport> CompareContestants(const Workbench& bench, const AbRequest& request);

// The verdict of the whole: "SHIP" where it says so, else VerdictName.
std::string_view Answer(const AbReport& report);
// "w8 against baseline: LOSS at 2 of 6 shapes; do not ship."
std::string Conclusion(const AbReport& report);
// "16 sessions", "3 to 4 of 16 sessions": those that a ship verdict has at each shape.
std::string SessionsText(const AbReport& report);
// What decided at a shape of a ship verdict, where its interval alone reads otherwise: the
// one-sided bound that excludes a regression, or Holm's correction. Empty: it reads alike.
std::string DecidedBy(const AbReport& report, const AbShape& shape);

// "+9.6 % (+9.1 to +10.2)" of time, from log ratios; "?" for an open end, "-" without a sample.
std::string DifferenceText(double difference, const stats::Interval& interval);

// What CompareContestants decides with, for whoever has sessions of other origin.

// Told after every look.
using QuickWatch = std::function<void(const stats::QuickComparison& so_far)>;
// One session, until its interval says something.
absl::StatusOr<AbShape> DecideQuickly(PairedSession& session, const stats::QuickOptions& options,
                                      const std::array<std::string, 2>& names,
                                      const KeepGoing& keep_going,
                                      const QuickWatch& watch = nullptr);
// The ship verdict of a report's shapes (those INVALID already stay so), and of the whole.
void JudgeSessions(std::vector<ShapeSessions> taken, AbReport& report);
stats::Verdict Whole(absl::Span<const AbShape> quick);

}  // namespace kvr
