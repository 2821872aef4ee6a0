// SPDX-License-Identifier: Apache-2.0
//
// The state of the block that a thread is running, shared by block_runner.cc (set up, check, tear
// down) and warp.cc (what kernels call). Internal to this directory.
//
// A lane is in exactly one condition: ready (its bit in Warp::ready), waiting in a collective, at a
// barrier or for an active mask, or done. The running lane is ready too.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "devices/host/block_runner.h"
#include "devices/host/fiber_stack.h"
#include "sdk/device/host/kvr_host_abi.h"

namespace kvr::host {

struct Warp;

enum class Waits : uint8_t { kNothing, kCollective, kBarrier, kActiveMask };

struct alignas(64) Lane : kvr_host_lane {
  boost::context::detail::fcontext_t context = nullptr;  // null: has not begun, or never waited
  Warp* warp_state = nullptr;
  BlockRunner::State* state = nullptr;
  const void* site = nullptr;  // of kActiveMask; its result comes back in `result`
  const char* stack_limit = nullptr;
  uint32_t result = 0;
  Waits waits = Waits::kNothing;
  uint8_t place = 0;  // index of the group or barrier waited at
};

// Lanes of a warp that are meeting: one collective, one mask.
struct Group {
  uint32_t mask = 0;
  uint32_t arrived = 0;  // 0: closed
  kvr_host_fn fn = nullptr;
  const char* name = nullptr;
  void* args[32];
};

struct Warp {
  Lane* lanes = nullptr;
  uint32_t exists = 0;
  uint32_t ready = 0;
  uint32_t done = 0;
  uint32_t active_mask = 0;  // lanes waiting for one
  int open = 0;              // groups
  Group group[32];           // each open one has a lane of its own
};

struct Barrier {
  const char* name = nullptr;
  uint32_t arrived = 0;  // 0: unused
  uint32_t expected = 0;
  uint32_t predicates = 0;   // non-zero ones so far
  uint32_t last_result = 0;  // of the barrier that completed last
  uint32_t waiting[32] = {};
};

inline constexpr int kBarriers = 16;

struct BlockRunner::State {
  Lane* current = nullptr;
  const KernelCall* call = nullptr;
  uint32_t threads = 0, warps = 0, live = 0;
  int fibers = 0;  // begun; fiber i runs on stack i
  Lane outside;    // the thread's own context, as if it were a lane
  std::vector<Lane> lanes;
  std::vector<Warp> warp;
  Barrier barrier[kBarriers];
  FiberStacks stacks;
  std::string failure, fix;  // set by Fail

  unsigned char* memory = nullptr;  // guard, static, guard, dynamic, guard
  int64_t memory_bytes = 0;
  int64_t guarded_static = -1, guarded_dynamic = -1;  // the layout its guards are written for
};

// Gives a lane that has not begun a fiber of its own.
void StartFiber(Lane* lane);

// What every fiber runs: its first lane, then others that have not begun.
void FiberMain(boost::context::detail::transfer_t from);

// The thread's runner state while it runs a block.
void SetThreadState(BlockRunner::State* state);

}  // namespace kvr::host
