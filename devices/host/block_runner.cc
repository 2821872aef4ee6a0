// SPDX-License-Identifier: Apache-2.0
#include "devices/host/block_runner.h"

#include <algorithm>
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

constexpr int64_t kGuard = 1024;  // bytes; also the alignment of dynamic shared memory
constexpr unsigned char kGuardByte = 0xc5;
constexpr unsigned char kPoison = 0xff;  // NaN in every floating type, -1 as an integer

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Byte offsets into State::memory.
struct Layout {
  explicit Layout(int64_t static_smem, int64_t dynamic_smem)
      : static_begin(kGuard),
        static_end(kGuard + static_smem),
        dynamic_begin(RoundUp(static_end, kGuard) + (static_smem == 0 ? 0 : kGuard)),
        dynamic_end(dynamic_begin + dynamic_smem),
        size(RoundUp(dynamic_end, kGuard) + kGuard) {}
  int64_t static_begin, static_end, dynamic_begin, dynamic_end, size;
};

absl::Status PrepareSharedMemory(State* state, const KernelCall& call, const Layout& layout) {
  if (layout.size > state->memory_bytes) {
    std::free(state->memory);
    state->memory =
        static_cast<unsigned char*>(std::aligned_alloc(kGuard, static_cast<size_t>(layout.size)));
    state->memory_bytes = state->memory == nullptr ? 0 : layout.size;
    state->guarded_static = -1;
    if (state->memory == nullptr) {
      return Error(absl::StatusCode::kResourceExhausted,
                   absl::StrCat("no memory for ", layout.size, " bytes of shared memory"),
                   "free memory on this machine");
    }
  }
  if (state->guarded_static != call.static_smem || state->guarded_dynamic != call.dynamic_smem) {
    std::memset(state->memory, kGuardByte, static_cast<size_t>(layout.size));
    state->guarded_static = call.static_smem;
    state->guarded_dynamic = call.dynamic_smem;
  }
  std::memset(state->memory + layout.static_begin, kPoison, static_cast<size_t>(call.static_smem));
  std::memset(state->memory + layout.dynamic_begin, kPoison,
              static_cast<size_t>(call.dynamic_smem));
  return absl::OkStatus();
}

// Offset of the first damaged byte in [begin, end), or -1.
int64_t FindDamage(const unsigned char* memory, int64_t begin, int64_t end) {
  // All equal their neighbour and the first is right: usual, and fast.
  if (begin == end ||
      (memory[begin] == kGuardByte && std::memcmp(memory + begin, memory + begin + 1,
                                                  static_cast<size_t>(end - begin - 1)) == 0)) {
    return -1;
  }
  return std::find_if(memory + begin, memory + end,
                      [](unsigned char byte) { return byte != kGuardByte; }) -
         memory;
}

std::string BlockText(const Dim3& b) {
  return absl::StrCat("block (", b.x, ",", b.y, ",", b.z, ")");
}

absl::Status CheckGuards(State* state, const Dim3& block, const Layout& layout) {
  struct Region {
    const char* where;
    int64_t begin, end, origin, size;
  };
  const int64_t static_size = layout.static_end - layout.static_begin;
  const int64_t dynamic_size = layout.dynamic_end - layout.dynamic_begin;
  const bool has_static = static_size > 0;
  const Region regions[] = {
      {has_static ? "static" : "dynamic", 0, layout.static_begin, layout.static_begin,
       has_static ? static_size : dynamic_size},
      {"static", layout.static_end, layout.dynamic_begin, layout.static_begin, static_size},
      {"dynamic", layout.dynamic_end, layout.size, layout.dynamic_begin, dynamic_size},
  };
  for (const Region& region : regions) {
    const int64_t at = FindDamage(state->memory, region.begin, region.end);
    if (at < 0) continue;
    state->guarded_static = -1;  // write the guards afresh
    return Error(absl::StatusCode::kInternal,
                 absl::StrCat(BlockText(block), ": a write at byte ", at - region.origin, " of ",
                              region.where, " shared memory, which has ", region.size, " bytes"),
                 "keep indices inside the arrays, or launch with more shared memory");
  }
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

void StartLanes(State* state, const KernelCall& call, const Dim3& block, const Layout& layout) {
  const Dim3& shape = call.block;
  uint32_t t = 0;
  for (uint32_t z = 0; z < shape.z; ++z) {
    for (uint32_t y = 0; y < shape.y; ++y) {
      for (uint32_t x = 0; x < shape.x; ++x, ++t) {
        Lane& lane = state->lanes[t];
        lane.static_smem = state->memory + layout.static_begin;
        lane.dynamic_smem = state->memory + layout.dynamic_begin;
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
      }
    }
  }
  for (uint32_t w = 0; w < state->warps; ++w) {
    Warp& warp = state->warp[w];
    const uint32_t lanes = std::min(32u, state->threads - 32 * w);
    warp.lanes = &state->lanes[32 * w];
    warp.exists = warp.ready = lanes == 32 ? ~0u : (1u << lanes) - 1;
    warp.done = warp.active_mask = 0;
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
  const Layout layout(call.static_smem, call.dynamic_smem);
  KVR_RETURN_IF_ERROR(PrepareSharedMemory(state, call, layout));
  KVR_RETURN_IF_ERROR(PrepareLanes(state, call.block));
  const int64_t plane = int64_t{call.grid.x} * call.grid.y;
  const Dim3 index = {static_cast<uint32_t>(block % call.grid.x),
                      static_cast<uint32_t>(block % plane / call.grid.x),
                      static_cast<uint32_t>(block / plane)};
  StartLanes(state, call, index, layout);
  state->call = &call;
  state->failure.clear();

  SetThreadState(state);
  state->current = &state->lanes[0];
  StartFiber(state->current);
  const ctx::transfer_t last = ctx::jump_fcontext(state->lanes[0].context, &state->outside);
  static_cast<Lane*>(last.data)->context = last.fctx;
  SetThreadState(nullptr);

  if (!state->failure.empty()) {
    return Error(absl::StatusCode::kInternal, absl::StrCat(call.name, ": ", state->failure),
                 state->fix);
  }
  return WithContext(call.name, CheckGuards(state, index, layout));
}

}  // namespace kvr::host
