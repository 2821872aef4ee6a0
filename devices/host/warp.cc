// SPDX-License-Identifier: Apache-2.0
//
// What kernels call (sdk/device/host/kvr_host_abi.h): switching, collectives, barriers. This file
// is the host device's inner loop: a collective is 32 passes through kvr_host_collective.
#include <sched.h>

#include <bit>

#include "absl/strings/str_cat.h"
#include "devices/host/block_state.h"

namespace kvr::host {
namespace {

namespace ctx = boost::context::detail;
using State = BlockRunner::State;

// initial-exec: 8 bytes of static TLS that dlopen can always provide, and no call to reach them.
__attribute__((tls_model("initial-exec"))) thread_local State* thread_state = nullptr;

std::string Coordinates(const kvr_host_dim& d) {
  return absl::StrCat("(", d.x, ",", d.y, ",", d.z, ")");
}

inline void SwitchTo(Lane* from, Lane* to) {
  from->warp_state->state->current = to;
  if (to->context == nullptr) StartFiber(to);
  const ctx::transfer_t back = ctx::jump_fcontext(to->context, from);
  static_cast<Lane*>(back.data)->context = back.fctx;
}

std::string Condition(const Lane& lane) {
  if (lane.warp_state->done & (1u << lane.lane)) return "has returned";
  switch (lane.waits) {
    case Waits::kCollective: {
      const Group& group = lane.warp_state->group[lane.place];
      return absl::StrCat("waits in ", group.name, SiteText(lane, lane.site), " (mask 0x",
                          absl::Hex(group.mask), ")");
    }
    case Waits::kBarrier:
      return absl::StrCat("waits at ", lane.state->barrier[lane.place].name,
                          lane.place == 0 ? "" : absl::StrCat(" (barrier ", lane.place, ")"),
                          SiteText(lane, lane.site));
    default:
      return "runs";
  }
}

// Nothing of the block can run: names a lane that waits and one that keeps it waiting.
[[noreturn]] void FailStuck(Lane* self) {
  State* state = self->state;
  for (uint32_t t = 0; t < state->threads; ++t) {
    const Lane& lane = state->lanes[t];
    if (lane.warp_state->done & (1u << lane.lane)) continue;
    const Lane* culprit = nullptr;
    std::string_view fix = "every thread of the block must reach the same barriers";
    if (lane.waits == Waits::kCollective) {
      const Group& group = lane.warp_state->group[lane.place];
      culprit = &lane.warp_state->lanes[std::countr_zero(group.mask & ~group.arrived)];
      fix = "every lane named in the mask must reach the collective";
    } else {
      for (uint32_t i = 0; i < state->threads && culprit == nullptr; ++i) {
        const Lane& other = state->lanes[i];
        if (other.waits != Waits::kBarrier || other.place != lane.place ||
            (other.warp_state->done & (1u << other.lane))) {
          culprit = &other;
        }
      }
    }
    std::string what = absl::StrCat("divergence in ", BlockText(lane), ": ", ThreadText(lane), " ",
                                    Condition(lane));
    if (culprit != nullptr) {
      absl::StrAppend(&what, ", which ", ThreadText(*culprit), " cannot reach: it ",
                      Condition(*culprit));
    } else {
      const Barrier& barrier = state->barrier[lane.place];
      absl::StrAppend(&what, ", which only ", barrier.arrived, " of ", barrier.expected,
                      " threads reached");
    }
    Fail(self, std::move(what), fix);
  }
  Fail(self, "a block stopped with no thread waiting", "report this as a fault of the host device");
}

// Lanes of `warp` that ask for the active mask, and no other lane of it can run: those at one
// place in the code are what a GPU would run together.
bool ReleaseActiveMask(Warp& warp) {
  if (warp.active_mask == 0) return false;
  const void* place = warp.lanes[std::countr_zero(warp.active_mask)].mask_place;
  uint32_t together = 0;
  for (uint32_t rest = warp.active_mask; rest != 0; rest &= rest - 1) {
    const int i = std::countr_zero(rest);
    if (warp.lanes[i].mask_place == place) together |= 1u << i;
  }
  for (uint32_t rest = together; rest != 0; rest &= rest - 1) {
    warp.lanes[std::countr_zero(rest)].result = together;
  }
  warp.active_mask &= ~together;
  warp.ready |= together;
  return true;
}

// The warp of `self` has no ready lane.
__attribute__((noinline)) Lane* PickElsewhere(Lane* self) {
  State* state = self->state;
  if (ReleaseActiveMask(*self->warp_state)) {
    return &self->warp_state->lanes[std::countr_zero(self->warp_state->ready)];
  }
  for (uint32_t i = 1; i < state->warps; ++i) {
    Warp& warp = state->warp[(self->warp + i * state->warp_step) % state->warps];
    if (warp.ready != 0 || ReleaseActiveMask(warp)) {
      return &warp.lanes[std::countr_zero(warp.ready)];
    }
  }
  FailStuck(self);
}

inline Lane* PickNext(Lane* self) {
  const Warp& warp = *self->warp_state;
  if (warp.ready == 0) return PickElsewhere(self);
  const uint32_t above = warp.ready & (~1u << self->lane);
  return &warp.lanes[std::countr_zero(above != 0 ? above : warp.ready)];
}

// `self` waits from here on; returns when it was made ready again.
inline void Suspend(Lane* self) {
  self->warp_state->ready &= ~(1u << self->lane);
  SwitchTo(self, PickNext(self));
}

// The open group for these lanes, or a closed one. Masks of open groups may overlap: a lane that is
// done with one collective comes to the next while others still meet for the first.
__attribute__((noinline)) Group* FindGroup(Warp* warp, uint32_t mask, kvr_host_fn fn) {
  Group* closed = nullptr;
  for (Group& group : warp->group) {
    if (group.arrived == 0) {
      if (closed == nullptr) closed = &group;
    } else if (group.mask == mask && group.fn == fn) {
      return &group;
    }
  }
  return closed;
}

void OpenGroup(Lane* self, Group* group, uint32_t mask, kvr_host_fn fn, const char* name) {
  ++self->warp_state->open;
  group->mask = mask;
  group->fn = fn;
  group->name = name;
  if (mask != ~0u) {
    for (int i = 0; i < 32; ++i) {
      if ((mask >> i & 1) == 0) group->args[i] = nullptr;
    }
  }
}

constexpr char kSyncthreads[] = "__syncthreads";
constexpr char kSyncthreadsCount[] = "__syncthreads_count/_and/_or";
constexpr char kNamedBarrier[] = "a named barrier";

// Returns the barrier's predicate count when it was waited for.
uint32_t Arrive(Lane* self, unsigned id, unsigned count, const char* name, unsigned site,
                bool predicate, bool wait) {
  State* state = self->state;
  self->site = site;
  if (id >= kBarriers) {
    FailAt(self, site, absl::StrCat("barrier ", id, " does not exist"), "use barriers 0 to 15");
  }
  Barrier& barrier = state->barrier[id];
  const uint32_t expected = count == 0 ? state->threads : count;
  if (barrier.arrived == 0) {
    barrier.name = name;
    barrier.expected = expected;
    barrier.predicates = 0;
  } else if (barrier.expected != expected || barrier.name != name) {
    FailAt(self, site,
           absl::StrCat("comes to ", name, " for ", expected, " threads while ", barrier.arrived,
                        " wait at ", barrier.name, " for ", barrier.expected),
           "all threads must come to the same kind of barrier");
  }
  barrier.predicates += predicate ? 1 : 0;
  if (++barrier.arrived == barrier.expected) {
    barrier.arrived = 0;
    barrier.last_result = barrier.predicates;
    // All that happened before this, in those that wait, happened before what they do next.
    const uint32_t now = self->since = Tick(state);
    for (uint32_t w = 0; w < state->warps; ++w) {
      Warp& warp = state->warp[w];
      for (uint32_t rest = barrier.waiting[w]; rest != 0; rest &= rest - 1) {
        warp.lanes[std::countr_zero(rest)].since = now;
      }
      warp.ready |= barrier.waiting[w];
      barrier.waiting[w] = 0;
    }
    return barrier.last_result;
  }
  if (!wait) return 0;
  barrier.waiting[self->warp] |= 1u << self->lane;
  self->waits = Waits::kBarrier;
  self->place = static_cast<uint8_t>(id);
  Suspend(self);
  return barrier.last_result;
}

}  // namespace

std::string BlockText(const Lane& lane) { return absl::StrCat("block ", Coordinates(lane.block)); }

std::string ThreadText(const Lane& lane) {
  return absl::StrCat("thread ", Coordinates(lane.thread));
}

std::string SiteText(const Lane& lane, uint32_t site) {
  return site == 0 ? "" : absl::StrCat(" at ", lane.state->call->sites[site]);
}

void Fail(Lane* self, std::string what, std::string_view fix) {
  State* state = self->state;
  state->failure = std::move(what);
  state->fix = fix;
  SwitchTo(self, &state->outside);
  __builtin_unreachable();
}

void FailAt(Lane* self, uint32_t site, const std::string& what, std::string_view fix) {
  Fail(self,
       absl::StrCat(BlockText(*self), ", ", ThreadText(*self), SiteText(*self, site), ": ", what),
       fix);
}

void SetThreadState(State* state) { thread_state = state; }
State* ThreadState() { return thread_state; }

void StartFiber(Lane* lane) {
  State* state = lane->state;
  const int stack = state->fibers++;
  lane->stack_limit = state->stacks.limit(stack);
  lane->context = ctx::make_fcontext(state->stacks.top(stack), kStackBytes, &FiberMain);
}

void FiberMain(ctx::transfer_t from) {
  Lane* first = static_cast<Lane*>(from.data);
  first->context = from.fctx;
  State* state = first->state;
  Lane* self = state->current;
  const char* const limit = self->stack_limit;
  while (true) {
    state->call->entry(state->call->params);
    self->warp_state->ready &= ~(1u << self->lane);
    self->warp_state->done |= 1u << self->lane;
    Lane* next = --state->live == 0 ? &state->outside : PickNext(self);
    if (next->context != nullptr) SwitchTo(self, next);  // for good
    // A lane that has not begun: run it here. Lanes that never wait share one stack.
    state->current = self = next;
    self->stack_limit = limit;
  }
}

}  // namespace kvr::host

