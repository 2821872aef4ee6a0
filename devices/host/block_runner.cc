// SPDX-License-Identifier: Apache-2.0
#include "devices/host/block_runner.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "devices/host/block_state.h"

namespace kvr::host {
namespace {

namespace ctx = boost::context::detail;
using State = BlockRunner::State;

constexpr int64_t kAlign = 1024;         // of static and dynamic shared memory
constexpr int64_t kGap = 16 << 10;       // around them; an access that lands there is a fault
constexpr unsigned char kPoison = 0xff;  // NaN in every floating type, -1 as an integer

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Places the launch's shared memory in State::memory and poisons it.
absl::Status PrepareSharedMemory(State* state, const KernelCall& call) {
  state->static_begin = kGap;
  state->static_end = state->static_begin + call.static_smem;
  state->dynamic_begin = RoundUp(state->static_end, kAlign) + (call.static_smem == 0 ? 0 : kGap);
  state->dynamic_end = state->dynamic_begin + call.dynamic_smem;
  state->shared_bytes = RoundUp(state->dynamic_end, kAlign) + kGap;
  if (state->shared_bytes > state->memory_bytes) {
    std::free(state->memory);
    state->memory_bytes = 0;
    state->memory = static_cast<unsigned char*>(
        std::aligned_alloc(kAlign, static_cast<size_t>(state->shared_bytes)));
    if (state->memory == nullptr || !state->log.Reserve(state->shared_bytes)) {
      return Error(absl::StatusCode::kResourceExhausted,
                   absl::StrCat("no memory for ", state->shared_bytes, " bytes of shared memory"),
                   "free memory on this machine");
    }
    state->memory_bytes = state->shared_bytes;
  }
  std::memset(state->memory + state->static_begin, kPoison, static_cast<size_t>(call.static_smem));
  std::memset(state->memory + state->dynamic_begin, kPoison,
              static_cast<size_t>(call.dynamic_smem));
  return absl::OkStatus();
}

// (Re)builds the lane and warp tables for blocks of this shape.
absl::Status PrepareLanes(State* state, const Dim3& shape) {
  const uint32_t threads = static_cast<uint32_t>(shape.volume());
  KVR_RETURN_IF_ERROR(state->stacks.Reserve(static_cast<int>(threads)));
  if (state->lanes.size() < threads) {
    state->lanes = std::vector<Lane>(threads);
    state->warp = std::vector<Warp>((threads + 31) / 32);
  }
  state->threads = threads;
  state->warps = (threads + 31) / 32;
  state->outside.state = state;
  return absl::OkStatus();
}

void StartLanes(State* state, const KernelCall& call, const Dim3& block) {
  const Dim3& shape = call.block;
  const uint32_t now = Tick(state);
  uint32_t t = 0;
  for (uint32_t z = 0; z < shape.z; ++z) {
    for (uint32_t y = 0; y < shape.y; ++y) {
      for (uint32_t x = 0; x < shape.x; ++x, ++t) {
        Lane& lane = state->lanes[t];
        lane.static_smem = state->memory + state->static_begin;
        lane.dynamic_smem = state->memory + state->dynamic_begin;
        lane.shared = state->memory;
        lane.shared_bytes = static_cast<unsigned long>(state->shared_bytes);
        lane.thread = {x, y, z};
        lane.block = {block.x, block.y, block.z};
        lane.block_dim = {shape.x, shape.y, shape.z};
        lane.grid_dim = {call.grid.x, call.grid.y, call.grid.z};
        lane.lane = t % 32;
        lane.warp = t / 32;
        lane.dynamic_bytes = static_cast<unsigned>(call.dynamic_smem);
        lane.warp_state = &state->warp[t / 32];
        lane.state = state;
        lane.waits = Waits::kNothing;
        lane.context = nullptr;
        lane.thread_index = t;
        lane.since = now;
        lane.site = 0;
        lane.copies.clear();
        lane.first_copy = lane.group = 0;
      }
    }
  }
  for (uint32_t w = 0; w < state->warps; ++w) {
    Warp& warp = state->warp[w];
    const uint32_t lanes = std::min(32u, state->threads - 32 * w);
    warp.state = state;
    warp.lanes = &state->lanes[32 * w];
    warp.exists = warp.ready = lanes == 32 ? ~0u : (1u << lanes) - 1;
    warp.done = warp.active_mask = 0;
    warp.since = now;
    if (warp.open != 0) {  // an earlier block was given up
      for (Group& group : warp.group) group.arrived = 0;
      warp.open = 0;
    }
  }
  for (Barrier& barrier : state->barrier) barrier = Barrier{};
  state->live = state->threads;
  state->fibers = 0;
}

}  // namespace

BlockRunner::BlockRunner() : state_(std::make_unique<State>()) {}
BlockRunner::~BlockRunner() { std::free(state_->memory); }

absl::Status BlockRunner::Run(const KernelCall& call, int64_t block) {
  State* state = state_.get();
  KVR_RETURN_IF_ERROR(PrepareSharedMemory(state, call));
  KVR_RETURN_IF_ERROR(PrepareLanes(state, call.block));
  const int64_t plane = int64_t{call.grid.x} * call.grid.y;
  const Dim3 index = {static_cast<uint32_t>(block % call.grid.x),
                      static_cast<uint32_t>(block % plane / call.grid.x),
                      static_cast<uint32_t>(block / plane)};
  StartLanes(state, call, index);
  state->call = &call;
  state->failure.clear();
  state->fault.signal = 0;
  state->log.suspects.clear();
  // Blocks take their warps in different orders, so that a kernel that counts on one gives itself
  // away; a block always in the same, so that results repeat.
  const int64_t first_warp = block % state->warps;
  state->warp_step = block / state->warps % 2 == 0 ? 1 : state->warps - 1;

  SetThreadState(state);
  state->current = &state->lanes[static_cast<size_t>(32 * first_warp)];
  StartFiber(state->current);
  const ctx::transfer_t last = ctx::jump_fcontext(state->current->context, &state->outside);
  static_cast<Lane*>(last.data)->context = last.fctx;
  SetThreadState(nullptr);

  if (state->failure.empty()) state->failure = SettleSuspects(state, &state->fix);
  if (state->failure.empty()) return absl::OkStatus();
  return Error(absl::StatusCode::kInternal, absl::StrCat(call.name, ": ", state->failure),
               state->fix);
}

}  // namespace kvr::host
