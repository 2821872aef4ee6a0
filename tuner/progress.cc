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
    case Phase::kFill:  // memory, with what is to be read
      return "fill";
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
  Estimate();
  progress_->Update(update_);
}

void PhaseProgress::Set(int done, int total, std::string_view current) {
  if (progress_ == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  update_.done = done;
  update_.total = std::max(total, done);
  update_.current = current;
  Estimate();
  progress_->Update(update_);
}

void PhaseProgress::EndsBy(absl::Time deadline) {
  const std::lock_guard<std::mutex> lock(mutex_);
  deadline_ = deadline;
}

void PhaseProgress::Estimate() {
  if (update_.done <= 0) return;
  const absl::Time now = absl::Now();
  const double elapsed = absl::ToDoubleSeconds(now - start_);
  update_.eta_seconds = elapsed / update_.done * (update_.total - update_.done);
  if (deadline_ != absl::InfiniteFuture()) {
    const double rest = std::max(0.0, absl::ToDoubleSeconds(deadline_ - now));
    update_.eta_seconds = std::min(update_.eta_seconds, rest);
  }
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
