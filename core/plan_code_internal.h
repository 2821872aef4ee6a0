// SPDX-License-Identifier: Apache-2.0
//
// What the evaluator of plans (plan.cc) and their lowered form share, and the instructions that
// plan_lowering.cc writes and plan_code.cc runs.
#pragma once

#include <array>
#include <cstdint>

#include "core/expr_internal.h"
#include "core/plan_code.h"

namespace kvr {

// CUDA's limits of every architecture that KVR compiles for.
inline constexpr std::array<int64_t, 3> kGridLimit = {2147483647, 65535, 65535};
inline constexpr std::array<int64_t, 3> kBlockLimit = {1024, 1024, 64};

enum class PlanCode::Op : uint8_t {
  // to = a op b, checked: a fault ends the run with kFailed. Numbered as in Expr.
  kNegate = static_cast<uint8_t>(Expr::Op::kNegate),
  kNot = static_cast<uint8_t>(Expr::Op::kNot),
  kPow2Ceil = static_cast<uint8_t>(Expr::Op::kPow2Ceil),
  kAdd = static_cast<uint8_t>(Expr::Op::kAdd),
  kSubtract = static_cast<uint8_t>(Expr::Op::kSubtract),
  kMultiply = static_cast<uint8_t>(Expr::Op::kMultiply),
  kCeilDiv = static_cast<uint8_t>(Expr::Op::kCeilDiv),
  kFloorDiv = static_cast<uint8_t>(Expr::Op::kFloorDiv),
  kMod = static_cast<uint8_t>(Expr::Op::kMod),
  kMin = static_cast<uint8_t>(Expr::Op::kMin),
  kMax = static_cast<uint8_t>(Expr::Op::kMax),
  kEqual = static_cast<uint8_t>(Expr::Op::kEqual),
  kNotEqual = static_cast<uint8_t>(Expr::Op::kNotEqual),
  kLess = static_cast<uint8_t>(Expr::Op::kLess),
  kLessEqual = static_cast<uint8_t>(Expr::Op::kLessEqual),
  kGreater = static_cast<uint8_t>(Expr::Op::kGreater),
  kGreaterEqual = static_cast<uint8_t>(Expr::Op::kGreaterEqual),
  kAnd = static_cast<uint8_t>(Expr::Op::kAnd),
  kOr = static_cast<uint8_t>(Expr::Op::kOr),

  // Division by a power of two: `field` is its logarithm.
  kShift = 64,  // to = floor(a / 2^field)
  kCeilShift,
  kMask,  // to = a mod 2^field

  kMove,        // to = a
  kJump,        // `to`: the instruction to go on with
  kJumpIfZero,  // a == 0: `to` likewise

  kRequire,      // a != 0, or the plan does not fit
  kInRange,      // constants b <= a <= to, or the plan does not fit
  kRegion,       // region `field` has a elements of b bytes
  kExtent,       // kInRange, and a is stored as the 32 bits at `field` of the kernel
  kJumpIfEmpty,  // an extent stored for this kernel is 0: goes on at `to`
  kStoreI32,     // a is stored as the 64 bits at `field`; it must fit 32, or the plan does not fit
  kStore,        // ... without that
  kKernel,       // what follows is about kernel `field`; its constant part is copied
  kKernelDone,   // it is launched
  kMaps,         // no kernel is launched: goes on at `to`
  kMap,          // tensor map `field`; its constant part is written
  kMapShape,     // a is its extent `field`
  kMapBox,
  kMapDone,  // within the limits of tensor maps, or the plan does not fit

  kFinish,  // `to`: the number of regions, forgotten where kernels were left out and none remains
  kUnfit,   // the plan does not fit
  kFail,
};

// The i-th workspace region, after those before it. False: its bytes, or their sum, are no int64.
inline bool PlaceRegion(size_t i, int64_t elements, int64_t element_bytes, LaunchPlan* plan) {
  int64_t bytes = 0, end = 0;
  if (elements < 0 || __builtin_mul_overflow(elements, element_bytes, &bytes) ||
      __builtin_add_overflow(bytes, kWorkspaceAlign - 1, &end) ||
      __builtin_add_overflow(end & -kWorkspaceAlign, plan->workspace_bytes, &end)) {
    return false;
  }
  plan->region_offset[i] = plan->workspace_bytes;
  plan->region_bytes[i] = bytes;
  plan->workspace_bytes = end;
  return true;
}

}  // namespace kvr
