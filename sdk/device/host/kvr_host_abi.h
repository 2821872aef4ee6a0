// SPDX-License-Identifier: Apache-2.0
//
// The functions and the lane structure that JIT-compiled kernels and the host runtime
// (devices/host/warp.cc) share; kvr_host.h explains them. Plain enough for any compiler.
#pragma once

// Goes up whenever anything here or what the compiler reads of the headers changes: headers and
// module of two releases do not fit.
#define KVR_HOST_ABI 3

extern "C" {

struct kvr_host_dim {
  unsigned x, y, z;
};

// One per lane, constant while the block runs, but for the last member. The compiler's passes read
// static_smem, dynamic_smem, shared, shared_bytes and stack_limit at offsets 0, 8, 16, 24 and 32:
// they are part of the ABI.
struct kvr_host_lane {
  unsigned char* static_smem;
  unsigned char* dynamic_smem;
  unsigned char* shared;  // both, with what lies around them
  unsigned long shared_bytes;
  const char* stack_limit;  // of the fiber that runs the lane; what is below serves one more frame
  kvr_host_dim thread, block, block_dim, grid_dim;
  unsigned lane;           // 0..31
  unsigned warp;           // within the block
  unsigned dynamic_bytes;  // size of dynamic shared memory
};

typedef void (*kvr_host_fn)(void* const* lanes);

// The calling lane; the same for the fiber's whole life, so the compiler may keep it.
const kvr_host_lane* kvr_host_self(void) noexcept __attribute__((const));

// The line of the author's that led here, as a number for the `site` parameters below; 0: unknown.
// The compiler replaces the call; the object's table kvr_host_sites has the text.
unsigned kvr_host_site(void) noexcept;

void kvr_host_collective(const kvr_host_lane* self, unsigned mask, kvr_host_fn fn, void* args,
                         const char* name, unsigned site) noexcept;
// Barrier `id` (0..15) of `count` threads; count 0: the whole block. Barrier 0 is __syncthreads.
void kvr_host_barrier(const kvr_host_lane* self, unsigned id, unsigned count,
                      unsigned site) noexcept;
// Counts towards barrier `id` without waiting (bar.arrive).
void kvr_host_barrier_arrive(const kvr_host_lane* self, unsigned id, unsigned count,
                             unsigned site) noexcept;
// __syncthreads that returns how many threads came with a non-zero predicate.
unsigned kvr_host_barrier_count(const kvr_host_lane* self, int predicate, unsigned site) noexcept;
// The lanes that wait for the mask at `place` once no other lane of the warp can run.
unsigned kvr_host_active_mask(const kvr_host_lane* self, const void* place) noexcept;
// Lets the block's other lanes run; for loops that poll memory.
void kvr_host_yield(const kvr_host_lane* self) noexcept;
// Ends the launch with this error.
[[noreturn]] void kvr_host_fail(const kvr_host_lane* self, const char* message,
                                unsigned site) noexcept;

// 16 bytes to shared memory, zeros if `global` is null, done by the wait of this lane that covers
// them and not before. A group is what was started since the last commit.
void kvr_host_copy_async(const kvr_host_lane* self, void* shared, const void* global,
                         unsigned site) noexcept;
void kvr_host_commit_copies(const kvr_host_lane* self) noexcept;
void kvr_host_wait_copies(const kvr_host_lane* self, unsigned newest) noexcept;

// Called before each access that may be one to shared memory, and for each atomic operation and
// fence; the compiler inserts the calls (jit/clang/instrument.h). `how`: kvr_host_access_* bits,
// and site << 2.
enum {
  kvr_host_access_write = 1,
  kvr_host_access_concurrent = 2
};  // concurrent: may race its like
void kvr_host_access(const kvr_host_lane* self, const void* address, unsigned long bytes,
                     unsigned how) noexcept;
void kvr_host_order(const kvr_host_lane* self) noexcept;
[[noreturn]] void kvr_host_stack_overflow(const kvr_host_lane* self) noexcept;
}
