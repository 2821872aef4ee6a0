// SPDX-License-Identifier: Apache-2.0
#include "tuner/progress.h"

#include <algorithm>

namespace kvr {

std::string_view PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kCompile:
      return "compile";
    case Phase::kVerify:
      return "verify";
    case Phase::kMeasure:
      return "measure";
  }
  return "";
}

PhaseProgress::PhaseProgress(Progress* progress, Phase phase, int total) : progress_(progress) {
  update_.phase = phase;
  update_.total = total;
}

void PhaseProgress::Begin(std::string_view current) {
  if (progress_ == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (update_.done == 0 && update_.current.empty()) start_ = absl::Now();
  update_.current = current;
  progress_->Update(update_);
}

void PhaseProgress::Done() {
  if (progress_ == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  ++update_.done;
  update_.total = std::max(update_.total, update_.done);
  const double elapsed = absl::ToDoubleSeconds(absl::Now() - start_);
  update_.eta_seconds = elapsed / update_.done * (update_.total - update_.done);
  progress_->Update(update_);
}

void PhaseProgress::Reach(int done) {
  if (progress_ == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (done <= update_.done) return;
  update_.done = done;
  update_.eta_seconds = -1;
  progress_->Update(update_);
}

void PhaseProgress::Note(std::string_view line) {
  if (progress_ == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  progress_->Note(line);
}

}  // namespace kvr
