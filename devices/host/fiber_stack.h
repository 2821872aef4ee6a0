// SPDX-License-Identifier: Apache-2.0
//
// The stacks of one block's fibers: one mapping, committed page by page as fibers touch it, grown
// when a larger block comes. Threading: one owner.
#pragma once

#include <cstddef>

#include "absl/status/status.h"

namespace kvr::host {

// The compiler refuses kernels whose frames come near this (jit/clang/clang.cc).
inline constexpr size_t kStackBytes = 128 << 10;

class FiberStacks {
 public:
  FiberStacks() = default;
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;

  absl::Status Reserve(int count);  // no fiber may be alive
  char* top(int i) const { return memory_ + (static_cast<size_t>(i) + 1) * kStride; }
  char* bottom(int i) const { return top(i) - kStackBytes; }

 private:
  // Not a multiple of a page: equal frames of different lanes would share cache sets otherwise.
  static constexpr size_t kStride = kStackBytes + 4096 + 320;

  char* memory_ = nullptr;
  size_t bytes_ = 0;
  int count_ = 0;
};

}  // namespace kvr::host
