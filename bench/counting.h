// SPDX-License-Identifier: Apache-2.0
//
// What a launch may not do, counted on the thread that does it: allocations (operator new) and lock
// acquisitions (pthread mutexes, tried ones too, read-write locks and spin locks, as std::mutex and
// std::shared_mutex take them). counting.cc defines these functions for the whole executable, the
// C++ library's own calls included: link it into one benchmark or test, not into a library.
//
// Under a sanitizer, which defines the lock functions itself, locks are not counted and
// kLocksAreCounted is false. absl::Mutex takes no pthread lock; the launch path has none.
#pragma once

#include <cstdint>

namespace kvr {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define KVR_COUNT_LOCKS 0
#elif defined(__has_feature)
#define KVR_COUNT_LOCKS !(__has_feature(thread_sanitizer) || __has_feature(address_sanitizer))
#else
#define KVR_COUNT_LOCKS 1
#endif
inline constexpr bool kLocksAreCounted = KVR_COUNT_LOCKS;

int64_t AllocationsOfThisThread();
int64_t LocksOfThisThread();

}  // namespace kvr
