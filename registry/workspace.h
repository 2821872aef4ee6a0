// SPDX-License-Identifier: Apache-2.0
//
// Scratch memory of launches: per stream one buffer for eager launches and one for captured ones.
// Sized at load and at publish, never in a launch.
//
// Graphs captured on one stream share that stream's capture buffer, so they must replay one after
// another, as a serving engine's do; graphs that replay concurrently are captured on different
// streams, or with a workspace of the caller's.
//
// Ownership: buffers live until the pool dies: work in flight and captured graphs hold their
// addresses. Capacities are powers of two, so outgrown buffers never exceed the live one.
//
// Threading: Streams is immutable, read by launches; WorkspacePool belongs to whoever holds the
// dispatcher's mutex.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "core/device.h"

namespace kvr {

struct Workspace {
  void* data = nullptr;
  int64_t bytes = 0;
};

struct StreamWorkspaces {
  Workspace eager, captured;
};

using Streams = absl::flat_hash_map<void*, StreamWorkspaces>;

class WorkspacePool {
 public:
  explicit WorkspacePool(Device& device);
  ~WorkspacePool();
  WorkspacePool(const WorkspacePool&) = delete;
  WorkspacePool& operator=(const WorkspacePool&) = delete;

  // Buffers of at least `bytes` for every known stream and, if given, for `add`. On failure nothing
  // has changed. Returns the new table.
  absl::StatusOr<std::shared_ptr<const Streams>> Grow(int64_t bytes, const Stream* add);
  // The bytes every stream has.
  int64_t capacity() const { return capacity_; }
  int64_t allocated_bytes() const { return allocated_bytes_; }

 private:
  Device& device_;
  std::shared_ptr<const Streams> streams_;
  std::vector<void*> owned_;
  int64_t capacity_ = 0, allocated_bytes_ = 0;
};

}  // namespace kvr
