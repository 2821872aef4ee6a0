// SPDX-License-Identifier: Apache-2.0
//
// What the worker does with kernels it does not trust: verify one, time several
// (tuner/worker/measure.h). Both launch through registry/prepared.h, as a serving process does.
//
// Verifying: fresh inputs, outputs and workspace poisoned, fences around every buffer; afterwards
// the fences must stand, the inputs must be what they were, and the outputs must meet the op's
// reference. An approximate variant's must meet its own; how far they are from the op's is its
// quality.
//
// Threading: one thread. Errors of the device while kernels run come back as an Outcome's finding,
// RUNTIME_ERROR; errors of the job itself (memory, inputs) as a status.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "core/device.h"
#include "core/op.h"
#include "registry/prepared.h"
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

// One round; `round` chooses the poison. `own`: of an approximate variant.
absl::StatusOr<Outcome> VerifyRound(Bench& bench, const Operation& op, const AxisVector& axes,
                                    const InputSet& set, const Prepared& prepared, int round,
                                    const OwnReference& own = nullptr);

}  // namespace kvr
