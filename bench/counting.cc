// SPDX-License-Identifier: Apache-2.0
#include "bench/counting.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cstddef>
#include <cstdlib>
#include <new>

namespace kvr {
namespace {

constinit thread_local int64_t allocations = 0, locks = 0;

void* Allocate(size_t size, size_t alignment) {
  ++allocations;
  if (size == 0) size = 1;
  void* memory =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(size)
          : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

int64_t AllocationsOfThisThread() { return allocations; }
int64_t LocksOfThisThread() { return locks; }

}  // namespace kvr

// Exported, though the build hides symbols: the C++ library's calls come here too.
#define KVR_EXPORT __attribute__((visibility("default")))

KVR_EXPORT void* operator new(size_t size) { return kvr::Allocate(size, 1); }
KVR_EXPORT void* operator new[](size_t size) { return kvr::Allocate(size, 1); }
KVR_EXPORT void* operator new(size_t size, std::align_val_t a) {
  return kvr::Allocate(size, static_cast<size_t>(a));
}
KVR_EXPORT void* operator new[](size_t size, std::align_val_t a) {
  return kvr::Allocate(size, static_cast<size_t>(a));
}
// The forms that do not throw as well: a sanitizer's own would not be freed by what is below.
KVR_EXPORT void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return kvr::Allocate(size, 1);
}
KVR_EXPORT void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return kvr::Allocate(size, 1);
}
KVR_EXPORT void* operator new(size_t size, std::align_val_t a, const std::nothrow_t&) noexcept {
  return kvr::Allocate(size, static_cast<size_t>(a));
}
KVR_EXPORT void* operator new[](size_t size, std::align_val_t a, const std::nothrow_t&) noexcept {
  return kvr::Allocate(size, static_cast<size_t>(a));
}
KVR_EXPORT void operator delete(void* p) noexcept { std::free(p); }
KVR_EXPORT void operator delete[](void* p) noexcept { std::free(p); }
KVR_EXPORT void operator delete(void* p, size_t) noexcept { std::free(p); }
KVR_EXPORT void operator delete[](void* p, size_t) noexcept { std::free(p); }
KVR_EXPORT void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
KVR_EXPORT void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
KVR_EXPORT void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
KVR_EXPORT void operator delete[](void* p, size_t, std::align_val_t) noexcept { std::free(p); }

// Each counts, then calls the next definition, which is the C library's. It is looked up at the
// first call; the loader's own locks do not pass here.
#if KVR_COUNT_LOCKS
#define KVR_COUNTED_LOCK(function, Lock)                                          \
  extern "C" KVR_EXPORT int function(Lock* lock) noexcept {                       \
    using Real = int (*)(Lock*);                                                  \
    static const Real real = reinterpret_cast<Real>(dlsym(RTLD_NEXT, #function)); \
    ++kvr::locks;                                                                 \
    return real(lock);                                                            \
  }

KVR_COUNTED_LOCK(pthread_mutex_lock, pthread_mutex_t)
KVR_COUNTED_LOCK(pthread_mutex_trylock, pthread_mutex_t)
KVR_COUNTED_LOCK(pthread_rwlock_rdlock, pthread_rwlock_t)
KVR_COUNTED_LOCK(pthread_rwlock_tryrdlock, pthread_rwlock_t)
KVR_COUNTED_LOCK(pthread_rwlock_wrlock, pthread_rwlock_t)
KVR_COUNTED_LOCK(pthread_rwlock_trywrlock, pthread_rwlock_t)
// A spin lock is volatile: its pointer type differs.
extern "C" KVR_EXPORT int pthread_spin_lock(pthread_spinlock_t* lock) noexcept {
  using Real = int (*)(pthread_spinlock_t*);
  static const Real real = reinterpret_cast<Real>(dlsym(RTLD_NEXT, "pthread_spin_lock"));
  ++kvr::locks;
  return real(lock);
}
#endif
