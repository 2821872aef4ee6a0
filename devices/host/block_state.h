// SPDX-License-Identifier: Apache-2.0
//
// The state of the block that a thread is running, shared by block_runner.cc (set up, tear down),
// warp.cc and shared_access.cc (what kernels call). Internal to this directory.
//
// A lane is in exactly one condition: ready (its bit in Warp::ready), waiting in a collective, at a
// barrier or for an active mask, or done. The running lane is ready too.
//
// Time, for telling accesses apart, is State::now: it advances when threads meet. What happened
// before Lane::since (or, within a warp, before Warp::since) happened before the lane's next
// access; what happened later may race it.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "devices/host/block_runner.h"
#include "devices/host/fiber_stack.h"
#include "devices/host/shared_log.h"
#include "sdk/device/host/kvr_host_abi.h"

namespace kvr::host {

struct Warp;

// An asynchronous copy of 16 bytes that was started.
struct PendingCopy {
  void* shared;
  const void* global;  // null: zeros
  uint32_t since;      // what other threads did to `shared` later than this races the copy
  uint32_t site;
  uint32_t group;
};

enum class Waits : uint8_t { kNothing, kCollective, kBarrier, kActiveMask };

struct alignas(64) Lane : kvr_host_lane {
  // What a switch touches, in the cache line of the base's last members.
  boost::context::detail::fcontext_t context = nullptr;  // null: has not begun, or never waited
  Warp* warp_state = nullptr;
  uint32_t site = 0;  // where it met or waited last
  Waits waits = Waits::kNothing;
  uint8_t place = 0;  // index of the group or barrier waited at

  BlockRunner::State* state = nullptr;
  uint32_t thread_index = 0;
  uint32_t since = 0;
  const void* mask_place = nullptr;  // of kActiveMask; its result comes back in `result`
  uint32_t result = 0;

  std::vector<PendingCopy> copies;  // in order; those before first_copy are done
  uint32_t first_copy = 0;
  uint32_t group = 0;  // of the next copy
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
  BlockRunner::State* state = nullptr;
  Lane* lanes = nullptr;
  uint32_t exists = 0;
  uint32_t ready = 0;
  uint32_t done = 0;
  uint32_t active_mask = 0;  // lanes waiting for one
  uint32_t since = 0;
  int open = 0;     // groups
  Group group[32];  // each open one has a lane of its own
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

// What the CPU refused to do for a kernel (faults.h).
struct CpuFault {
  int signal = 0;  // 0: none
  int code = 0;
  uint64_t address = 0;
  bool write = false;
};

struct BlockRunner::State {
  Lane* current = nullptr;
  const KernelCall* call = nullptr;
  uint32_t threads = 0, warps = 0, live = 0;
  uint32_t warp_step = 1;  // the order in which warps take turns; modulo warps
  int fibers = 0;          // begun; fiber i runs on stack i
  Lane outside;            // the thread's own context, as if it were a lane
  std::vector<Lane> lanes;
  std::vector<Warp> warp;
  Barrier barrier[kBarriers];
  FiberStacks stacks;
  std::string failure, fix;  // set by Fail
  CpuFault fault;

  unsigned char* memory = nullptr;  // gap, static, gap, dynamic, gap
  int64_t memory_bytes = 0;
  int64_t shared_bytes = 0;  // of memory that this launch uses
  int64_t static_begin = 0, static_end = 0, dynamic_begin = 0, dynamic_end = 0;
  uint32_t now = 0;
  SharedLog log;  // of all of memory
};

// After 2^32 ticks: forgets what was recorded; races with it are missed.
void StartTimeAnew(BlockRunner::State* state);

// Threads meet: the new time.
inline uint32_t Tick(BlockRunner::State* state) {
  if (++state->now == 0) [[unlikely]]
    StartTimeAnew(state);
  return state->now;
}

// Gives a lane that has not begun a fiber of its own.
void StartFiber(Lane* lane);

// What every fiber runs: its first lane, then others that have not begun.
void FiberMain(boost::context::detail::transfer_t from);

inline Lane* AsLane(const kvr_host_lane* self) {
  return static_cast<Lane*>(const_cast<kvr_host_lane*>(self));
}

// Gives the block up, no fiber of it runs again: Fail with this error, FailAt with block, thread
// and `site` before `what`.
[[noreturn]] void Fail(Lane* self, std::string what, std::string_view fix);
[[noreturn]] void FailAt(Lane* self, uint32_t site, const std::string& what, std::string_view fix);

std::string BlockText(const Lane& lane);                // "block (0,1,0)"
std::string ThreadText(const Lane& lane);               // "thread (3,0,0)"
std::string SiteText(const Lane& lane, uint32_t site);  // " at split.cu:12", or nothing

// What is wrong if a suspect of the log has turned out to be a race. Forgets them.
std::string SettleSuspects(BlockRunner::State* state, std::string* fix);

// The thread's runner state while it runs a block, else null.
void SetThreadState(BlockRunner::State* state);
BlockRunner::State* ThreadState();

}  // namespace kvr::host