using kvr::host::Arrive;
using kvr::host::AsLane;
using kvr::host::Lane;

extern "C" {

const kvr_host_lane* kvr_host_self(void) noexcept { return kvr::host::thread_state->current; }

void kvr_host_collective(const kvr_host_lane* lane, unsigned mask, kvr_host_fn fn, void* args,
                         const char* name, unsigned site) noexcept {
  using kvr::host::Group;
  Lane* self = AsLane(lane);
  kvr::host::Warp& warp = *self->warp_state;
  self->site = site;
  mask &= warp.exists;
  const uint32_t bit = 1u << self->lane;
  if ((mask & bit) == 0) [[unlikely]] {
    kvr::host::FailAt(
        self, site,
        absl::StrCat("comes to ", name, " with a mask that leaves it out, 0x", absl::Hex(mask)),
        "the mask must name every lane that calls");
  }
  Group* group = &warp.group[0];
  if (warp.open != 0 && (group->arrived == 0 || group->mask != mask || group->fn != fn))
      [[unlikely]] {
    group = kvr::host::FindGroup(&warp, mask, fn);
  }
  if (group->arrived == 0) kvr::host::OpenGroup(self, group, mask, fn, name);
  group->args[self->lane] = args;
  group->arrived |= bit;
  if (group->arrived == mask) {
    fn(group->args);
    group->arrived = 0;
    --warp.open;
    warp.ready |= mask;
    warp.since = kvr::host::Tick(warp.state);
    return;
  }
  self->waits = kvr::host::Waits::kCollective;
  self->place = static_cast<uint8_t>(group - warp.group);
  kvr::host::Suspend(self);
}

void kvr_host_barrier(const kvr_host_lane* self, unsigned id, unsigned count,
                      unsigned site) noexcept {
  const char* name = id == 0 ? kvr::host::kSyncthreads : kvr::host::kNamedBarrier;
  Arrive(AsLane(self), id, count, name, site, false, true);
}

void kvr_host_barrier_arrive(const kvr_host_lane* self, unsigned id, unsigned count,
                             unsigned site) noexcept {
  const char* name = id == 0 ? kvr::host::kSyncthreads : kvr::host::kNamedBarrier;
  Arrive(AsLane(self), id, count, name, site, false, false);
}

unsigned kvr_host_barrier_count(const kvr_host_lane* self, int predicate, unsigned site) noexcept {
  return Arrive(AsLane(self), 0, 0, kvr::host::kSyncthreadsCount, site, predicate != 0, true);
}

unsigned kvr_host_active_mask(const kvr_host_lane* lane, const void* place) noexcept {
  Lane* self = AsLane(lane);
  self->mask_place = place;
  self->waits = kvr::host::Waits::kActiveMask;
  self->warp_state->active_mask |= 1u << self->lane;
  kvr::host::Suspend(self);
  return self->result;
}

void kvr_host_yield(const kvr_host_lane* lane) noexcept {
  Lane* self = AsLane(lane);
  auto& warp = *self->warp_state;
  // Lanes above in the warp, then the other warps, then from the first lane again.
  const uint32_t above = warp.ready & (~1u << self->lane);
  Lane* next = above != 0 ? &warp.lanes[std::countr_zero(above)] : nullptr;
  for (uint32_t i = 1; next == nullptr && i <= self->state->warps; ++i) {
    auto& other = self->state->warp[(self->warp + i) % self->state->warps];
    if (other.ready != 0) next = &other.lanes[std::countr_zero(other.ready)];
  }
  if (next == self) {
    sched_yield();  // what it polls for must come from another block
  } else {
    kvr::host::SwitchTo(self, next);
  }
  self->since = kvr::host::Tick(self->state);  // it may see what another has released
}

void kvr_host_fail(const kvr_host_lane* lane, const char* message, unsigned site) noexcept {
  Lane* self = AsLane(lane);
  kvr::host::FailAt(self, site != 0 ? site : self->site, message, "see the kernel's source");
}

void kvr_host_stack_overflow(const kvr_host_lane* self) noexcept {
  kvr::host::FailAt(AsLane(self), 0, "stack overflow",
                    "recurse less deeply, or keep large arrays in shared memory");
}

}  // extern "C"
