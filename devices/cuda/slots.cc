// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/slots.h"

#include <utility>

namespace kvr::cuda {

bool Slots::Open(uint64_t capture) {
  const std::lock_guard lock(mutex_);
  return captures_.try_emplace(capture).second;
}

void Slots::Add(uint64_t capture, GraphNode node, const Slot& slot) {
  const std::lock_guard lock(mutex_);
  captures_[capture].nodes.push_back(node);
  slots_.insert_or_assign(node, Owned{capture, slot});
}

void Slots::AddObject(uint64_t capture, RetainedObject object) {
  const std::lock_guard lock(mutex_);
  captures_[capture].objects.push_back(std::move(object));
}

bool Slots::Find(GraphNode node, Slot* slot) const {
  const std::lock_guard lock(mutex_);
  const auto found = slots_.find(node);
  if (found == slots_.end()) return false;
  *slot = found->second.slot;
  return true;
}

std::unordered_map<GraphNode, Slot> Slots::OfCapture(uint64_t capture) const {
  const std::lock_guard lock(mutex_);
  std::unordered_map<GraphNode, Slot> slots;
  const auto found = captures_.find(capture);
  if (found == captures_.end()) return slots;
  for (const GraphNode node : found->second.nodes) slots.emplace(node, slots_.at(node).slot);
  return slots;
}

std::vector<RetainedObject> Slots::ObjectsOf(uint64_t capture) const {
  const std::lock_guard lock(mutex_);
  const auto found = captures_.find(capture);
  return found == captures_.end() ? std::vector<RetainedObject>() : found->second.objects;
}

void Slots::Forget(uint64_t capture) {
  const std::lock_guard lock(mutex_);
  const auto found = captures_.find(capture);
  if (found == captures_.end()) return;
  for (const GraphNode node : found->second.nodes) {
    const auto slot = slots_.find(node);
    if (slot != slots_.end() && slot->second.capture == capture) slots_.erase(slot);
  }
  captures_.erase(found);
}

}  // namespace kvr::cuda
