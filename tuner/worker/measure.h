// SPDX-License-Identifier: Apache-2.0
//
// A measuring session: what a sample is.
//
// A sample is the time of an epoch over its launches: the subject's whole plan, clears included, as
// serving runs it. An epoch is long enough for the clock (SessionOptions::epoch_us) and lies
// between two events. All subjects have as many launches an epoch, as many as the fastest needs: an
// epoch's beginning takes its time too, and 10 launches share it otherwise than 16. Planning is
// timed apart, on the host.
//
// Graph mode records an epoch and replays it; eager mode launches one by one. Cold caches: every
// launch takes the next buffer set of a ring (tuner/worker/ring.h), epoch after epoch and subject
// after subject. Hot caches: one buffer set for each input set, each used once before the epoch.
// The workspace is one and stays warm, as it does in serving.
//
// Rounds visit their subjects in random order, on inputs drawn for the round: an epoch of at least
// as many launches as there are input sets goes over all of them equally, a shorter one begins on
// the same inputs for all subjects.
//
// On cuda something untimed runs before the epoch, so that the host's work for its beginning is
// hidden: one launch of the subject (it also brings the code into the caches), then, before a
// graph, the sentinel, which touches no memory.
//
// On cuda a session begins with the sentinel, until the clock is steady; and a cold one with a turn
// of the ring, untimed: memory that was never used takes longer (10.1 instead of 9.4 us on an
// H200).
//
// Sentinel: every kSentinelEpochs epochs, a few milliseconds on a GPU, however many subjects race;
// throttle reasons are read while it runs.
//
// Checking: one buffer set gets other inputs and poisoned outputs, the subject's epoch runs as it
// does when timed (the graph that was replayed before is replayed), and that set must hold the
// right answer: a kernel that remembers its inputs, skips work once it has run, or bakes into its
// launch what a replay does not change does not pass. The set keeps those inputs for the checks
// that follow, of subjects that were timed on its own: copying them takes longer than all else.
//
// Memory: the ring shrinks where memory is short, and is then not cold. Graphs are bounded
// (tuner/worker/recordings.h) and not counted in the budget; those of subjects that a call to
// Sample leaves out are dropped.
//
// Threading: one thread. Errors of the device while a subject's kernels run, and of recording them,
// come back as an Outcome's finding, RUNTIME_ERROR; errors of the job itself (memory, inputs, the
// sentinel) as a status.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/device.h"
#include "core/op.h"
#include "registry/prepared.h"
#include "tuner/sampler.h"
#include "tuner/worker/bench.h"
#include "tuner/worker/inputs.h"
#include "tuner/worker/memory.h"
#include "tuner/worker/protocol.h"
#include "tuner/worker/recordings.h"
#include "tuner/worker/ring.h"
#include "tuner/worker/sentinel.h"

namespace kvr {

class MeasureSession {
 public:
  static constexpr int kSentinelEpochs = 10;

  ~MeasureSession();
  // `subjects[i]` may be null: it takes no part. At least two `sets`, or Check can only poison.
  // `sentinel` may be null. `own`, by subject and set, is what approximate subjects are held to;
  // empty of one, or of all: the op's reference.
  static absl::StatusOr<std::unique_ptr<MeasureSession>> Open(
      Bench& bench, const Operation& op, const AxisVector& axes, std::vector<InputSetPtr> sets,
      std::vector<PreparedPtr> subjects, const SessionOptions& options,
      std::unique_ptr<Sentinel> sentinel, std::vector<std::vector<OwnReference>> own = {});

  // `fault` is set (and the table is short) when a subject's launch failed.
  absl::StatusOr<SampleTable> Sample(absl::Span<const int> subjects, int rounds, Outcome* fault);
  absl::StatusOr<Outcome> Check(int subject);
  SessionInfo TakeInfo();  // with the sentinels since the last call
  const Recordings& recordings() const { return recordings_; }

 private:
  struct BufferSet {
    std::unique_ptr<Arena> arena;
    size_t input_set = 0;
    std::vector<TensorView> tensors;
  };
  struct Subject {
    PreparedPtr prepared;
    LaunchPlan plan;
    double launch_us = -1;
    bool calibrated() const { return launch_us >= 0; }
  };
  MeasureSession(Bench& bench, const Operation& op) : bench_(bench), op_(op) {}
  absl::Status Plan(const AxisVector& axes, std::vector<PreparedPtr> prepared);
  absl::Status MakeRing(const AxisVector& axes);
  absl::Status Upload(BufferSet& buffers, size_t input_set);
  absl::Status RestoreInputs();  // of the buffer set that a check left with others
  bool SameScalars(size_t a, size_t b) const;
  const std::vector<ReferenceOutput>& ReferenceOf(int index, size_t set) const;

  absl::Status Launch(const Subject& subject, size_t set);
  absl::StatusOr<std::unique_ptr<Graph>> Record(int index, int launches, size_t first);
  // The graph of an epoch, made now if need be; null where launches are eager.
  absl::StatusOr<Graph*> GraphOf(int index, int launches, size_t first);
  // Enqueues an epoch, which moves the ring on.
  absl::Status Replay(const Subject& subject, Graph* graph, int launches, size_t first);
  absl::Status LeadIn(const Subject& subject, bool graph, size_t first);
  absl::StatusOr<double> TimeEpoch(int index, int launches, size_t phase);
  absl::Status Calibrate(int index);
  int LaunchesOf(const Subject& subject) const;  // of its epochs
  absl::Status SteadyClock();
  absl::Status FirstTurn(int index);
  absl::Status RunSentinel();

  Bench& bench_;
  const Operation& op_;
  MeasureMode mode_;
  double epoch_us_ = 0;
  std::vector<InputSetPtr> sets_;
  std::vector<Subject> subjects_;
  std::vector<std::vector<OwnReference>> own_;  // by subject and set
  std::vector<BufferSet> buffers_;
  std::unique_ptr<Arena> workspace_;
  std::unique_ptr<Sentinel> sentinel_;
  Recordings recordings_;
  Ring ring_;
  int launches_ = 0;  // of an epoch, but of very slow subjects
  bool steady_ = false, turned_ = false;
  size_t cursor_ = 0;              // behind what was last used of the ring
  std::optional<size_t> foreign_;  // the buffer set that has others than its own inputs
  int64_t epochs_ = 0;
  SessionInfo info_;
  Sentinel::Reading readings_;  // summed up
  Event before_, start_, stop_;
  std::mt19937_64 random_{std::random_device{}()};
};

}  // namespace kvr
