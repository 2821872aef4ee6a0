// SPDX-License-Identifier: Apache-2.0
//
// A clone of a graph, edited node by node and applied to executables as a whole. Unlike an
// executable's nodes, the clone's can be given other cluster dimensions.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/graph.h"
#include "devices/cuda/driver.h"
#include "devices/cuda/slot_kernels.h"
#include "devices/cuda/slots.h"

namespace kvr::cuda {

// kFailedPrecondition: `work` is a kernel whose attributes are not the slot's.
absl::Status CheckAttributes(std::string_view call, const NodeWork& work, const Slot& slot);

// kInvalidArgument: `call` was given a node that is no slot.
absl::Status NoSlot(std::string_view call);

// Clones `graph`, which `capture` records.
//
// A clone shares its graph's user objects, and an executable that is updated gives its own up for
// those of the graph that it is updated from. So the clone gives ours up at once, lest it keep them
// alive, and has them again while it updates.
absl::StatusOr<std::unique_ptr<GraphCopy>> CopyGraph(const Driver& driver, Context context,
                                                     const SlotKernels& kernels,
                                                     std::shared_ptr<const Slots> slots,
                                                     uint64_t capture, GraphHandle graph);

}  // namespace kvr::cuda
