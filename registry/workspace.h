// SPDX-License-Identifier: Apache-2.0
//
// Scratch memory of launches: per stream one buffer for eager launches, and one for each pool of
// captures on it (CaptureOptions::pool). Sized at load and at publish, never in a launch.
//
// Graphs captured on one stream into one pool share that buffer, so they must replay one after
// another, as a serving engine's do; graphs that replay concurrently are captured into different
// pools, or with a workspace of the caller's.
//
// Ownership: a buffer lives as long as somebody holds it (a table of streams, a graph that was
// captured with it) and until the pool is asked for what is idle. Capacities are powers of two, so
// outgrown buffers that are still held never exceed the live one.
//
// Threading: Streams is immutable, read by launches; WorkspacePool belongs to whoever holds the
// dispatcher's mutex.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "core/device.h"

namespace kvr {

struct Workspace {
  void* data = nullptr;
  int64_t bytes = 0;
};

// Device memory, freed with this object: waits for work in flight (Device::Free).
class Buffer {
 public:
  static absl::StatusOr<std::shared_ptr<const Buffer>> Allocate(Device& device, int64_t bytes);
  ~Buffer() { device_.Free(workspace_.data); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  const Workspace& workspace() const { return workspace_; }

 private:
  Buffer(Device& device, Workspace workspace) : device_(device), workspace_(workspace) {}
  Device& device_;
  const Workspace workspace_;
};
using BufferPtr = std::shared_ptr<const Buffer>;

struct StreamWorkspaces {
  Workspace eager;  // of `eager_buffer`: what a launch reads
  BufferPtr eager_buffer;
  absl::InlinedVector<std::pair<std::string, BufferPtr>, 1> captured;  // by pool

  const BufferPtr* Captured(std::string_view pool) const;  // null: not prepared
};

using Streams = absl::flat_hash_map<void*, StreamWorkspaces>;

class WorkspacePool {
 public:
  explicit WorkspacePool(Device& device);

  // Buffers of at least `bytes` for every known stream and, if given, for `add` and captures on it
  // into `pool`. On failure nothing has changed. Returns the new table.
  absl::StatusOr<std::shared_ptr<const Streams>> Grow(int64_t bytes, const Stream* add,
                                                      std::string_view pool = {});
  // Outgrown buffers that nobody holds any more, to be dropped where waiting does no harm.
  std::vector<BufferPtr> TakeIdle();
  // The bytes every buffer has.
  int64_t capacity() const { return capacity_; }

 private:
  Device& device_;
  std::shared_ptr<const Streams> streams_;
  std::vector<BufferPtr> owned_;
  int64_t capacity_ = 0;
};

}  // namespace kvr
