// SPDX-License-Identifier: Apache-2.0
//
// Progress of a long command on stderr. On a terminal: one line redrawn in place, with a bar,
// counts, the current config and the time left. Elsewhere: a plain line when a phase begins and at
// most every five seconds after. With --json: nothing but notes.
//
// Threading: calls are serialised by the caller (tuner/progress.h). The line is wiped on
// destruction.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "tuner/progress.h"

namespace kvr::cli {

class ProgressBar : public Progress {
 public:
  explicit ProgressBar(bool quiet);
  ~ProgressBar() override;
  void Update(const ProgressUpdate& update) override;
  void Note(std::string_view line) override;
  void Wipe();  // before something is printed below

 private:
  const bool quiet_;
  const bool terminal_;
  bool drawn_ = false;
  bool any_ = false;
  Phase last_phase_ = Phase::kCompile;
  absl::Time last_ = absl::InfinitePast();
};

// "[#####.....] verify 12/32  baseline {BLOCK_H=16,...}  7 s left", at most `width` cells.
std::string BarText(const ProgressUpdate& update, int width);

// Becomes true at the first SIGINT or SIGTERM, from this call on, which says so on stderr; a second
// one ends the process.
const std::atomic<bool>* CancelOnInterrupt();

}  // namespace kvr::cli
