// SPDX-License-Identifier: Apache-2.0
//
// The functions and the lane structure that JIT-compiled kernels and the host runtime
// (devices/host/warp.cc) share; kvr_host.h explains them. Plain enough for any compiler.
#pragma once

extern "C" {

struct kvr_host_dim {
  unsigned x, y, z;
};

// One per lane, constant while the block runs. The compiler's shared-memory pass reads the first
// two members; their offsets (0 and 8) are part of the ABI.
struct kvr_host_lane {
  unsigned char* static_smem;
  unsigned char* dynamic_smem;
  kvr_host_dim thread, block, block_dim, grid_dim;
  unsigned lane;           // 0..31
  unsigned warp;           // within the block
  unsigned dynamic_bytes;  // size of dynamic shared memory
};

typedef void (*kvr_host_fn)(void* const* lanes);

// The calling lane; the same for the fiber's whole life, so the compiler may keep it.
const kvr_host_lane* kvr_host_self(void) noexcept __attribute__((const));

void kvr_host_collective(const kvr_host_lane* self, unsigned mask, kvr_host_fn fn, void* args,
                         const char* name) noexcept;
// Barrier `id` (0..15) of `count` threads; count 0: the whole block. Barrier 0 is __syncthreads.
void kvr_host_barrier(const kvr_host_lane* self, unsigned id, unsigned count) noexcept;
// Counts towards barrier `id` without waiting (bar.arrive).
void kvr_host_barrier_arrive(const kvr_host_lane* self, unsigned id, unsigned count) noexcept;
// __syncthreads that returns how many threads came with a non-zero predicate.
unsigned kvr_host_barrier_count(const kvr_host_lane* self, int predicate) noexcept;
// The lanes that wait for the mask at `site` once no other lane of the warp can run.
unsigned kvr_host_active_mask(const kvr_host_lane* self, const void* site) noexcept;
// Lets the block's other lanes run; for loops that poll memory.
void kvr_host_yield(const kvr_host_lane* self) noexcept;
// Ends the launch with this error.
[[noreturn]] void kvr_host_fail(const kvr_host_lane* self, const char* message) noexcept;
}
