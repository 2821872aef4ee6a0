// SPDX-License-Identifier: Apache-2.0
//
// Which configs are worth compiling and running, from descriptions alone: the plan at the given
// axes on a device (a real one or a profile), and after the compile the binary's registers and
// shared memory. Whatever is left out keeps its reason.
//
// Threading: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/binary.h"
#include "core/device_info.h"
#include "core/occupancy.h"
#include "core/op.h"
#include "core/plan.h"
#include "tuner/space.h"

namespace kvr {

struct Pruned {
  Candidate candidate;
  std::string reason;
  bool fault = false;  // of the variant, which no other shape or device would mend
};

// Does this failure of CheckPlan or CheckResources say that the config does not fit: a constraint,
// a limit, a plan function's KVR_FAILED_PRECONDITION? Any other is the variant's own fault: a
// division by zero, an overflow, code that is missing or fails.
inline bool IsMisfit(const absl::Status& status) { return absl::IsFailedPrecondition(status); }

// "what; fix": one line for a report.
std::string Reason(const absl::Status& status);
// Equal for reasons that differ in their numbers alone, as those of one fault's configs do.
std::string ReasonKind(std::string_view reason);

// Loads the variant's compiled code, where it has any. Never fails as a misfit.
absl::Status LoadCode(const Variant& variant);

// Evaluates the plan at `axes` and holds it against the device's limits. Fails with the constraint,
// expression or limit that is not met, or with the fault of the variant's code.
absl::Status CheckPlan(const Variant& variant, const Config& config, const AxisVector& axes,
                       const DeviceInfo& device, LaunchPlan* plan);

// The same once the binary is known: shared memory static and dynamic, registers, launch bounds,
// and that at least one block of every kernel fits a multiprocessor.
absl::Status CheckResources(const Variant& variant, const LaunchPlan& plan, const Binary& binary,
                            const DeviceInfo& device);

struct Feasible {
  std::vector<Candidate> candidates;
  std::vector<LaunchPlan> plans;  // of candidates, by position
  std::vector<Pruned> pruned;
};

// Prunes what cannot run at `axes`, and what would repeat another's work: a config that differs
// from an earlier one of its variant in launch-scope tunables only and gives the same plan here.
// What a launch function makes of its tunables no plan shows: none of its configs repeats another.
Feasible PruneStatically(absl::Span<const Candidate> candidates, const AxisVector& axes,
                         const DeviceInfo& device);

// Do two plans launch the same kernels in the same way on the same workspace and views?
bool SamePlan(const LaunchPlan& a, const LaunchPlan& b);

}  // namespace kvr
