// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/retained.h"

#include <utility>

namespace kvr::cuda {

struct RetainedQueue::Retained {
  std::shared_ptr<const void> object;
  std::shared_ptr<RetainedQueue> queue;  // until it has fired
  std::shared_ptr<std::atomic<bool>> fired = std::make_shared<std::atomic<bool>>(false);
  Retained* next = nullptr;
};

absl::StatusOr<RetainedObject> RetainedQueue::Retain(const Driver& driver,
                                                     std::shared_ptr<RetainedQueue> queue,
                                                     GraphHandle graph,
                                                     std::shared_ptr<const void> object) {
  auto retained =
      std::make_unique<Retained>(Retained{.object = std::move(object), .queue = std::move(queue)});
  const auto fired = retained->fired;
  UserObject handle = nullptr;
  Result result = driver.UserObjectCreate(&handle, retained.get(), Fired, /*references=*/1,
                                          kUserObjectNoDestructorSync);
  if (result != kSuccess) return ErrorFrom(driver, result, "cuUserObjectCreate");
  retained.release();  // fires, whatever happens from here on
  result = driver.GraphRetainUserObject(graph, handle, 1, kGraphUserObjectMove);
  if (result == kSuccess) return RetainedObject{handle, fired};
  driver.UserObjectRelease(handle, 1);
  return ErrorFrom(driver, result, "cuGraphRetainUserObject");
}

// On a thread of the driver: no call of CUDA's, no destructor of what was retained.
void RetainedQueue::Fired(void* retained) {
  auto* const object = static_cast<Retained*>(retained);
  object->fired->store(true);
  const std::shared_ptr<RetainedQueue> queue = std::move(object->queue);
  const std::lock_guard lock(queue->mutex_);
  if (queue->closed_) {
    static std::atomic<Retained*> leaked = nullptr;  // for checkers of leaks to see
    object->next = leaked.exchange(object);
    return;
  }
  object->next = queue->fired_;
  queue->fired_ = object;
}

void RetainedQueue::Drop() {
  for (;;) {
    Retained* fired = nullptr;
    {
      const std::lock_guard lock(mutex_);
      fired = std::exchange(fired_, nullptr);
    }
    if (fired == nullptr) return;
    while (fired != nullptr) {
      const std::unique_ptr<Retained> object(fired);
      fired = object->next;
    }
  }
}

void RetainedQueue::Close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  Drop();
}

}  // namespace kvr::cuda
