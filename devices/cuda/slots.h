// SPDX-License-Identifier: Apache-2.0
//
// What is known of the slots that were recorded, while their graph or an executable of it lives:
// the driver does not tell what a node was launched with.
//
// Threading: all functions from any thread; none calls the driver under its lock.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/plan.h"
#include "devices/cuda/abi.h"
#include "devices/cuda/retained.h"

namespace kvr::cuda {

// What stays a node's when it is given other work.
struct Slot {
  LaunchAttributes attributes;
  Dim3 cluster;
};

class Slots {
 public:
  // True if the capture was not known.
  bool Open(uint64_t capture);
  void Add(uint64_t capture, GraphNode node, const Slot& slot);
  void AddObject(uint64_t capture, RetainedObject object);
  // Of nodes whose graph is gone the driver uses the handles again, for later graphs: the latest
  // node counts.
  bool Find(GraphNode node, Slot* slot) const;
  std::unordered_map<GraphNode, Slot> OfCapture(uint64_t capture) const;
  // What its graph and executables keep alive for us; empty once it is forgotten.
  std::vector<RetainedObject> ObjectsOf(uint64_t capture) const;
  // The graph of this capture, and all made of it, are gone.
  void Forget(uint64_t capture);

 private:
  struct Capture {
    std::vector<GraphNode> nodes;
    std::vector<RetainedObject> objects;
  };
  struct Owned {
    uint64_t capture;
    Slot slot;
  };
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, Capture> captures_;
  std::unordered_map<GraphNode, Owned> slots_;
};

}  // namespace kvr::cuda
