// SPDX-License-Identifier: Apache-2.0
#include "devices/host/fiber_stack.h"

#include <sys/mman.h>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace kvr::host {

FiberStacks::~FiberStacks() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

absl::Status FiberStacks::Reserve(int count) {
  if (count <= count_) return absl::OkStatus();
  if (memory_ != nullptr) munmap(memory_, bytes_);
  memory_ = nullptr;
  count_ = 0;
  bytes_ = static_cast<size_t>(count) * kStride;
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) {
    return Error(absl::StatusCode::kResourceExhausted,
                 absl::StrCat("no address space for the stacks of ", count, " threads (",
                              bytes_ >> 20, " MiB)"),
                 "raise the limit (ulimit -v) or use smaller blocks");
  }
  memory_ = static_cast<char*>(memory);
  count_ = count;
  return absl::OkStatus();
}

}  // namespace kvr::host
