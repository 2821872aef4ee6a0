// SPDX-License-Identifier: Apache-2.0
//
// Objects that graphs keep alive. A user object of the driver's stands for each; it fires when the
// graph and every executable of it are gone, on a thread of the driver, where no call of CUDA's is
// legal: so the object is only put into a queue there, and dropped later, by a thread of ours.
//
// Threading: all functions from any thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "devices/cuda/driver.h"

namespace kvr::cuda {

// A user object, which may be given to other graphs until it has fired.
struct RetainedObject {
  UserObject handle = nullptr;
  std::shared_ptr<const std::atomic<bool>> fired;
};

class RetainedQueue {
 public:
  // Gives `graph` a reference to `object`, which comes into `queue` when the last one is gone.
  static absl::StatusOr<RetainedObject> Retain(const Driver& driver,
                                               std::shared_ptr<RetainedQueue> queue,
                                               GraphHandle graph,
                                               std::shared_ptr<const void> object);

  // Destroys what has fired, on this thread.
  void Drop();
  // The same, for the last time: what fires later is leaked, since the device that it needs to be
  // destroyed is gone.
  void Close();

 private:
  struct Retained;
  static void Fired(void* retained);

  std::mutex mutex_;
  bool closed_ = false;
  Retained* fired_ = nullptr;
};

}  // namespace kvr::cuda
