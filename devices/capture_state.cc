// SPDX-License-Identifier: Apache-2.0
#include "devices/capture_state.h"

#include <algorithm>
#include <utility>

#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

uint64_t NextId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

absl::Status Refuse(std::string_view what, std::string_view fix) {
  return Error(absl::StatusCode::kFailedPrecondition, what, fix);
}

}  // namespace

CaptureState::CaptureState(CaptureMode mode, CapturingStream* origin) : id_(NextId()), mode_(mode) {
  members_.push_back({origin, {0}});
  origin->capture.store(this, std::memory_order_release);
}

bool CaptureState::OfThisThread() const {
  return mode_ != CaptureMode::kRelaxed && thread_ == std::this_thread::get_id();
}

absl::Status CaptureState::Valid() const {
  if (invalid_.empty()) return absl::OkStatus();
  return Refuse(StrCat("the capture was invalidated: ", invalid_), "end it and capture again");
}

void CaptureState::Invalidate(std::string_view why) {
  if (invalid_.empty()) invalid_ = why;
}

size_t CaptureState::IndexOf(const CapturingStream& stream) const {
  size_t i = 0;
  while (members_[i].stream != &stream) ++i;
  return i;
}

void CaptureState::Recorded(const CapturingStream& stream) {
  const size_t i = IndexOf(stream);
  ++members_[i].seen[i];
}

void CaptureState::Follow(CapturingStream* stream, const CapturingStream& earlier) {
  if (!stream->capturing()) {
    members_.push_back({stream, {}});
    for (Member& member : members_) member.seen.resize(members_.size());
    stream->capture.store(this, std::memory_order_release);
  }
  const std::vector<int64_t>& before = members_[IndexOf(earlier)].seen;
  std::vector<int64_t>& seen = members_[IndexOf(*stream)].seen;
  for (size_t i = 0; i < seen.size(); ++i) seen[i] = std::max(seen[i], before[i]);
}

void CaptureState::Leave(CapturingStream* stream) {
  members_[IndexOf(*stream)].stream = nullptr;
  stream->capture.store(nullptr, std::memory_order_release);
}

void CaptureState::LetGo() {
  for (Member& member : members_) {
    CapturingStream* const stream = std::exchange(member.stream, nullptr);
    if (stream != nullptr) stream->capture.store(nullptr, std::memory_order_release);
  }
}

absl::Status CaptureState::MayEnd(const CapturingStream& stream) const {
  if (!BeganOn(stream)) {
    return Refuse("EndCapture: this stream has only joined the capture",
                  "end it on the stream that began it");
  }
  if (mode_ != CaptureMode::kRelaxed && thread_ != std::this_thread::get_id()) {
    return Refuse("EndCapture: another thread began this capture",
                  "end it on that thread, or capture in relaxed mode");
  }
  return absl::OkStatus();
}

absl::Status CaptureState::Complete() const {
  KVR_RETURN_IF_ERROR(Valid());
  for (size_t i = 1; i < members_.size(); ++i) {
    if (members_[0].seen[i] == members_[i].seen[i]) continue;
    return Refuse(StrCat("EndCapture: ", members_[i].seen[i] - members_[0].seen[i],
                         " nodes of a stream that joined the capture were not waited for"),
                  "let the first stream wait for every stream that joined");
  }
  return absl::OkStatus();
}

absl::Status CheckSlotWork(const NodeWork& work) {
  if (work.kind == NodeWork::Kind::kKernel &&
      (work.function.handle == nullptr || work.launch == nullptr)) {
    return Error(absl::StatusCode::kInvalidArgument, "a slot's kernel without function or launch",
                 "give both");
  }
  if (work.kind == NodeWork::Kind::kClear &&
      ((work.data == nullptr && work.bytes > 0) || work.bytes < 0 ||
       reinterpret_cast<uintptr_t>(work.data) % kWorkspaceAlign != 0)) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("a slot that clears ", work.bytes, " bytes at ",
                        reinterpret_cast<uintptr_t>(work.data)),
                 StrCat("give memory aligned to ", kWorkspaceAlign, " and 0 bytes or more"));
  }
  return absl::OkStatus();
}

void RetiredObjects::Add(std::vector<std::shared_ptr<const void>> objects) {
  std::lock_guard lock(mutex_);
  for (auto& object : objects) objects_.push_back(std::move(object));
}

void RetiredObjects::Drop() {
  std::vector<std::shared_ptr<const void>> dropped;
  do {
    dropped.clear();  // may retire more, so not under the lock
    std::lock_guard lock(mutex_);
    dropped.swap(objects_);
  } while (!dropped.empty());
}

}  // namespace kvr
