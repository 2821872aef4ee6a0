// SPDX-License-Identifier: Apache-2.0
//
// Hopper's own primitives (sm_90a and later): bulk copies that complete on an mbarrier,
// programmatic dependent launch, and ordered accesses between blocks. None has a host body: a
// kernel that includes this leaves "host" out of its targets and says why.
//
//   kvr::InitBarrier(&barrier, 1);   // one thread, once
//   kvr::FenceBarrierInit();         // that thread; then a barrier of the threads that use it
//   kvr::ExpectBytes(&barrier, n);   // one arrival, and n bytes to wait for
//   kvr::TensorCopy(to, &map, z, y, x, &barrier, kvr::ReadOncePolicy());
//   kvr::WaitBarrier(&barrier, parity);   // every reader; parity of the phase: 0, 1, 0, ...
//
// Memory that ordinary stores wrote, or ordinary loads read, must pass FenceAsyncProxy in the
// threads that did so, and then a barrier, before a copy reads or overwrites it: a copy goes through
// a proxy of its own, and a barrier alone orders ordinary accesses only.
#pragma once

#include <kvr/platform.cuh>

namespace kvr {

KVR_DEVICE uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

KVR_DEVICE void InitBarrier(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(SharedAddress(barrier)),
               "r"(arrivals)
               : "memory");
}

KVR_DEVICE void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

KVR_DEVICE void FenceAsyncProxy() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }

// Arrives once, and makes the phase wait for `bytes` more.
KVR_DEVICE void ExpectBytes(uint64_t* barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(SharedAddress(barrier)),
      "r"(bytes)
      : "memory");
}

// Arrives `count` times; what the thread wrote before is seen by those who wait.
KVR_DEVICE void Arrive(uint64_t* barrier, int count = 1) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;\n" ::"r"(SharedAddress(barrier)),
               "r"(count)
               : "memory");
}

// Returns when the phase of this parity is complete; what its copies, and those who
// arrived, wrote may be read.
KVR_DEVICE void WaitBarrier(uint64_t* barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(SharedAddress(barrier)),
      "r"(parity)
      : "memory");
}

// Whether that phase is complete, without waiting for it.
KVR_DEVICE bool TestBarrier(uint64_t* barrier, int parity) {
  int done;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.b32 %0, 1, 0, done;\n"
      "}\n"
      : "=r"(done)
      : "r"(SharedAddress(barrier)), "r"(parity)
      : "memory");
  return done != 0;
}

// L2 policy of data that nobody reads a second time.
KVR_DEVICE uint64_t ReadOncePolicy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;\n" : "=l"(policy));
  return policy;
}

// A box of a tensor of rank 3 from (z, y, x), elements, x innermost, through its map: a kernel
// parameter, `const __grid_constant__ CUtensorMap`. What lies beyond the tensor arrives as zeros,
// and `barrier` counts those bytes, too. `shared` is aligned to 128.
KVR_DEVICE void TensorCopy(void* shared, const void* map, int z, int y, int x, uint64_t* barrier,
                           uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;\n" ::"r"(SharedAddress(shared)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(SharedAddress(barrier)), "l"(policy)
      : "memory");
}

// Brings a map into the cache that copies read it from.
KVR_DEVICE void PrefetchTensorMap(const void* map) {
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(map) : "memory");
}

// Brings the 128 bytes around an address into L2, some time.
KVR_DEVICE void PrefetchL2(const void* global) {
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(global));
}

// Programmatic dependent launch. The next kernel of the stream, if its launch allows it, may begin
// once every block of this one has called this or ended ...
KVR_DEVICE void LaunchDependents() { asm volatile("griddepcontrol.launch_dependents;\n" :::); }

// ... and here it waits until this one has ended and what it wrote can be read.
KVR_DEVICE void WaitForPrimary() { asm volatile("griddepcontrol.wait;\n" ::: "memory"); }

// Between blocks: what a thread wrote before AddRelease is seen by one whose LoadAcquire returns
// that sum or a later one.
KVR_DEVICE void AddRelease(int* address, int value) {
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;\n" ::"l"(address), "r"(value) : "memory");
}

KVR_DEVICE int LoadAcquire(const int* address) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];\n" : "=r"(value) : "l"(address) : "memory");
  return value;
}

// 16 bytes, aligned to 16, as one: a load gives all of a store, or nothing of it. They order
// nothing else.
KVR_DEVICE void StoreRelaxed(void* address, const uint4& v) {
  asm volatile(
      "{\n"
      ".reg .b64 low, high;\n"
      ".reg .b128 all;\n"
      "mov.b64 low, {%1, %2};\n"
      "mov.b64 high, {%3, %4};\n"
      "mov.b128 all, {low, high};\n"
      "st.relaxed.gpu.global.b128 [%0], all;\n"
      "}\n" ::"l"(address),
      "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
      : "memory");
}

KVR_DEVICE uint4 LoadRelaxed(const void* address) {
  uint4 v;
  asm volatile(
      "{\n"
      ".reg .b64 low, high;\n"
      ".reg .b128 all;\n"
      "ld.relaxed.gpu.global.b128 all, [%4];\n"
      "mov.b128 {low, high}, all;\n"
      "mov.b64 {%0, %1}, low;\n"
      "mov.b64 {%2, %3}, high;\n"
      "}\n"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(address)
      : "memory");
  return v;
}

// Within a block, in shared memory, likewise: what was done before the store is seen, and reads
// before it are over, for one whose load returns its value.
KVR_DEVICE void SharedStoreRelease(int* shared, int value) {
  asm volatile("st.release.cta.shared.s32 [%0], %1;\n" ::"r"(SharedAddress(shared)), "r"(value)
               : "memory");
}

KVR_DEVICE int SharedLoadAcquire(const int* shared) {
  int value;
  asm volatile("ld.acquire.cta.shared.s32 %0, [%1];\n"
               : "=r"(value)
               : "r"(SharedAddress(shared))
               : "memory");
  return value;
}

}  // namespace kvr
