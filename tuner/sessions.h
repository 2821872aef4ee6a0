// SPDX-License-Identifier: Apache-2.0
//
// Measuring sessions of two contestants, apart from where they come from: what kvr ab, kvr noise
// and the noise band of a tune are loops over. A session is one load of both in one process, timed
// by turns at one shape; a source opens sessions and can begin afresh. The worker is a source
// (tuner/contest.h); tests make theirs of random numbers.
//
// Two things can be wrong. A *fault* is a contestant's own (it crashed, its numbers are wrong): no
// other session would mend it. *Trouble* is the session's (drift, throttling, another process on
// the device): its samples must not be read, and another session may be better.
//
// Threading: one caller at a time. Errors: the source's own, never a contestant's.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/axes.h"
#include "tuner/sampler.h"
#include "tuner/worker/protocol.h"

namespace kvr {

enum Side : int { kIncumbent = 0, kChallenger = 1 };

class PairedSession {
 public:
  virtual ~PairedSession() = default;
  // [round][side], microseconds a launch; NaN where that side failed.
  virtual absl::StatusOr<SampleTable> Sample(int rounds) = 0;
  // Are the numbers of both right, under the session's own launches? finding() has the answer.
  virtual absl::Status Check() = 0;
  virtual Finding finding(Side side) const = 0;
  virtual std::string trouble() const = 0;  // as Sampler::trouble
  virtual SessionInfo info() const = 0;
};

class SessionSource {
 public:
  virtual ~SessionSource() = default;
  // The next session is in a fresh process: a new context, new loads, new allocations.
  virtual absl::Status Renew() = 0;
  // Ends the session before it. `axes`: every axis.
  virtual absl::StatusOr<std::unique_ptr<PairedSession>> Open(const Axes& axes) = 0;
};

// What one session gave.
struct SessionResult {
  std::array<std::vector<double>, 2> us;  // [side][round]
  std::array<Finding, 2> findings;        // [side]
  std::string trouble;                    // empty: nothing is known against the samples
  bool stopped = false;                   // before its rounds, by KeepGoing or a cancelled worker
  bool proved = false;                    // the numbers were right after the last round too
  SessionInfo info;

  int rounds() const { return static_cast<int>(us[kIncumbent].size()); }
  bool fault() const;
  // A whole session that may be read.
  bool usable() const { return !stopped && proved && trouble.empty() && !fault(); }
  std::vector<double> LogRatios() const;  // challenger over incumbent, by round
};

// Asked between looks; false ends what runs: cancelled, or no time is left.
using KeepGoing = std::function<bool()>;

// Rounds between two looks at how a session goes.
inline constexpr int kRoundsPerLook = 4;

// Checks the numbers, takes up to `rounds` rounds, checks the numbers again. After every look
// `enough` (may be null) may end the rounds; a fault or trouble does.
absl::StatusOr<SessionResult> TakeSession(
    PairedSession& session, int rounds, const KeepGoing& keep_going,
    const std::function<bool(const SessionResult&)>& enough = nullptr);

struct SessionsPlan {
  int sessions = 1, rounds = 1;
  uint64_t seed = 0;  // of the order of shapes
  KeepGoing keep_going;
  std::function<void(size_t shape, int session)> starting;
  std::function<void(size_t shape, const SessionResult&)> finished;  // also what is not kept
};

// What a plan's sessions gave at one shape.
struct ShapeSessions {
  std::vector<SessionResult> kept;  // usable ones; fewer than planned where there was no time
  std::string trouble;  // it came twice in one session: the shape is measured no further
  std::array<Finding, 2> findings;  // [side]; a fault ends the shape, too
  absl::Status refused;             // no session could be opened there: insufficient memory
  bool fault() const;
  bool sound() const { return trouble.empty() && refused.ok() && !fault(); }
};

// Sessions in the outer loop, each in a fresh process; in it the shapes, in random order: what
// changes over the run touches all of them alike. A session in trouble is taken once more.
absl::StatusOr<std::vector<ShapeSessions>> TakeSessions(SessionSource& source,
                                                        absl::Span<const Axes> shapes,
                                                        const SessionsPlan& plan);

// "challenger w8: INCORRECT_NUMERICAL: ..." of the first fault; `names` by side. Empty: none.
std::string FaultText(const std::array<Finding, 2>& findings,
                      const std::array<std::string, 2>& names);

}  // namespace kvr
