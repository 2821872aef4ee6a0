// SPDX-License-Identifier: Apache-2.0
#include "registry/launch_work.h"

#include <string_view>

#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

constexpr LaunchAttributes kPlain{};

std::string_view AttributesName(const LaunchAttributes& attributes) {
  if (attributes.cooperative) {
    return attributes.programmatic ? "a cooperative, programmatic launch" : "a cooperative launch";
  }
  return attributes.programmatic ? "a programmatic launch" : "a plain launch";
}

absl::Status OtherKind(std::string_view what) {
  return Error(absl::StatusCode::kFailedPrecondition, what,
               "capture the graph again: a node keeps its kind of launch");
}

}  // namespace

void LaunchWork::Outline(const Prepared& prepared, const PlanView& plan) {
  count_ = 0;
  if (plan.kernels.empty()) return;
  const PlanProgram& program = prepared.variant().plan;
  for (size_t i = 0; i < program.regions.size(); ++i) {
    if (!program.regions[i].zeroed || plan.region_bytes[i] == 0) continue;
    NodeWork& clear = items_[count_++];
    clear = {};
    clear.kind = NodeWork::Kind::kClear;
    clear.data = regions_[i];
    clear.bytes = plan.region_bytes[i];
  }
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const KernelLaunch& launch = plan.kernels[i];
    NodeWork& kernel = items_[count_++];
    kernel = {};
    kernel.kind = NodeWork::Kind::kKernel;
    kernel.function = prepared.function(launch.kernel);
    kernel.launch = &launch;
    kernel.attributes = program.kernels[launch.kernel].attributes;
    kernel.params = params_[i].data();
  }
}

absl::Status LaunchWork::Set(const Prepared& prepared, const PlanView& plan,
                             absl::Span<const TensorView> tensors, void* memory) {
  prepared.Regions(plan, memory, regions_.data());
  if (!plan.kernels.empty()) {
    KVR_RETURN_IF_ERROR(prepared.EncodeTensorMaps(plan, tensors, maps_.data()));
  }
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    prepared.Params(plan, static_cast<int>(i), tensors, regions_.data(), maps_.data(),
                    params_[i].data());
  }
  Outline(prepared, plan);
  return absl::OkStatus();
}

Dim3 ClusterOf(const NodeWork& work) {
  return work.kind == NodeWork::Kind::kKernel ? work.launch->cluster : Dim3{};
}

absl::StatusOr<SlotWork> AssignSlots(absl::Span<const Slot> slots, absl::Span<const NodeWork> items,
                                     int spare) {
  SlotWork assigned(slots.size(), -1);
  size_t slot = 0, item = 0;
  // A run of plain ones up to the next with attributes, which must meet its like; then on.
  for (;;) {
    size_t slots_end = slot, items_end = item;
    while (slots_end < slots.size() && slots[slots_end].attributes == kPlain) ++slots_end;
    while (items_end < items.size() && items[items_end].attributes == kPlain) ++items_end;
    const bool last_slots = slots_end == slots.size(), last_items = items_end == items.size();
    if (last_slots && !last_items) {
      return OtherKind(StrCat("it needs ", AttributesName(items[items_end].attributes),
                              " where none was captured"));
    }
    if (last_items && !last_slots) {
      return OtherKind(
          StrCat("it lacks ", AttributesName(slots[slots_end].attributes), " that was captured"));
    }
    if (!last_slots && slots[slots_end].attributes != items[items_end].attributes) {
      return OtherKind(StrCat("it needs ", AttributesName(items[items_end].attributes), " where ",
                              AttributesName(slots[slots_end].attributes), " was captured"));
    }
    const size_t room = slots_end - slot, wanted = items_end - item;
    if (wanted > room) {
      const std::string what =
          StrCat("it launches and clears ", wanted, " times where ", room,
                 room == 1 ? " node was" : " nodes were", " captured for that");
      return Error(
          absl::StatusCode::kFailedPrecondition, what,
          last_slots
              ? StrCat("capture with spare_nodes = ", static_cast<size_t>(spare) + wanted - room)
              : std::string("capture the graph again: spare nodes come after a launch, "
                            "not before its programmatic or cooperative kernel"));
    }
    // Before a kernel with attributes, what does nothing comes first: its overlap is with work.
    const size_t first = last_slots ? slot : slots_end - wanted;
    for (size_t i = 0; i < wanted; ++i) assigned[first + i] = static_cast<int>(item + i);
    if (last_slots) return assigned;
    assigned[slots_end] = static_cast<int>(items_end);
    slot = slots_end + 1;
    item = items_end + 1;
  }
}

}  // namespace kvr
