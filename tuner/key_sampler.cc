// SPDX-License-Identifier: Apache-2.0
#include "tuner/key_sampler.h"

#include <cmath>
#include <limits>
#include <utility>

#include "core/status.h"

namespace kvr {

SampleTable CombineShapes(absl::Span<const SampleTable> tables) {
  if (tables.empty()) return {};
  SampleTable combined = tables.front();
  for (size_t round = 0; round < combined.size(); ++round) {
    for (size_t i = 0; i < combined[round].size(); ++i) {
      double sum = 0;
      for (const SampleTable& table : tables) {
        const double us = table[round][i];
        sum +=
            us > 0 && std::isfinite(us) ? std::log(us) : std::numeric_limits<double>::quiet_NaN();
      }
      if (tables.size() > 1 || std::isnan(sum)) {
        combined[round][i] = std::exp(sum / static_cast<double>(tables.size()));
      }
    }
  }
  return combined;
}

WorkerKeySampler::WorkerKeySampler(size_t shapes, int subjects, Open open, Condemned condemned)
    : open_(std::move(open)),
      condemned_(std::move(condemned)),
      passed_(static_cast<size_t>(subjects), true),
      told_(shapes),
      raw_(shapes, std::vector<std::vector<double>>(static_cast<size_t>(subjects))) {}

std::vector<size_t> WorkerKeySampler::Walk() const {
  std::vector<size_t> walk = {session_shape_};
  for (size_t shape = 0; shape < raw_.size(); ++shape) {
    if (shape != session_shape_) walk.push_back(shape);
  }
  return walk;
}

void WorkerKeySampler::Close() {
  session_.reset();
  closed_ = info_;
}

absl::Status WorkerKeySampler::OpenAt(size_t shape) {
  if (session_ != nullptr && session_shape_ == shape) return absl::OkStatus();
  Close();
  KVR_ASSIGN_OR_RETURN(session_, open_(shape));
  session_shape_ = shape;
  return absl::OkStatus();
}

void WorkerKeySampler::Hear(size_t shape, absl::Span<const int> subjects) {
  info_ = Merge(closed_, session_->info());
  if (trouble_.empty()) trouble_ = session_->trouble();
  for (int subject : subjects) {
    const Finding& finding = session_->finding(subject);
    if (finding.status == TrialStatus::kPassed) continue;
    passed_[subject] = false;
    if (told_[shape].insert(subject).second) condemned_(shape, subject, finding);
  }
}

absl::StatusOr<SampleTable> WorkerKeySampler::Sample(absl::Span<const int> subjects, int rounds) {
  std::vector<SampleTable> tables;
  for (size_t shape : Walk()) {
    KVR_RETURN_IF_ERROR(OpenAt(shape));
    KVR_ASSIGN_OR_RETURN(tables.emplace_back(), session_->Sample(subjects, rounds));
    for (size_t i = 0; i < subjects.size(); ++i) {
      const std::vector<double> column = Column(tables.back(), static_cast<int>(i));
      std::vector<double>& raw = raw_[shape][subjects[i]];
      raw.insert(raw.end(), column.begin(), column.end());
    }
    Hear(shape, subjects);
  }
  return CombineShapes(tables);
}

absl::Status WorkerKeySampler::Check(absl::Span<const int> subjects) {
  for (size_t shape : Walk()) {
    KVR_RETURN_IF_ERROR(OpenAt(shape));
    KVR_RETURN_IF_ERROR(session_->Check(subjects));
    Hear(shape, subjects);
  }
  return absl::OkStatus();
}

void WorkerKeySampler::Renew() {
  Close();
  trouble_.clear();
}

void WorkerKeySampler::Forget() {
  for (auto& shape : raw_) {
    for (std::vector<double>& samples : shape) samples.clear();
  }
}

}  // namespace kvr
