// SPDX-License-Identifier: Apache-2.0
//
// The worker's device memory: one Arena is one allocation that holds several buffers, each with a
// fence of kCanaryByte on both sides (neighbours share one). A fence begins at the very byte after
// a buffer ends. Every allocation counts against one budget, so that a worker never disturbs who
// else is on the GPU: over the budget, or refused by the device, is kResourceExhausted,
// "insufficient memory".
//
// Threading: one thread. Ownership: the arena frees its allocation; the device and the budget
// outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/device.h"

namespace kvr {

inline constexpr int64_t kFenceBytes = 16 * 1024;

struct MemoryBudget {
  int64_t limit = 0;  // bytes; 0: what the device gives
  int64_t used = 0;
};

class Arena {
 public:
  // Buffers of `sizes` bytes, aligned to 256. `fence` 0: no fences.
  static absl::StatusOr<std::unique_ptr<Arena>> Create(Device& device, MemoryBudget& budget,
                                                       absl::Span<const int64_t> sizes,
                                                       int64_t fence);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void* at(int buffer) const { return base_ + offsets_[buffer]; }
  int64_t offset(int buffer) const { return offsets_[buffer]; }

  // Fills everything, buffers included, with kCanaryByte.
  absl::Status FillAll(Stream stream);
  // Synchronises. Empty: all fences stand. Else where one broke: "12 bytes past the end of output".
  absl::StatusOr<std::string> CheckFences(Stream stream, absl::Span<const std::string> names) const;

 private:
  Arena(Device& device, MemoryBudget& budget) : device_(device), budget_(budget) {}
  Device& device_;
  MemoryBudget& budget_;
  char* base_ = nullptr;
  int64_t bytes_ = 0;
  std::vector<int64_t> sizes_, offsets_;
  int64_t fence_ = 0;
};

}  // namespace kvr
