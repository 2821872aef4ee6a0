// SPDX-License-Identifier: Apache-2.0
//
// The run. Every launch passes here.
#include "core/plan_code.h"

#include <cstddef>
#include <cstring>

#include "core/plan_code_internal.h"
#include "core/tensor_map.h"

namespace kvr {

PlanCode::Outcome PlanCode::Run(const AxisVector& axes, LaunchPlan* plan) const {
  int64_t r[kMaxRegisters + 8];  // constants are copied by eights
  std::memcpy(r, axes.data(), sizeof axes);
  size_t used = kMaxAxes;
  if (program_->function != nullptr) {
    const size_t count = program_->function_values.size();
    const absl::Status status =
        program_->function->Values({axes.data(), static_cast<size_t>(program_->axis_count)},
                                   tunable_values_, *device_, {r + used, count});
    if (!status.ok()) return Outcome::kFailed;
    used += count;
  }
  for (size_t i = 0; i < constants_.size(); i += 8) {
    std::memcpy(r + used + i, constants_.data() + i, 8 * sizeof(int64_t));
  }

  plan->kernel_count = 0;
  plan->workspace_bytes = 0;
  KernelLaunch* launch = nullptr;
  TensorMapLaunch* map = nullptr;
  bool empty = false;  // an extent of the grid is 0
  const Instruction* const begin = code_.data();
  const Instruction* at = begin;
  int64_t a = 0;
  // A jump of its own behind every instruction, where a loop around a switch has one for all: a
  // plan of 22 expressions takes 49 ns instead of 75.
#define KVR_LABEL(name) &&name,
  static const void* const kLabels[] = {KVR_PLAN_OPS(KVR_LABEL)};
#undef KVR_LABEL
#define KVR_GO                                  \
  do {                                          \
    a = r[at->a];                               \
    goto* kLabels[static_cast<size_t>(at->op)]; \
  } while (false)
#define KVR_NEXT \
  do {           \
    ++at;        \
    KVR_GO;      \
  } while (false)
#define KVR_JUMP         \
  do {                   \
    at = begin + at->to; \
    KVR_GO;              \
  } while (false)
#define KVR_UNARY(name)                                                     \
  name:                                                                     \
  if (!Expr::Unary(Expr::Op::name, a, &r[at->to])) return Outcome::kFailed; \
  KVR_NEXT
#define KVR_BINARY(name)                                                               \
  name:                                                                                \
  if (!Expr::Binary(Expr::Op::name, a, r[at->b], &r[at->to])) return Outcome::kFailed; \
  KVR_NEXT

  KVR_GO;
  KVR_UNARY(kNegate);
  KVR_UNARY(kNot);
  KVR_UNARY(kPow2Ceil);
  KVR_BINARY(kAdd);
  KVR_BINARY(kSubtract);
  KVR_BINARY(kMultiply);
  KVR_BINARY(kCeilDiv);
  KVR_BINARY(kFloorDiv);
  KVR_BINARY(kMod);
  KVR_BINARY(kMin);
  KVR_BINARY(kMax);
  KVR_BINARY(kEqual);
  KVR_BINARY(kNotEqual);
  KVR_BINARY(kLess);
  KVR_BINARY(kLessEqual);
  KVR_BINARY(kGreater);
  KVR_BINARY(kGreaterEqual);
  KVR_BINARY(kAnd);
  KVR_BINARY(kOr);
kShift:  // of a negative number: the floor, since C++20
  r[at->to] = a >> at->field;
  KVR_NEXT;
kCeilShift:
  r[at->to] = (a >> at->field) + ((a & ((int64_t{1} << at->field) - 1)) != 0);
  KVR_NEXT;
kMask:
  r[at->to] = a & ((int64_t{1} << at->field) - 1);
  KVR_NEXT;
kMove:
  r[at->to] = a;
  KVR_NEXT;
kJump:
  KVR_JUMP;
kJumpIfZero:
  if (a == 0) KVR_JUMP;
  KVR_NEXT;
kRequire:
  if (a == 0) return Outcome::kDoesNotFit;
  KVR_NEXT;
kInRange:
  if (a < r[at->b] || a > r[at->to]) return Outcome::kDoesNotFit;
  KVR_NEXT;
kRegion:
  if (!PlaceRegion(at->field, a, r[at->b], plan)) return Outcome::kDoesNotFit;
  KVR_NEXT;
kKernel:
  launch = &plan->kernels[plan->kernel_count];
  empty = false;
  std::memcpy(static_cast<void*>(launch), &kernels_[at->field], offsetof(KernelLaunch, values));
  KVR_NEXT;
kExtent : {
  if (a < r[at->b] || a > r[at->to]) return Outcome::kDoesNotFit;
  const auto extent = static_cast<uint32_t>(a);
  std::memcpy(reinterpret_cast<std::byte*>(launch) + at->field * 4, &extent, sizeof extent);
  empty |= extent == 0;
  KVR_NEXT;
}
kJumpIfEmpty:
  if (empty) KVR_JUMP;
  KVR_NEXT;
kStoreI32:
  if (a != static_cast<int32_t>(a)) return Outcome::kDoesNotFit;
kStore:
  std::memcpy(reinterpret_cast<std::byte*>(launch) + at->field * 4, &a, sizeof a);
  KVR_NEXT;
kKernelDone:
  ++plan->kernel_count;
  KVR_NEXT;
kMaps:
  if (plan->kernel_count == 0) KVR_JUMP;
  KVR_NEXT;
kMap : {
  const TensorMapSpec& spec = program_->tensor_maps[at->field];
  map = &plan->tensor_maps[at->field];
  map->dtype = spec.dtype;
  map->rank = static_cast<int>(spec.box.size());
  map->swizzle = spec.swizzle;
  KVR_NEXT;
}
kMapShape:
  map->shape[at->field] = a;
  KVR_NEXT;
kMapBox:
  map->box[at->field] = a;
  KVR_NEXT;
kMapDone:
  if (!CheckTensorMap(*map).ok()) return Outcome::kDoesNotFit;
  KVR_NEXT;
kFinish:
  if (plan->kernel_count == 0 && at->to > 0) {
    plan->workspace_bytes = 0;
    for (size_t i = 0; i < at->to; ++i) plan->region_offset[i] = plan->region_bytes[i] = 0;
  }
  return Outcome::kPlanned;
kUnfit:
  return Outcome::kDoesNotFit;
kFail:
  return Outcome::kFailed;
#undef KVR_GO
#undef KVR_NEXT
#undef KVR_JUMP
#undef KVR_UNARY
#undef KVR_BINARY
}

}  // namespace kvr
