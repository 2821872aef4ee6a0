// SPDX-License-Identifier: Apache-2.0
#include "registry/epoch.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/thread_end.h"

namespace kvr {
namespace {

// Slots are never freed, only handed on: a publisher may walk the list at any time.
std::atomic<EpochSlot*> slots{nullptr};

EpochSlot* TakeSlot() {
  for (EpochSlot* slot = slots.load(std::memory_order_acquire); slot != nullptr;
       slot = slot->next) {
    bool taken = false;
    if (slot->taken.compare_exchange_strong(taken, true, std::memory_order_acquire)) return slot;
  }
  auto* slot = new EpochSlot;
  slot->taken.store(true, std::memory_order_relaxed);
  slot->next = slots.load(std::memory_order_relaxed);
  while (!slots.compare_exchange_weak(slot->next, slot, std::memory_order_seq_cst)) {
  }
  return slot;
}

uint64_t OldestAnnounced() {
  uint64_t oldest = std::numeric_limits<uint64_t>::max();
  for (EpochSlot* slot = slots.load(std::memory_order_seq_cst); slot != nullptr;
       slot = slot->next) {
    const uint64_t announced = slot->announced.load(std::memory_order_seq_cst);
    if (announced != 0) oldest = std::min(oldest, announced);
  }
  return oldest;
}

}  // namespace

namespace epoch_internal {

std::atomic<uint64_t> global{1};
constinit thread_local EpochSlot* thread_slot = nullptr;

EpochSlot* RegisterThread() {
  thread_slot = TakeSlot();
  AtThreadEnd([](void*) {
    std::exchange(thread_slot, nullptr)->taken.store(false, std::memory_order_release);
  });
  return thread_slot;
}

}  // namespace epoch_internal

uint64_t LaunchCount() {
  uint64_t sum = 0;
  for (const EpochSlot* slot = slots.load(std::memory_order_acquire); slot != nullptr;
       slot = slot->next) {
    sum += slot->launches.load(std::memory_order_relaxed);
  }
  return sum;
}

void Limbo::Retire(std::shared_ptr<const void> object) {
  // A guard that announced this epoch or an earlier one may hold `object`; a later one cannot: it
  // read the epoch after the increment, so it reads the pointer after the exchange before it.
  const uint64_t epoch = epoch_internal::global.fetch_add(1, std::memory_order_seq_cst);
  waiting_.emplace_back(epoch, std::move(object));
  Collect();
}

void Limbo::Collect() {
  if (waiting_.empty()) return;
  const uint64_t oldest = OldestAnnounced();
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(),
                                [&](const auto& item) { return item.first < oldest; }),
                 waiting_.end());
}

}  // namespace kvr
