// SPDX-License-Identifier: Apache-2.0
//
// What the worker does with kernels it does not trust: verify one, time several. Both launch
// through registry/prepared.h, as a serving process does.
//
// Verifying: fresh inputs, outputs and workspace poisoned, fences around every buffer; afterwards
// the fences must stand, the inputs must be what they were, and the outputs must meet the op's
// reference.
//
// Timing: events around epochs, batches of launches long enough (epoch_us) for the clock, on cuda
// after one untimed launch that hides the first one's host work. Every launch takes the next buffer
// set of a ring (RingSize), epoch after epoch and subject after subject, so that where the ring is
// large enough a set has left the L2 cache before it is used again; else the session is not `cold`.
// The workspace is one and stays warm, as it does in serving. Rounds visit their subjects in random
// order, each from a buffer set with the same inputs as the others'. Eager launches: where a kernel
// is shorter than its launch, the launch is what is measured.
//
// Checking: one buffer set gets other inputs and poisoned outputs, the subject's epoch runs as it
// does when timed, and that set must hold the right answer: a kernel that remembers its inputs or
// skips work once it has run does not pass.
//
// Threading: one thread. Errors of the device while kernels run come back as an Outcome's finding,
// RUNTIME_ERROR; errors of the job itself (memory, inputs) as a status.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/device.h"
#include "core/op.h"
#include "registry/prepared.h"
#include "tuner/sampler.h"
#include "tuner/worker/inputs.h"
#include "tuner/worker/memory.h"
#include "tuner/worker/protocol.h"

namespace kvr {

struct Bench {
  Device& device;
  Stream stream;
  MemoryBudget memory;
  // Told before the stage begins; `doing` as Message has it.
  std::function<void(Stage, int subject, const std::string& doing)> at;
};

// A fence broke, a kernel faulted, ...: memory of this process or context may be damaged.
struct Outcome {
  Finding finding;
  bool damaged = false;
};

// One round; `round` chooses the poison.
absl::StatusOr<Outcome> VerifyRound(Bench& bench, const Operation& op, const AxisVector& axes,
                                    const InputSet& set, const Prepared& prepared, int round);

struct RingSize {
  int64_t sets = 0;  // buffer sets to make; fewer where memory is short
  int64_t cold = 0;  // as many are needed for cold caches; 0: the device's L2 is not known
};
// `touched` bytes of a set's `allocated` ones are used by a launch (Operation::MinimumBytes). One
// turn of a cold ring touches twice the L2's size; half of that is slack for sets that a subject
// skips to start on its round's inputs. At most 512 sets and 12 GiB, but one for each input set.
RingSize SizeRing(int64_t l2_bytes, int64_t touched, int64_t allocated, int64_t input_sets);

class MeasureSession {
 public:
  ~MeasureSession();
  // `subjects[i]` may be null: it takes no part. At least two `sets`, or Check can only poison.
  static absl::StatusOr<std::unique_ptr<MeasureSession>> Open(Bench& bench, const Operation& op,
                                                              const AxisVector& axes,
                                                              std::vector<InputSetPtr> sets,
                                                              std::vector<PreparedPtr> subjects,
                                                              const SessionOptions& options);

  // `fault` is set (and the table is short) when a subject's launch failed.
  absl::StatusOr<SampleTable> Sample(absl::Span<const int> subjects, int rounds, Outcome* fault);
  absl::StatusOr<Outcome> Check(int subject);
  SessionInfo info() const;

 private:
  struct BufferSet {
    std::unique_ptr<Arena> arena;
    size_t input_set = 0;
    std::vector<TensorView> tensors;
  };
  struct Subject {
    PreparedPtr prepared;
    LaunchPlan plan;
    int launches = 0;  // of an epoch; 0: not calibrated yet
  };
  MeasureSession(Bench& bench, const Operation& op) : bench_(bench), op_(op) {}
  absl::Status Upload(BufferSet& buffers, size_t input_set);
  // Launches from the ring at `first`, which moves the ring on.
  absl::StatusOr<double> TimeEpoch(const Subject& subject, int launches, size_t first);
  // The next of the ring that holds the inputs `phase`, with one before it to warm up on.
  size_t Next(size_t phase) const;
  absl::Status Calibrate(Subject& subject);

  Bench& bench_;
  const Operation& op_;
  std::vector<InputSetPtr> sets_;
  std::vector<Subject> subjects_;
  std::vector<BufferSet> buffers_;
  std::unique_ptr<Arena> workspace_;
  MeasureMode mode_;
  double epoch_us_ = 0;
  bool cold_ = false;
  size_t cursor_ = 0;  // behind what was last used of the ring
  Event start_, stop_;
  std::mt19937_64 random_{std::random_device{}()};
};

}  // namespace kvr
