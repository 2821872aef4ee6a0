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

// to = a op b, checked: a fault ends the run with kFailed. As in Expr.
#define KVR_PLAN_ARITHMETIC(X)                                                                 \
  X(kNegate)                                                                                   \
  X(kNot)                                                                                      \
  X(kPow2Ceil)                                                                                 \
  X(kAdd) X(kSubtract) X(kMultiply) X(kCeilDiv) X(kFloorDiv) X(kMod) X(kMin) X(kMax) X(kEqual) \
      X(kNotEqual) X(kLess) X(kLessEqual) X(kGreater) X(kGreaterEqual) X(kAnd) X(kOr)

// kShift, kCeilShift, kMask   to = floor(a / 2^field), ceil(a / 2^field), a mod 2^field
// kMove                       to = a
// kJump, kJumpIfZero          `to`: the instruction to go on with (if a == 0)
// kRequire                    a != 0, or the plan does not fit
// kInRange                    constants b <= a <= to, or the plan does not fit
// kRegion                     region `field` has a elements of b bytes
// kKernel                     what follows is about kernel `field`; its constant part is copied
// kExtent                     kInRange, and a is stored as the 32 bits at `field`
// kJumpIfEmpty                an extent stored for this kernel is 0: goes on at `to`
// kStoreI32, kStore           a is stored as the 64 bits at `field`; the first: it must fit 32
// kKernelDone                 it is launched
// kMaps                       no kernel is launched: goes on at `to`
// kMap                        tensor map `field`; its constant part is written
// kMapShape, kMapBox          a is its extent `field`
// kMapDone                    within the limits of tensor maps, or the plan does not fit
// kFinish                     `to`: the number of regions, forgotten where kernels were left out
//                             and none remains
// kUnfit, kFail               the plan does not fit; kFailed
#define KVR_PLAN_OPS(X)                                                                     \
  KVR_PLAN_ARITHMETIC(X)                                                                    \
  X(kShift)                                                                                 \
  X(kCeilShift)                                                                             \
  X(kMask)                                                                                  \
  X(kMove) X(kJump) X(kJumpIfZero) X(kRequire) X(kInRange) X(kRegion) X(kKernel) X(kExtent) \
      X(kJumpIfEmpty) X(kStoreI32) X(kStore) X(kKernelDone) X(kMaps) X(kMap) X(kMapShape)   \
          X(kMapBox) X(kMapDone) X(kFinish) X(kUnfit) X(kFail)

enum class PlanCode::Op : uint8_t {
#define KVR_ENUMERATOR(name) name,
  KVR_PLAN_OPS(KVR_ENUMERATOR)
#undef KVR_ENUMERATOR
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
