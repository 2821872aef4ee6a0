// SPDX-License-Identifier: Apache-2.0
//
// What one captured launch does, as work for the slots of its graph (core/graph.h): clears first,
// then kernels. And which slot gets what, when a later plan has other work than the recorded one.
//
//   LaunchWork work;
//   KVR_RETURN_IF_ERROR(work.Set(prepared, plan, tensors, memory));
//   KVR_ASSIGN_OR_RETURN(const SlotWork order, AssignSlots(slots, work.items(), 0));
//   for (size_t i = 0; i < slots.size(); ++i) set(nodes[i], work.At(order[i]));
//
// Threading: a LaunchWork belongs to one thread; AssignSlots is a pure function.
#pragma once

#include <array>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/graph.h"
#include "core/tensor.h"
#include "registry/prepared.h"

namespace kvr {

// As a node was recorded.
struct Slot {
  LaunchAttributes attributes;  // for good
  Dim3 cluster;
  bool operator==(const Slot&) const = default;
};

class LaunchWork {
 public:
  LaunchWork() = default;
  LaunchWork(const LaunchWork&) = delete;  // items point into it
  LaunchWork& operator=(const LaunchWork&) = delete;

  // The items' kinds, launches and attributes, without what they run on.
  void Outline(const Prepared& prepared, const PlanView& plan);
  // Of a plan with kernels, or of an empty one. `plan` and `tensors` stay where they are as long as
  // the items are used; `memory` has plan.workspace_bytes. Errors: a tensor map that the device
  // refuses.
  absl::Status Set(const Prepared& prepared, const PlanView& plan,
                   absl::Span<const TensorView> tensors, void* memory);
  absl::Span<const NodeWork> items() const { return {items_.data(), count_}; }
  // kNothing where `item` is negative.
  NodeWork At(int item) const { return item < 0 ? NodeWork{} : items_[static_cast<size_t>(item)]; }

 private:
  size_t count_ = 0;
  std::array<NodeWork, kMaxRegions + kMaxKernels> items_;
  std::array<void*, kMaxRegions> regions_{};
  std::array<TensorMap, kMaxTensorMaps> maps_;
  std::array<std::array<void*, kMaxArgs>, kMaxKernels> params_;
};

// Cluster dimensions of what `work` launches; one block where it launches nothing.
Dim3 ClusterOf(const NodeWork& work);

// By slot: the index of its work, or -1: nothing.
using SlotWork = absl::InlinedVector<int, kMaxRegions + kMaxKernels>;

// Work keeps its order, and goes to slots that were recorded with its attributes. Only a slot
// without any may do nothing: a programmatic one would let what follows begin before what came
// before it has ended. A plain one waits for all that is before it, so it does no harm between two
// others. kFailedPrecondition: no such assignment; the fix says what capture would have one.
// `spare`: how many of the slots were recorded as spare nodes.
absl::StatusOr<SlotWork> AssignSlots(absl::Span<const Slot> slots, absl::Span<const NodeWork> items,
                                     int spare);

}  // namespace kvr
