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
// after one untimed launch that hides the first one's host work. Every launch of an epoch takes the
// next buffer set of a ring, which is larger than twice the L2 cache where memory allows, so caches
// are cold; rounds visit their subjects in random order, all starting at the same buffer set. Eager
// launches: where a kernel is shorter than its launch, the launch is what is measured.
//
// Checking: one buffer set gets other inputs and poisoned outputs, the subject's epoch runs as it
// does when timed, and that set must hold the right answer: a kernel that remembers its inputs or
// skips work once it has run does not pass.
//
// Threading: one thread. Errors of the device while kernels run come back as an Outcome's verdict,
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
  std::function<void(Stage, int subject)> at;  // told before the stage begins
};

// A fence broke, a kernel faulted, ...: memory of this process or context may be damaged.
struct Outcome {
  Verdict verdict;
  bool damaged = false;
};

// One round; `round` chooses the poison.
absl::StatusOr<Outcome> VerifyRound(Bench& bench, const Operation& op, const AxisVector& axes,
                                    const InputSet& set, const Prepared& prepared, int round);

class MeasureSession {
 public:
  ~MeasureSession();
  // `subjects[i]` may be null: it takes no part. At least two `sets`, or Check can only poison.
  static absl::StatusOr<std::unique_ptr<MeasureSession>> Open(Bench& bench, const Operation& op,
                                                              const AxisVector& axes,
                                                              std::vector<InputSetPtr> sets,
                                                              std::vector<PreparedPtr> subjects,
                                                              double epoch_us);

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
  absl::StatusOr<double> TimeEpoch(const Subject& subject, int launches, size_t first);
  absl::Status Calibrate(Subject& subject);

  Bench& bench_;
  const Operation& op_;
  std::vector<InputSetPtr> sets_;
  std::vector<Subject> subjects_;
  std::vector<BufferSet> buffers_;
  std::unique_ptr<Arena> workspace_;
  double epoch_us_ = 0;
  bool cold_ = false;
  Event start_, stop_;
  std::mt19937_64 random_{std::random_device{}()};
};

}  // namespace kvr
