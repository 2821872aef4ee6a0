// SPDX-License-Identifier: Apache-2.0
//
// What kernel code on the host device calls: the ABI between JIT-compiled kernels and the host
// runtime, and the host bodies of the portable warp primitives. Never include it: on host every
// unit starts with it (KVR_HOST is defined), on a GPU it does not exist.
//
// A block's threads are fibers of one OS thread, 32 to a warp; a fiber runs until it waits. A
// *collective* is the one way in which lanes of a warp meet: every lane named in the mask calls
// it with a pointer to its own arguments; the last to arrive runs `fn` once over all of them
// (lanes[i] is lane i's pointer, null when lane i is not in the mask), and all continue. `fn` must
// not wait. Example, the sum over a warp of one float each:
//
//   struct Args { float in, out; } args{x, 0.f};
//   kvr_host_warp_collective(
//       [](void* const* lanes) {
//         float sum = 0;
//         for (int i = 0; i < 32; ++i) sum += static_cast<Args*>(lanes[i])->in;
//         for (int i = 0; i < 32; ++i) static_cast<Args*>(lanes[i])->out = sum;
//       },
//       &args, "warp_sum", kvr_host_site());
//
// Errors: a collective that a lane of its mask cannot reach any more (it has returned or waits
// elsewhere, in a collective with another mask or fn for instance), and a barrier that part of the
// block cannot reach, end the launch with an error that names block, thread, `name` and the line.
// So do two accesses to shared memory, one of them a write, that no barrier, collective of their
// warp, atomic operation or fence lies between, and what the CPU refuses: an address without
// memory, an integer division by zero, and a misaligned vector where its instruction minds (a load
// that became part of an arithmetic instruction does not). These three come without the line.
#pragma once

#define KVR_HOST 1

#include "kvr_host_abi.h"

// Before a function that runs inside a collective: what it touches is its lanes' arguments.
#define KVR_HOST_COLLECTIVE __attribute__((disable_sanitizer_instrumentation))

// A collective of the whole warp.
inline void kvr_host_warp_collective(kvr_host_fn fn, void* args, const char* name, unsigned site) {
  kvr_host_collective(kvr_host_self(), 0xffffffffu, fn, args, name, site);
}

// ---- Matrix primitives, fragment layouts as in PTX --------------------------------------------
//
// mma.sync.aligned.m16n8k16.row.col, A and B bf16 or f16 (two to a register, lower column in the
// lower half), C and D f32: d = a·b + c. Products and sums are fused fp32 multiply-adds in order
// of k. d may be c.
// ldmatrix.sync.aligned.m8n8.{x1,x2,x4}[.trans].shared.b16: `row` of lanes 8j..8j+7 is the 16-byte
// row of matrix j; the pointer of the other lanes is not read.

inline void kvr_host_mma_m16n8k16_bf16(float d[4], const unsigned a[4], const unsigned b[2],
                                       const float c[4]);
inline void kvr_host_mma_m16n8k16_f16(float d[4], const unsigned a[4], const unsigned b[2],
                                      const float c[4]);
inline void kvr_host_ldmatrix_x4(unsigned r[4], const void* row);
inline void kvr_host_ldmatrix_x2(unsigned r[2], const void* row);
inline void kvr_host_ldmatrix_x1(unsigned r[1], const void* row);
inline void kvr_host_ldmatrix_x4_trans(unsigned r[4], const void* row);
inline void kvr_host_ldmatrix_x2_trans(unsigned r[2], const void* row);
inline void kvr_host_ldmatrix_x1_trans(unsigned r[1], const void* row);

// ---- The rest of CUDA C++, and how the host device reaches kernels -----------------------------

#include "kvr_host_atomic.h"
#include "kvr_host_bits.h"
#include "kvr_host_cuda.h"
#include "kvr_host_entry.h"
#include "kvr_host_math.h"
#include "kvr_host_matrix.h"
#include "kvr_host_vector.h"
#include "kvr_host_warp.h"
