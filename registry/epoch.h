// SPDX-License-Identifier: Apache-2.0
//
// Epoch-based reclamation: readers say when they look at shared snapshots, so that a publisher can
// drop an old one once nobody can still see it. Readers are wait-free: one announcement on entry,
// one on exit, each a store to the thread's own cache line.
//
//   EpochGuard guard;                               // reader
//   const Snapshot* s = current.load(std::memory_order_seq_cst);
//
//   old = current.exchange(next);                   // publisher, under its own mutex
//   limbo.Retire(std::move(old_owner));             // dropped by a later Retire or Collect
//
// One domain per process, shared by every Runtime. A thread's slot is allocated at its first guard
// and returned when the thread ends. Guards nest. Nothing may block for long inside one: it delays
// reclamation (of every Runtime), never correctness.
//
// Threading: EpochGuard from any thread; a Limbo belongs to whoever holds its owner's mutex.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace kvr {

struct alignas(64) EpochSlot {
  std::atomic<uint64_t> announced{0};  // 0: not reading
  std::atomic<bool> taken{false};
  std::atomic<uint64_t> launches{0};  // written by its thread alone
  EpochSlot* next = nullptr;
};

namespace epoch_internal {
extern std::atomic<uint64_t> global;                   // starts at 1
extern constinit thread_local EpochSlot* thread_slot;  // null until the thread's first guard
EpochSlot* RegisterThread();
}  // namespace epoch_internal

class EpochGuard {
 public:
  EpochGuard() {
    slot_ = epoch_internal::thread_slot;
    if (slot_ == nullptr) slot_ = epoch_internal::RegisterThread();
    nested_ = slot_->announced.load(std::memory_order_relaxed) != 0;
    if (nested_) return;
    // Acquire: who reads an epoch also sees what was published before it. seq_cst: the announcement
    // is visible before any snapshot pointer is read.
    slot_->announced.store(epoch_internal::global.load(std::memory_order_acquire),
                           std::memory_order_seq_cst);
  }
  ~EpochGuard() {
    if (!nested_) slot_->announced.store(0, std::memory_order_release);
  }
  EpochGuard(const EpochGuard&) = delete;
  EpochGuard& operator=(const EpochGuard&) = delete;

 private:
  EpochSlot* slot_;
  bool nested_;
};

// What this thread's guard holds is let go of while a pause lives, for what may take long: whoever
// has the guard looks at the current snapshot anew afterwards, and at nothing from before.
class EpochPause {
 public:
  EpochPause() : slot_(epoch_internal::thread_slot) {
    slot_->announced.store(0, std::memory_order_release);
  }
  ~EpochPause() {
    slot_->announced.store(epoch_internal::global.load(std::memory_order_acquire),
                           std::memory_order_seq_cst);
  }
  EpochPause(const EpochPause&) = delete;
  EpochPause& operator=(const EpochPause&) = delete;

 private:
  EpochSlot* const slot_;
};

// Counts a launch of this thread: a plain load and store of its own cache line.
inline void CountLaunch() {
  EpochSlot* slot = epoch_internal::thread_slot;
  if (slot == nullptr) [[unlikely]] {
    slot = epoch_internal::RegisterThread();
  }
  slot->launches.store(slot->launches.load(std::memory_order_relaxed) + 1,
                       std::memory_order_relaxed);
}
// Of all threads of the process, by every Runtime; eager ones and those that are captured.
uint64_t LaunchCount();

class Limbo {
 public:
  // `object` is unreachable for guards that start from now on. Drops what no guard can hold.
  void Retire(std::shared_ptr<const void> object);
  void Collect();
  size_t size() const { return waiting_.size(); }

 private:
  std::vector<std::pair<uint64_t, std::shared_ptr<const void>>> waiting_;
};

}  // namespace kvr
