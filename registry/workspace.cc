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

absl::StatusOr<BufferPtr> Buffer::Allocate(Device& device, int64_t bytes) {
  absl::StatusOr<void*> memory = device.Allocate(bytes);
  if (!memory.ok()) return WithContext(StrCat("workspace of ", bytes, " bytes"), memory.status());
  return BufferPtr(new Buffer(device, {*memory, bytes}));
}

const BufferPtr* StreamWorkspaces::Captured(std::string_view pool) const {
  for (const auto& [name, buffer] : captured) {
    if (name == pool) return &buffer;
  }
  return nullptr;
}

WorkspacePool::WorkspacePool(Device& device)
    : device_(device), streams_(std::make_shared<const Streams>()) {}

absl::StatusOr<std::shared_ptr<const Streams>> WorkspacePool::Grow(int64_t bytes, const Stream* add,
                                                                   std::string_view pool) {
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
  if (add != nullptr) {
    StreamWorkspaces& added = (*next)[add->handle];
    if (added.Captured(pool) == nullptr) added.captured.emplace_back(std::string(pool), nullptr);
  }

  std::vector<BufferPtr> fresh;
  const auto grow = [&](BufferPtr* buffer) -> absl::Status {
    if (capacity == 0) return absl::OkStatus();
    if (*buffer != nullptr && (*buffer)->workspace().bytes >= capacity) return absl::OkStatus();
    KVR_ASSIGN_OR_RETURN(*buffer, Buffer::Allocate(device_, capacity));
    fresh.push_back(*buffer);
    return absl::OkStatus();
  };
  for (auto& [handle, workspaces] : *next) {
    KVR_RETURN_IF_ERROR(grow(&workspaces.eager_buffer));
    if (workspaces.eager_buffer != nullptr) {
      workspaces.eager = workspaces.eager_buffer->workspace();
    }
    for (auto& [name, buffer] : workspaces.captured) KVR_RETURN_IF_ERROR(grow(&buffer));
  }
  capacity_ = capacity;
  owned_.insert(owned_.end(), fresh.begin(), fresh.end());
  streams_ = std::move(next);
  return streams_;
}

std::vector<BufferPtr> WorkspacePool::TakeIdle() {
  // Only who holds a buffer can hand it on, and `streams_` holds those that launches may take.
  const auto idle = std::partition(owned_.begin(), owned_.end(),
                                   [](const BufferPtr& buffer) { return buffer.use_count() > 1; });
  std::vector<BufferPtr> taken(std::make_move_iterator(idle),
                               std::make_move_iterator(owned_.end()));
  owned_.erase(idle, owned_.end());
  return taken;
}

}  // namespace kvr
