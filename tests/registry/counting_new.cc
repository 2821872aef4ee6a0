// SPDX-License-Identifier: Apache-2.0
#include "tests/registry/counting_new.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace kvr {
namespace {
thread_local int64_t allocations = 0;

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

}  // namespace kvr

void* operator new(size_t size) { return kvr::Allocate(size, 1); }
void* operator new[](size_t size) { return kvr::Allocate(size, 1); }
void* operator new(size_t size, std::align_val_t a) {
  return kvr::Allocate(size, static_cast<size_t>(a));
}
void* operator new[](size_t size, std::align_val_t a) {
  return kvr::Allocate(size, static_cast<size_t>(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { std::free(p); }
