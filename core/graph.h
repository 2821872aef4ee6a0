// SPDX-License-Identifier: Apache-2.0
//
// Graphs: what streams record and launch again and again, seen while it is recorded, and changed
// afterwards without recording it anew.
//
// A launch that KVR may later replace is recorded as *slots*: nodes that each do one piece of
// NodeWork and can be given another piece. How a device makes a slot that clears memory, or does
// nothing, is its own business (cuda: small kernels, since a node never changes its kind).
//
//   KVR_ASSIGN_OR_RETURN(auto recording, device.RecordingOf(stream));   // the stream captures
//   KVR_RETURN_IF_ERROR(recording->Retain(modules));
//   KVR_ASSIGN_OR_RETURN(Node node, recording->Add(work, stream));
//   KVR_ASSIGN_OR_RETURN(auto copy, recording->Copy());                 // the last call
//   ... the application ends the capture and makes an executable `exec` of the graph ...
//   KVR_RETURN_IF_ERROR(device.SetNode(exec, node, other));   // where the graph was kept, or
//   KVR_RETURN_IF_ERROR(copy->Set(node, other));              // where it was destroyed
//   KVR_RETURN_IF_ERROR(copy->Update(exec));
//
// Threading: a Recording belongs to the thread that uses its streams; edits of an executable are
// externally synchronised with its launches. A replay in flight finishes with what it had.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/plan.h"

namespace kvr {

struct Stream {
  void* handle = nullptr;  // cuda: CUstream; null is the default stream
};
struct Function {
  void* handle = nullptr;  // valid while its Module lives
};
struct Node {
  void* handle = nullptr;  // cuda: CUgraphNode of the graph that was recorded
};
struct GraphExec {
  void* handle = nullptr;  // cuda: CUgraphExec; elsewhere Graph::exec()
};

// What other threads may do while a stream captures; as CUstreamCaptureMode.
enum class CaptureMode : uint8_t { kGlobal, kThreadLocal, kRelaxed };

// What one slot does. Pointers are read before the call that takes it returns.
struct NodeWork {
  enum class Kind : uint8_t { kNothing, kClear, kKernel };
  Kind kind = Kind::kNothing;

  Function function;  // kKernel: as Device::Launch takes them
  const KernelLaunch* launch = nullptr;
  LaunchAttributes attributes;
  void* const* params = nullptr;

  void* data = nullptr;  // kClear: `bytes` of zeros, aligned to kWorkspaceAlign
  int64_t bytes = 0;
};

// A copy of a graph, to edit and to bring executables of that graph to what it holds; outlived by
// its device. An executable that a copy gave other cluster dimensions is edited by copies from then
// on: SetNode does not know of them.
class GraphCopy {
 public:
  virtual ~GraphCopy() = default;
  // `node`: as Recording::Add gave it. kFailedPrecondition: other attributes than the node's. After
  // any other error, set the slot again before the next Update.
  virtual absl::Status Set(Node node, const NodeWork& work) = 0;
  // All slots at once. kFailedPrecondition: the executable has other nodes than this copy (some
  // were captured after it was made), or an edge that cannot serve. It then keeps what it had.
  virtual absl::Status Update(GraphExec exec) = 0;
};

// The graph that a stream is recording. Valid until the capture ends.
class Recording {
 public:
  virtual ~Recording() = default;
  // Of this capture, unlike any other's in the process; the same on every stream that has joined.
  virtual uint64_t id() const = 0;
  // Enqueues `work` on `stream`, which belongs to this capture, as one node. `work.attributes` stay
  // the node's for good, whatever the kind of work: a spare slot is recorded with those of the
  // kernels that may come. Work that is no kernel fits every node.
  virtual absl::StatusOr<Node> Add(const NodeWork& work, Stream stream) = 0;
  // What is recorded so far. The copy does not keep alive what this object has retained.
  virtual absl::StatusOr<std::unique_ptr<GraphCopy>> Copy() = 0;
  // Keeps `object` until the graph and every executable made of it are gone. It is dropped by a
  // later Device::Collect, never on a thread of the driver.
  virtual absl::Status Retain(std::shared_ptr<const void> object) = 0;
};

// An executable graph made by Device::EndCapture or Device::Capture. Pointers and scalars are those
// of the recording.
// Threading: belongs to one thread, and to one stream at a time. Ownership: it must outlive its
// launches (synchronize before it is destroyed), and be outlived by the modules, launch functions
// and memory that it uses and by its device.
class Graph {
 public:
  virtual ~Graph() = default;
  // In stream order, asynchronous; not while the stream captures.
  virtual absl::Status Launch(Stream stream) = 0;
  virtual GraphExec exec() const = 0;
};

}  // namespace kvr
