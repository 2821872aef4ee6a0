// SPDX-License-Identifier: Apache-2.0
//
// What a long command is doing, for whoever watches: the CLI draws a bar, an application logs.
//
// Threading: calls come from any thread but never two at once; they should return quickly.
#pragma once

#include <mutex>
#include <string>
#include <string_view>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace kvr {

enum class Phase : uint8_t { kCompile, kVerify, kMeasure, kFill };
std::string_view PhaseName(Phase phase);  // "compile", "verify", "measure", "fill"

struct ProgressUpdate {
  Phase phase = Phase::kCompile;
  int done = 0, total = 0;
  std::string current;      // what is being worked on: "baseline {BLOCK_H=16,...}"
  double eta_seconds = -1;  // until this phase ends; negative: not known yet
};

class Progress {
 public:
  virtual ~Progress() = default;
  virtual void Update(const ProgressUpdate& update) = 0;
  virtual void Note(std::string_view line) = 0;  // something worth keeping: a failure, a winner
};

// Counts one phase's steps, estimates the time left from those done, and tells `progress` (may be
// null). Threading: thread-safe.
class PhaseProgress {
 public:
  PhaseProgress(Progress* progress, Phase phase, int total);
  void Begin(std::string_view current);  // a step begins
  void Done();                           // a step is done
  void Reach(int done);                  // steps up to `done` are done or turned out needless
  // `done` steps of `total`, where both are found out on the way.
  void Set(int done, int total, std::string_view current);
  // Whatever is left, it ends then: the estimate says no more.
  void EndsBy(absl::Time deadline);
  void Note(std::string_view line);

 private:
  void Estimate();
  Progress* const progress_;
  std::mutex mutex_;
  ProgressUpdate update_;
  absl::Time start_ = absl::Now();
  absl::Time deadline_ = absl::InfiniteFuture();
};

}  // namespace kvr
