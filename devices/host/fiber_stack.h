// SPDX-License-Identifier: Apache-2.0
//
// The stacks of one block's fibers: one mapping, committed page by page as fibers touch it, grown
// when a larger block comes. Threading: one owner.
#pragma once

#include <cstddef>

#include "absl/status/status.h"

namespace kvr::host {

// Functions that call others check the limit when they begin, so what is below it must hold the
// frame of one more: the compiler refuses those above 64 KiB (jit/clang/backend.h). The rest is for
// the runtime's own calls.
inline constexpr size_t kStackReserve = 80 << 10;
inline constexpr size_t kStackBytes = (160 << 10) + kStackReserve;

class FiberStacks {
 public:
  FiberStacks() = default;
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;

  absl::Status Reserve(int count);  // no fiber may be alive
  char* top(int i) const { return memory_ + (static_cast<size_t>(i) + 1) * kStride; }
  char* limit(int i) const { return top(i) - kStackBytes + kStackReserve; }

 private:
  // Not a multiple of a page: equal frames of different lanes would share cache sets otherwise.
  static constexpr size_t kStride = kStackBytes + 4096 + 320;

  char* memory_ = nullptr;
  size_t bytes_ = 0;
  int count_ = 0;
};

}  // namespace kvr::host
