// SPDX-License-Identifier: Apache-2.0
//
// A handle: bits 0-3 its kind, 4-27 its slot, 28-63 the number of its making. Slots are used again,
// numbers are not.
#include "api/kvr_c_handles.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <mutex>
#include <vector>

namespace kvr::c {
namespace {

constexpr int kChunkBits = 12, kSlotBits = 24;
constexpr size_t kChunk = size_t{1} << kChunkBits, kChunks = size_t{1} << (kSlotBits - kChunkBits);

struct Slot {
  std::atomic<uint64_t> handle{0};  // 0: free
  std::atomic<void*> object{nullptr};
};
using Chunk = std::array<Slot, kChunk>;

// Lives as long as the process: threads may call while it ends.
struct Table {
  std::array<std::atomic<Chunk*>, kChunks> chunks{};
  std::atomic<bool> lost_in_fork{false};

  std::mutex mutex;
  std::vector<size_t> free;
  size_t used = 0;
  uint64_t made = 0;

  Slot* At(size_t slot) const {
    Chunk* chunk = chunks[slot >> kChunkBits].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : &(*chunk)[slot & (kChunk - 1)];
  }
};

Table& TheTable();

// In the child, where only this thread is: atomic stores alone.
void ForgetAll() {
  Table& table = TheTable();
  for (size_t i = 0; i < table.used; ++i) {
    if (table.At(i)->handle.exchange(0, std::memory_order_relaxed) != 0) {
      table.lost_in_fork.store(true, std::memory_order_relaxed);
    }
  }
}

Table& TheTable() {
  static Table& table = *[] {
    auto* made = new Table;
    // Held over the fork, so the child finds it free and the list whole.
    pthread_atfork([] { TheTable().mutex.lock(); }, [] { TheTable().mutex.unlock(); },
                   [] {
                     ForgetAll();
                     TheTable().mutex.unlock();
                   });
    return made;
  }();
  return table;
}

Slot* SlotOf(HandleKind kind, const void* handle) {
  const auto bits = reinterpret_cast<uintptr_t>(handle);
  if ((bits & 15) != static_cast<uintptr_t>(kind)) return nullptr;
  Slot* slot = TheTable().At((bits >> 4) & ((size_t{1} << kSlotBits) - 1));
  if (slot == nullptr || slot->handle.load(std::memory_order_acquire) != bits) return nullptr;
  return slot;
}

}  // namespace

void* MakeHandle(HandleKind kind, void* object) {
  Table& table = TheTable();
  const std::lock_guard<std::mutex> lock(table.mutex);
  size_t slot = table.used;
  if (!table.free.empty()) {
    slot = table.free.back();
    table.free.pop_back();
  } else {
    if (slot == kChunks * kChunk) return nullptr;
    if (table.At(slot) == nullptr) {
      table.chunks[slot >> kChunkBits].store(new Chunk, std::memory_order_release);
    }
    ++table.used;
    if (table.free.capacity() < table.used) table.free.reserve(2 * table.used);  // Take cannot fail
  }
  const uint64_t handle = ++table.made << (4 + kSlotBits) | slot << 4 | static_cast<uint64_t>(kind);
  Slot& at = *table.At(slot);
  at.object.store(object, std::memory_order_relaxed);
  at.handle.store(handle, std::memory_order_release);
  return reinterpret_cast<void*>(handle);
}

void* FindHandle(HandleKind kind, const void* handle) {
  const Slot* slot = SlotOf(kind, handle);
  return slot == nullptr ? nullptr : slot->object.load(std::memory_order_relaxed);
}

void* TakeHandle(HandleKind kind, const void* handle) {
  Table& table = TheTable();
  const std::lock_guard<std::mutex> lock(table.mutex);
  Slot* slot = SlotOf(kind, handle);
  if (slot == nullptr) return nullptr;
  slot->handle.store(0, std::memory_order_release);
  table.free.push_back((reinterpret_cast<uintptr_t>(handle) >> 4) & ((size_t{1} << kSlotBits) - 1));
  return slot->object.load(std::memory_order_relaxed);
}

bool HandlesLostInFork() { return TheTable().lost_in_fork.load(std::memory_order_relaxed); }

}  // namespace kvr::c
