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
  int64_t r[kMaxRegisters];
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
  std::memcpy(r + used, constants_.data(), constants_.size() * sizeof(int64_t));

  plan->kernel_count = 0;
  plan->workspace_bytes = 0;
  KernelLaunch* launch = nullptr;
  TensorMapLaunch* map = nullptr;
  bool empty = false;  // an extent of the grid is 0
  const Instruction* const begin = code_.data();
  for (const Instruction* at = begin;; ++at) {
    const int64_t a = r[at->a];
    switch (at->op) {
#define KVR_UNARY(op)                                                       \
  case Op::op:                                                              \
    if (!Expr::Unary(Expr::Op::op, a, &r[at->to])) return Outcome::kFailed; \
    break
#define KVR_BINARY(op)                                                                 \
  case Op::op:                                                                         \
    if (!Expr::Binary(Expr::Op::op, a, r[at->b], &r[at->to])) return Outcome::kFailed; \
    break
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
#undef KVR_UNARY
#undef KVR_BINARY
      case Op::kShift:  // of a negative number: the floor, since C++20
        r[at->to] = a >> at->field;
        break;
      case Op::kCeilShift:
        r[at->to] = (a >> at->field) + ((a & ((int64_t{1} << at->field) - 1)) != 0);
        break;
      case Op::kMask:
        r[at->to] = a & ((int64_t{1} << at->field) - 1);
        break;
      case Op::kMove:
        r[at->to] = a;
        break;
      case Op::kJump:
        at = begin + at->to - 1;
        break;
      case Op::kJumpIfZero:
        if (a == 0) at = begin + at->to - 1;
        break;
      case Op::kRequire:
        if (a == 0) return Outcome::kDoesNotFit;
        break;
      case Op::kInRange:
        if (a < r[at->b] || a > r[at->to]) return Outcome::kDoesNotFit;
        break;
      case Op::kExtent: {
        if (a < r[at->b] || a > r[at->to]) return Outcome::kDoesNotFit;
        const auto extent = static_cast<uint32_t>(a);
        std::memcpy(reinterpret_cast<std::byte*>(launch) + at->field * 4, &extent, sizeof extent);
        empty |= extent == 0;
        break;
      }
      case Op::kJumpIfEmpty:
        if (empty) at = begin + at->to - 1;
        break;
      case Op::kStoreI32:
        if (a != static_cast<int32_t>(a)) return Outcome::kDoesNotFit;
        [[fallthrough]];
      case Op::kStore:
        std::memcpy(reinterpret_cast<std::byte*>(launch) + at->field * 4, &a, sizeof a);
        break;
      case Op::kRegion:
        if (!PlaceRegion(at->field, a, r[at->b], plan)) return Outcome::kDoesNotFit;
        break;
      case Op::kKernel:
        launch = &plan->kernels[plan->kernel_count];
        empty = false;
        std::memcpy(static_cast<void*>(launch), &kernels_[at->field],
                    offsetof(KernelLaunch, values));
        break;
      case Op::kKernelDone:
        ++plan->kernel_count;
        break;
      case Op::kMaps:
        if (plan->kernel_count == 0) at = begin + at->to - 1;
        break;
      case Op::kMap: {
        const TensorMapSpec& spec = program_->tensor_maps[at->field];
        map = &plan->tensor_maps[at->field];
        map->dtype = spec.dtype;
        map->rank = static_cast<int>(spec.box.size());
        map->swizzle = spec.swizzle;
        break;
      }
      case Op::kMapShape:
        map->shape[at->field] = a;
        break;
      case Op::kMapBox:
        map->box[at->field] = a;
        break;
      case Op::kMapDone:
        if (!CheckTensorMap(*map).ok()) return Outcome::kDoesNotFit;
        break;
      case Op::kFinish:
        if (plan->kernel_count == 0 && at->to > 0) {
          plan->workspace_bytes = 0;
          for (size_t i = 0; i < at->to; ++i) plan->region_offset[i] = plan->region_bytes[i] = 0;
        }
        return Outcome::kPlanned;
      case Op::kUnfit:
        return Outcome::kDoesNotFit;
      case Op::kFail:
        return Outcome::kFailed;
      default:
        __builtin_unreachable();
    }
  }
}

}  // namespace kvr
