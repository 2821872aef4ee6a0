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
  EpochSlot* next = nullptr;
};

// This thread's slot; allocates once a thread.
EpochSlot& ThisThreadEpochSlot();
extern std::atomic<uint64_t> global_epoch;  // starts at 1

class EpochGuard {
 public:
  EpochGuard()
      : slot_(ThisThreadEpochSlot()), outer_(slot_.announced.load(std::memory_order_relaxed)) {
    // seq_cst: the announcement is visible before any snapshot pointer is read.
    if (outer_ == 0) {
      slot_.announced.store(global_epoch.load(std::memory_order_relaxed),
                            std::memory_order_seq_cst);
    }
  }
  ~EpochGuard() {
    if (outer_ == 0) slot_.announced.store(0, std::memory_order_release);
  }
  EpochGuard(const EpochGuard&) = delete;
  EpochGuard& operator=(const EpochGuard&) = delete;

 private:
  EpochSlot& slot_;
  uint64_t outer_;
};

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
