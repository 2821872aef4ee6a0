// SPDX-License-Identifier: Apache-2.0
//
// A clone of a graph, edited node by node and applied to executables as a whole. Unlike an
// executable's nodes, the clone's can be given other cluster dimensions.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

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

// Clones `graph`, which may be recording. The clone shares the graph's user objects; those in
// `objects` it gives up. `slots`: those of `graph` that may be set.
absl::StatusOr<std::unique_ptr<GraphCopy>> CopyGraph(
    const Driver& driver, Context context, const SlotKernels& kernels, GraphHandle graph,
    const std::unordered_map<GraphNode, Slot>& slots, const std::vector<UserObject>& objects);

}  // namespace kvr::cuda
