// SPDX-License-Identifier: Apache-2.0
//
// Runs one block of a kernel at a time: its threads are fibers of the calling OS thread, grouped
// in warps of 32, that switch when they wait at a barrier or a warp collective
// (sdk/device/host/kvr_host.h is what they call). Lanes are taken in turn within a warp, so a
// collective costs one switch per lane.
//
// Threading: a BlockRunner belongs to one thread; several run at once. Fibers never migrate.
// Errors: kInternal with block, thread and the author's line: a barrier or collective that can
// never complete, an access past shared memory, two that race there, a stack overflow, __trap,
// failed assertions, and what the CPU itself refuses (faults.h; without the line). Nothing waits
// for ever except a kernel that loops for ever. Order: within a block warps take turns when they
// wait; which one begins depends on the block's index alone, so results repeat.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "core/plan.h"

namespace kvr::host {

// A generated function that calls the kernel: params[i] points at argument i.
using EntryFunction = void (*)(void* const* params);

struct KernelCall {
  EntryFunction entry = nullptr;
  void* const* params = nullptr;
  std::string name;                    // for errors
  const char* const* sites = nullptr;  // the object's table of lines, also for errors
  Dim3 grid, block;
  int64_t static_smem = 0;  // bytes
  int64_t dynamic_smem = 0;
};

class BlockRunner {
 public:
  BlockRunner();
  ~BlockRunner();

  // Runs the block of linear index `block` (x fastest) to its end.
  absl::Status Run(const KernelCall& call, int64_t block);

  struct State;  // known to the entry points in block_runner.cc alone

 private:
  std::unique_ptr<State> state_;
};

}  // namespace kvr::host
