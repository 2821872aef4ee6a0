// SPDX-License-Identifier: Apache-2.0
//
// Hopper's own primitives (sm_90a and later) for blocks whose warps have different jobs, and for
// clusters of blocks that write into each other's shared memory. Barriers are those of hopper.cuh;
// like there, nothing has a host body.
//
//   kvr::CopyAsync16(...), CopyAsync8(...);
//   kvr::ArriveAfterCopies(&barrier);        // arrives when this thread's copies have
//   kvr::SyncWarps<256>(1);                  // a barrier of 8 warps
//   kvr::RaiseRegisters<128>();              // for this warpgroup, from those that lowered theirs
//
//   kvr::ClusterArrive(); kvr::ClusterWait();   // every block has begun
//   kvr::StoreRemote(kvr::RankAddress(&x, rank), kvr::RankAddress(&barrier, rank), value);
#pragma once

#include <kvr/hopper.cuh>
#include <kvr/platform.cuh>

namespace kvr {

// An arrival that happens once all CopyAsync8 and CopyAsync16 of this thread so far are done.
KVR_DEVICE void ArriveAfterCopies(uint64_t* barrier) {
  asm volatile(
      "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(SharedAddress(barrier))
      : "memory");
}

// As CopyAsync16, but 8 bytes, aligned to 8.
KVR_DEVICE void CopyAsync8(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;\n" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(valid ? 8 : 0)
               : "memory");
}

// As CopyAsync16, with a policy of the L2 cache (hopper.cuh).
KVR_DEVICE void CopyAsync16(void* shared, const void* global, bool valid, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;\n" ::"r"(
                   SharedAddress(shared)),
               "l"(global), "r"(valid ? 16 : 0), "l"(policy)
               : "memory");
}

// A barrier of kThreads threads, whole warps, all of which name `id`: 1 to 15.
template <int kThreads>
KVR_DEVICE void SyncWarps(int id) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(id), "n"(kThreads) : "memory");
}

// The same, and whether `yes` holds for any of the threads.
template <int kThreads>
KVR_DEVICE bool AnyOfWarps(int id, bool yes) {
  int any;
  asm volatile(
      "{\n"
      ".reg .pred in, out;\n"
      "setp.ne.b32 in, %3, 0;\n"
      "barrier.cta.red.or.pred.aligned out, %1, %2, in;\n"
      "selp.b32 %0, 1, 0, out;\n"
      "}\n"
      : "=r"(any)
      : "r"(id), "n"(kThreads), "r"(static_cast<int>(yes))
      : "memory");
  return any != 0;
}

// How many registers a thread of this warpgroup may use from here on: a multiple of 8 from 24 to
// 256. All four warps (the first one's index is a multiple of 4) call it. Raising waits until other
// warpgroups have lowered theirs; a block has together what it was launched with.
template <int kRegisters>
KVR_DEVICE void LowerRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}
template <int kRegisters>
KVR_DEVICE void RaiseRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

// A barrier of all threads of a cluster, in two halves; each thread does both. It says that all
// blocks have come this far (so that their shared memory is there), and orders no memory.
KVR_DEVICE void ClusterArrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\n" ::: "memory");
}
KVR_DEVICE void ClusterWait() { asm volatile("barrier.cluster.wait.aligned;\n" ::: "memory"); }

// Where the variable at `shared` in this block lies in block `rank` of the cluster.
KVR_DEVICE uint32_t RankAddress(const void* shared, int rank) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;\n"
               : "=r"(address)
               : "r"(SharedAddress(shared)), "r"(rank));
  return address;
}

// A store into a block of the cluster, its own included. `barrier`, in the same block, counts the
// bytes (ExpectBytes there); who has waited for it sees them.
KVR_DEVICE void StoreRemote(uint32_t address, uint32_t barrier, const uint4& v) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%2, %3, %4, %5}, "
      "[%1];\n" ::"r"(address),
      "r"(barrier), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
      : "memory");
}
KVR_DEVICE void StoreRemote(uint32_t address, uint32_t barrier, const float2& v) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%2, %3}, [%1];\n" ::"r"(
          address),
      "r"(barrier), "f"(v.x), "f"(v.y)
      : "memory");
}
KVR_DEVICE void StoreRemote(uint32_t address, uint32_t barrier, int v) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %2, [%1];\n" ::"r"(address),
      "r"(barrier), "r"(v)
      : "memory");
}

}  // namespace kvr
