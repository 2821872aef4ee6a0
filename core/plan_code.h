// SPDX-License-Identifier: Apache-2.0
//
// A PlanProgram for one config on one device, lowered for the launch path: tunables, device and the
// op's constant axes are folded in, an expression that occurs several times is evaluated once, and
// what remains is one short run of instructions over registers. It makes the plan that
// PlanProgram::Evaluate makes, or says that there is none and leaves the reason to Evaluate.
//
//   const PlanCode code(variant.plan, op, tunable_values, device);
//   if (code.Run(axes, &plan) != PlanCode::Outcome::kPlanned) ... // Evaluate says why
//
// Threading: immutable. Run allocates nothing and takes no lock.
// Ownership: `program` outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "absl/types/span.h"
#include "core/op.h"
#include "core/plan.h"

namespace kvr {

class PlanCode {
 public:
  enum class Outcome : uint8_t {
    kPlanned,
    kDoesNotFit,  // a constraint or a launch limit is not met: Evaluate gives kFailedPrecondition
    kFailed,      // Evaluate says what happened; it may even give a plan, where the program is so
                  // large that it was not lowered
  };

  PlanCode(const PlanProgram& program, const OpSpec& op, absl::Span<const int64_t> tunable_values,
           const DeviceInfo& device);

  // `axes`: the op's constant axes have their values. Every field of `plan` that a launch reads is
  // written, so it may be uninitialised.
  Outcome Run(const AxisVector& axes, LaunchPlan* plan) const;

  size_t size() const { return code_.size(); }  // instructions

 private:
  enum class Op : uint8_t;
  // Registers are numbered: the op's axes, the plan function's values, the constants, then results.
  struct Instruction {
    Op op;
    uint8_t field;  // what a store writes: a position in KernelLaunch, in units of 4 bytes
    uint16_t to, a, b;
  };
  class Lowering;
  static constexpr size_t kMaxRegisters = 512;

  std::vector<Instruction> code_;
  std::vector<int64_t> constants_;
  std::vector<KernelLaunch> kernels_;  // by KernelSpec: what is the same at all axes
  const PlanProgram* program_;
  std::vector<int64_t> tunable_values_;  // for the plan function
  const DeviceInfo* device_;
};

// Room for a plan that Run fills: a LaunchPlan's own initialisation would cost more than the run.
class PlanScratch {
 public:
  LaunchPlan* get() { return std::launder(reinterpret_cast<LaunchPlan*>(bytes_)); }

 private:
  alignas(LaunchPlan) std::byte bytes_[sizeof(LaunchPlan)];
};

}  // namespace kvr
