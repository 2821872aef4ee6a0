// SPDX-License-Identifier: Apache-2.0
#include "registry/workspace.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/plan.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

// CU_STREAM_PER_THREAD: one handle, a stream per thread, so no buffer can belong to it.
void* const kCudaPerThreadStream = reinterpret_cast<void*>(2);

}  // namespace

WorkspacePool::WorkspacePool(Device& device)
    : device_(device), streams_(std::make_shared<const Streams>()) {}

WorkspacePool::~WorkspacePool() {
  for (void* memory : owned_) device_.Free(memory);
}

absl::StatusOr<std::shared_ptr<const Streams>> WorkspacePool::Grow(int64_t bytes,
                                                                   const Stream* add) {
  if (add != nullptr && device_.info().kind == "cuda" && add->handle == kCudaPerThreadStream) {
    return Error(absl::StatusCode::kInvalidArgument,
                 "the per-thread default stream is a different stream on every thread",
                 "launch on a stream of your own, or pass a workspace");
  }
  int64_t capacity = capacity_;
  if (bytes > capacity) {
    capacity = static_cast<int64_t>(
        std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(bytes, kWorkspaceAlign))));
  }
  auto next = std::make_shared<Streams>(*streams_);
  if (add != nullptr) next->try_emplace(add->handle);

  std::vector<void*> fresh;
  const auto allocate = [&](Workspace* workspace) -> absl::Status {
    if (workspace->bytes >= capacity) return absl::OkStatus();
    absl::StatusOr<void*> memory = device_.Allocate(capacity);
    if (!memory.ok()) {
      return WithContext(StrCat("workspace of ", capacity, " bytes"), memory.status());
    }
    fresh.push_back(*memory);
    *workspace = {*memory, capacity};
    return absl::OkStatus();
  };
  for (auto& [handle, workspaces] : *next) {
    absl::Status status = allocate(&workspaces.eager);
    if (status.ok()) status = allocate(&workspaces.captured);
    if (!status.ok()) {
      for (void* memory : fresh) device_.Free(memory);
      return status;
    }
  }
  capacity_ = capacity;
  allocated_bytes_ += capacity * static_cast<int64_t>(fresh.size());
  owned_.insert(owned_.end(), fresh.begin(), fresh.end());
  streams_ = std::move(next);
  return streams_;
}

}  // namespace kvr
