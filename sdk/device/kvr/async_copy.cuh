// SPDX-License-Identifier: Apache-2.0
//
// Asynchronous copies from global to shared memory, 16 bytes each, past the L1 cache.
//
//   kvr::CopyAsync16(&stage[row][piece], source, index >= 0);   // any number of them
//   kvr::CommitCopies();                                        // close the group
//   kvr::WaitForCopies<1>();                                    // all groups but the newest 1 ...
//   __syncthreads();                                            // ... and those of other threads
//
// A group belongs to the thread that committed it, so a barrier must follow the wait before
// another thread's copies are read. An empty group is legal and complete, which keeps the count of
// groups the same in every iteration of a pipeline.
//
// On the host a copy is done by the wait that covers it, not before: a missing wait shows.
#pragma once

#include <kvr/platform.cuh>

namespace kvr {

// Both addresses aligned to 16. With `valid` false nothing is read and the destination becomes
// zeros; `global` may then be any address, null included.
KVR_DEVICE void CopyAsync16(void* shared, const void* global, bool valid) {
#if defined(KVR_HOST)
  kvr_host_copy_async(kvr_host_self(), shared, valid ? global : nullptr, kvr_host_site());
#else
  const uint32_t destination = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const uint32_t source_bytes = valid ? 16 : 0;  // the rest of the 16 is filled with zeros
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(destination), "l"(global),
               "r"(source_bytes)
               : "memory");
#endif
}

KVR_DEVICE void CopyAsync16(void* shared, const void* global) { CopyAsync16(shared, global, true); }

// Closes the group of this thread's copies since its last commit.
KVR_DEVICE void CommitCopies() {
#if defined(KVR_HOST)
  kvr_host_commit_copies(kvr_host_self());
#else
  asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}

// Waits until at most the `kNewest` youngest groups of this thread are still in flight.
template <int kNewest>
KVR_DEVICE void WaitForCopies() {
#if defined(KVR_HOST)
  kvr_host_wait_copies(kvr_host_self(), kNewest);
#else
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kNewest) : "memory");
#endif
}

}  // namespace kvr
