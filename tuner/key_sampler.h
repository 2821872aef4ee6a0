// SPDX-License-Identifier: Apache-2.0
//
// The times of one tuning key's configs. A key may have several representative shapes; then a
// config's time is the geometric mean of its times at all of them, round by round, and a config
// that fails at one of them has failed. A worker holds one session at a time, so each request walks
// the shapes: ask for several rounds at once.
//
// Threading: one caller at a time, on the worker client's thread.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tuner/sampler.h"
#include "tuner/worker/client.h"

namespace kvr {

// tables[shape][round][position]: the geometric mean over the shapes; NaN where one is no positive
// time.
SampleTable CombineShapes(absl::Span<const SampleTable> tables);

// What decides about a key (tuner/decide.h) asks of its times, wherever they come from.
class KeySampler : public Sampler {
 public:
  // Are the numbers right, at every shape, under the launches that were timed? Passed() knows then.
  virtual absl::Status Check(absl::Span<const int> subjects) = 0;
  // Nothing has been found against it so far.
  virtual bool Passed(int subject) const = 0;
  // What comes is measured in new sessions; the trouble of those before is theirs.
  virtual void Renew() = 0;
};

class WorkerKeySampler : public KeySampler {
 public:
  // Opens a session at one of the shapes; the one before has been closed.
  using Open = std::function<absl::StatusOr<std::unique_ptr<WorkerSampler>>(size_t shape)>;
  // Hears once a shape of a subject that failed while being timed or checked.
  using Condemned = std::function<void(size_t shape, int subject, const Finding&)>;
  WorkerKeySampler(size_t shapes, int subjects, Open open, Condemned condemned);

  int subjects() const override { return static_cast<int>(passed_.size()); }
  absl::StatusOr<SampleTable> Sample(absl::Span<const int> subjects, int rounds) override;
  std::string trouble() const override { return trouble_; }
  absl::Status Check(absl::Span<const int> subjects) override;
  bool Passed(int subject) const override { return passed_[subject]; }
  void Renew() override;

  // Raw samples at a shape since the last Forget, in the order taken.
  const std::vector<double>& Raw(size_t shape, int subject) const { return raw_[shape][subject]; }
  void Forget();

  const SessionInfo& info() const { return info_; }  // merged over the sessions

 private:
  // The walk begins at the shape whose session is open.
  std::vector<size_t> Walk() const;
  absl::Status OpenAt(size_t shape);
  void Close();
  void Hear(size_t shape, absl::Span<const int> subjects);

  const Open open_;
  const Condemned condemned_;
  std::unique_ptr<WorkerSampler> session_;
  size_t session_shape_ = 0;
  SessionInfo info_;  // of the sessions closed, and of the open one as it last was
  SessionInfo closed_;
  std::string trouble_;
  std::vector<bool> passed_;
  std::vector<std::set<int>> told_;                    // [shape]: subjects
  std::vector<std::vector<std::vector<double>>> raw_;  // [shape][subject]
};

}  // namespace kvr
