// SPDX-License-Identifier: Apache-2.0
//
// The rules of a capture on devices that record in software, which are those of CUDA: which streams
// take part, what one must have waited for, and on which thread it ends.
//
// Threading: externally synchronised, except CapturingStream::capturing and RetiredObjects.
// All errors of a capture are kFailedPrecondition.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/graph.h"

namespace kvr {

class CaptureState;

// A part of every stream. The default stream never captures.
struct CapturingStream {
  explicit CapturingStream(bool is_default = false) : default_stream(is_default) {}
  bool capturing() const { return capture.load(std::memory_order_acquire) != nullptr; }

  const bool default_stream;
  std::atomic<CaptureState*> capture{nullptr};  // set by CaptureState
};

class CaptureState {
 public:
  CaptureState(CaptureMode mode, CapturingStream* origin);
  CaptureState(const CaptureState&) = delete;
  CaptureState& operator=(const CaptureState&) = delete;

  uint64_t id() const { return id_; }

  // A relaxed capture has no thread.
  bool OfThisThread() const;
  // OK, or that, and why, the capture was invalidated.
  absl::Status Valid() const;
  void Invalidate(std::string_view why);

  // `stream` has one more node.
  void Recorded(const CapturingStream& stream);
  // What `stream` records from now on follows what `earlier` has recorded; `stream` joins.
  void Follow(CapturingStream* stream, const CapturingStream& earlier);
  bool BeganOn(const CapturingStream& stream) const { return members_[0].stream == &stream; }
  // One that only joined is to be destroyed.
  void Leave(CapturingStream* stream);
  // The capture is over: its streams go on without it.
  void LetGo();

  // May `stream` end this capture, here? If not, the capture goes on.
  absl::Status MayEnd(const CapturingStream& stream) const;
  // OK if the capture is valid, and the first stream has waited for all that the others recorded.
  absl::Status Complete() const;

 private:
  struct Member {
    CapturingStream* stream;    // null: left
    std::vector<int64_t> seen;  // nodes of each member, by index, that come before its next
  };
  size_t IndexOf(const CapturingStream& stream) const;

  const uint64_t id_;
  const CaptureMode mode_;
  const std::thread::id thread_ = std::this_thread::get_id();
  std::vector<Member> members_;  // the first began the capture
  std::string invalid_;          // why; empty: valid
};

// Is there all that work of its kind needs? kInvalidArgument.
absl::Status CheckSlotWork(const NodeWork& work);

// What graphs that are gone have retained, until somebody has the time to drop it.
class RetiredObjects {
 public:
  void Add(std::vector<std::shared_ptr<const void>> objects);
  void Drop();  // also what is added meanwhile

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<const void>> objects_;
};

// What one graph retains; shared by its executables and their replays.
class RetainedObjects {
 public:
  explicit RetainedObjects(std::shared_ptr<RetiredObjects> retired)
      : retired_(std::move(retired)) {}
  ~RetainedObjects() { retired_->Add(std::move(objects_)); }
  RetainedObjects(const RetainedObjects&) = delete;
  RetainedObjects& operator=(const RetainedObjects&) = delete;
  void Add(std::shared_ptr<const void> object) { objects_.push_back(std::move(object)); }

 private:
  const std::shared_ptr<RetiredObjects> retired_;
  std::vector<std::shared_ptr<const void>> objects_;
};

}  // namespace kvr
