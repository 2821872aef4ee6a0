// SPDX-License-Identifier: Apache-2.0
//
// The part of a device that captures and replays in software: all that core/graph.h asks, over four
// functions that the device writes. A graph is the list of recorded work in the order of recording,
// which respects every edge, so it is replayed in that order on the stream that launches it.
//
//   class HostDevice : public RecordingDevice<Device, HostWork> { ... };
//
// `Base` is Device or an extension of it; `Work` is one recorded piece of work, cheap to copy, that
// can be run again. Executables share their list with the replays in flight and get another one
// when they are edited.
//
// Threading: one lock per device over all its captures and executables, taken only while a stream
// captures and by edits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/capture.h"
#include "core/device.h"
#include "core/status.h"
#include "core/strings.h"
#include "devices/capture_state.h"

namespace kvr {

template <class Base, class Work>
class RecordingDevice : public Base {
 public:
  struct Entry {
    Work work;
    LaunchAttributes attributes;
    Dim3 cluster;
  };
  struct Sequence {
    uint64_t recording = 0;
    std::vector<Entry> entries;
    std::shared_ptr<RetainedObjects> retained;
  };

  absl::Status BeginCapture(Stream stream, CaptureMode mode) final {
    CapturingStream& on = CapturingOf(stream);
    if (on.default_stream) return DefaultStreamCannotCapture();
    std::lock_guard lock(mutex_);
    if (on.capturing()) return RefusedWhileCapturing("BeginCapture");
    auto capture = std::make_shared<Capture>(mode, &on);
    capture->entries.reserve(256);  // so that recording a usual graph allocates nothing
    capture->retained = std::make_shared<RetainedObjects>(retired_);
    captures_.emplace(capture.get(), capture);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Graph>> EndCapture(Stream stream, bool keep_graph) final {
    CapturingStream& on = CapturingOf(stream);
    std::lock_guard lock(mutex_);
    CaptureState* const state = on.capture;
    if (state == nullptr) return NotCapturing("EndCapture");
    KVR_RETURN_IF_ERROR(state->MayEnd(on));
    const std::shared_ptr<Capture> capture = captures_.extract(state).mapped();
    const absl::Status complete = capture->Complete();
    capture->LetGo();
    KVR_RETURN_IF_ERROR(complete);
    if (capture->entries.empty()) return CapturedNothing();
    auto sequence = std::make_shared<Sequence>();
    sequence->recording = capture->id();
    sequence->entries = std::move(capture->entries);
    sequence->retained = std::move(capture->retained);
    auto exec = std::make_unique<Exec>(this, std::move(sequence), keep_graph);
    execs_.insert(exec.get());
    return exec;
  }

  absl::Status Wait(Stream stream, Stream earlier) final {
    CapturingStream &on = CapturingOf(stream), &other = CapturingOf(earlier);
    if (&on == &other) return absl::OkStatus();
    {
      std::lock_guard lock(mutex_);
      if (on.capturing() || other.capturing()) return Join(&on, other);
    }
    return WaitNow(stream, earlier);
  }

  absl::StatusOr<std::unique_ptr<Recording>> RecordingOf(Stream stream) final {
    CapturingStream& on = CapturingOf(stream);
    std::lock_guard lock(mutex_);
    CaptureState* const state = on.capture;
    if (state == nullptr) return nullptr;
    KVR_RETURN_IF_ERROR(state->Valid());
    return std::make_unique<OpenRecording>(this, captures_.at(state));
  }

  absl::Status SetNode(GraphExec exec, Node node, const NodeWork& work) final {
    std::lock_guard lock(mutex_);
    KVR_ASSIGN_OR_RETURN(Exec* const of, Find(exec));
    if (!of->keeps_graph) {
      return Error(absl::StatusCode::kFailedPrecondition,
                   "SetNode: the graph of this executable was not kept, and the node went with it",
                   "end the capture with keep_graph, or edit a GraphCopy");
    }
    auto edited = std::make_shared<Sequence>(*of->sequence);
    KVR_ASSIGN_OR_RETURN(Entry* const entry, Slot("SetNode", edited.get(), node));
    const Dim3 cluster = entry->cluster;
    KVR_RETURN_IF_ERROR(Give("SetNode", entry, work));
    if (entry->cluster != cluster) {
      return Error(absl::StatusCode::kUnimplemented,
                   "SetNode: other cluster dimensions than the node's", "edit a GraphCopy");
    }
    of->sequence = std::move(edited);
    return absl::OkStatus();
  }

  void Collect() final { retired_->Drop(); }

 protected:
  virtual CapturingStream& CapturingOf(Stream stream) = 0;
  // Of work that is whole; checks a launch as Launch does, and copies what it points at.
  virtual absl::StatusOr<Work> WorkOf(const NodeWork& work) = 0;
  virtual absl::Status Replay(Stream stream, std::shared_ptr<const Sequence> sequence) = 0;
  virtual absl::Status WaitNow(Stream stream, Stream earlier) = 0;

  // Work that is not a slot, of a stream that captures.
  absl::Status RecordWork(CapturingStream& stream, Work work) {
    std::lock_guard lock(mutex_);
    CaptureState* const state = stream.capture;
    if (state == nullptr) return NotCapturing("a launch");  // ended on another thread meanwhile
    KVR_RETURN_IF_ERROR(state->Valid());
    state->Recorded(stream);
    captures_.at(state)->entries.push_back({std::move(work), {}, {}});
    return absl::OkStatus();
  }

  // Before a stream is destroyed.
  void LeaveCapture(CapturingStream* stream) {
    std::lock_guard lock(mutex_);
    CaptureState* const state = stream->capture;
    if (state == nullptr) return;
    if (state->BeganOn(*stream)) {
      captures_.at(state)->LetGo();
      captures_.erase(state);
    } else {
      state->Leave(stream);
    }
  }

  // As a call that cannot be recorded does to the capture of `stream`.
  void InvalidateCapture(CapturingStream& stream, std::string_view why) {
    std::lock_guard lock(mutex_);
    if (CaptureState* const state = stream.capture; state != nullptr) state->Invalidate(why);
  }

  // For the device's destructor, while it can still run what dropped objects do.
  void DropAll() {
    std::unordered_map<CaptureState*, std::shared_ptr<Capture>> open;
    {
      std::lock_guard lock(mutex_);
      for (const auto& [state, capture] : captures_) state->LetGo();
      open.swap(captures_);
    }
    open.clear();
    Collect();
  }

  // In a mode that forbids this thread what cannot be recorded.
  bool ThisThreadCaptures() const {
    std::lock_guard lock(mutex_);
    for (const auto& [state, capture] : captures_) {
      if (state->OfThisThread()) return true;
    }
    return false;
  }

  absl::StatusOr<std::shared_ptr<const Sequence>> SequenceOf(GraphExec exec) const {
    std::lock_guard lock(mutex_);
    KVR_ASSIGN_OR_RETURN(Exec* const of, Find(exec));
    return std::shared_ptr<const Sequence>(of->sequence);
  }

 private:
  struct Capture : CaptureState {
    using CaptureState::CaptureState;
    std::vector<Entry> entries;
    std::shared_ptr<RetainedObjects> retained;
  };

  struct Exec : Graph {
    Exec(RecordingDevice* on, std::shared_ptr<const Sequence> recorded, bool keep_graph)
        : device(on), sequence(std::move(recorded)), keeps_graph(keep_graph) {}
    ~Exec() override {
      std::lock_guard lock(device->mutex_);
      device->execs_.erase(this);
    }
    absl::Status Launch(Stream stream) override {
      if (device->CapturingOf(stream).capturing()) return RefusedWhileCapturing("Graph::Launch");
      return device->Replay(stream, sequence);
    }
    GraphExec exec() const override { return {const_cast<Exec*>(this)}; }

    RecordingDevice* const device;
    std::shared_ptr<const Sequence> sequence;
    const bool keeps_graph;
  };

  class Copy : public GraphCopy {
   public:
    Copy(RecordingDevice* device, Sequence sequence)
        : device_(device), sequence_(std::move(sequence)) {}
    absl::Status Set(Node node, const NodeWork& work) override {
      KVR_ASSIGN_OR_RETURN(Entry* const entry, device_->Slot("GraphCopy::Set", &sequence_, node));
      return device_->Give("GraphCopy::Set", entry, work);
    }
    absl::Status Update(GraphExec exec) override {
      std::lock_guard lock(device_->mutex_);
      KVR_ASSIGN_OR_RETURN(Exec* const of, device_->Find(exec));
      const Sequence& now = *of->sequence;
      if (now.recording != sequence_.recording || now.entries.size() != sequence_.entries.size()) {
        return Error(absl::StatusCode::kFailedPrecondition,
                     "GraphCopy::Update: the executable has other nodes than this copy",
                     "copy the recording last, and update executables of that graph alone");
      }
      auto next = std::make_shared<Sequence>(sequence_);
      next->retained = now.retained;
      of->sequence = std::move(next);
      return absl::OkStatus();
    }

   private:
    RecordingDevice* const device_;
    Sequence sequence_;  // retains nothing
  };

  class OpenRecording : public Recording {
   public:
    OpenRecording(RecordingDevice* device, const std::shared_ptr<Capture>& capture)
        : device_(device), capture_(capture), id_(capture->id()) {}
    uint64_t id() const override { return id_; }

    absl::StatusOr<Node> Add(const NodeWork& work, Stream stream) override {
      const CapturingStream& on = device_->CapturingOf(stream);
      std::lock_guard lock(device_->mutex_);
      KVR_ASSIGN_OR_RETURN(Capture* const capture, Open());
      if (on.capture != capture) {
        return Error(absl::StatusCode::kFailedPrecondition,
                     "Recording::Add: the stream does not belong to this capture",
                     "let it wait for a stream that does");
      }
      KVR_RETURN_IF_ERROR(CheckSlotWork(work));
      KVR_ASSIGN_OR_RETURN(Work own, device_->WorkOf(work));
      const Node node = NodeOf(id_, capture->entries.size());
      capture->Recorded(on);
      capture->entries.push_back({std::move(own), work.attributes, ClusterOf(work)});
      return node;
    }
    absl::StatusOr<std::unique_ptr<GraphCopy>> Copy() override {
      std::lock_guard lock(device_->mutex_);
      KVR_ASSIGN_OR_RETURN(Capture* const capture, Open());
      return std::make_unique<RecordingDevice::Copy>(device_,
                                                     Sequence{id_, capture->entries, nullptr});
    }
    absl::Status Retain(std::shared_ptr<const void> object) override {
      std::lock_guard lock(device_->mutex_);
      KVR_ASSIGN_OR_RETURN(Capture* const capture, Open());
      capture->retained->Add(std::move(object));
      return absl::OkStatus();
    }

   private:
    absl::StatusOr<Capture*> Open() const {
      const std::shared_ptr<Capture> capture = capture_.lock();
      if (capture == nullptr) return NotCapturing("Recording", "the capture has ended");
      KVR_RETURN_IF_ERROR(capture->Valid());
      return capture.get();  // stays: the device's lock is held
    }

    RecordingDevice* const device_;
    const std::weak_ptr<Capture> capture_;
    const uint64_t id_;
  };

  static absl::Status NotCapturing(std::string_view call,
                                   std::string_view why = "the stream does not capture") {
    return Error(absl::StatusCode::kFailedPrecondition, StrCat(call, ": ", why),
                 "call it between BeginCapture and EndCapture");
  }

  // A node is its recording and its place there, so that one of another graph is found out.
  static constexpr int kPlaceBits = 24;
  static Node NodeOf(uint64_t recording, size_t place) {
    return {reinterpret_cast<void*>(recording << kPlaceBits | place)};
  }
  static absl::StatusOr<Entry*> Slot(std::string_view call, Sequence* sequence, Node node) {
    const auto number = reinterpret_cast<uintptr_t>(node.handle);
    const size_t place = number & ((uintptr_t{1} << kPlaceBits) - 1);
    if (number >> kPlaceBits == sequence->recording && place < sequence->entries.size()) {
      return &sequence->entries[place];
    }
    return Error(absl::StatusCode::kInvalidArgument, StrCat(call, ": the node is of another graph"),
                 "use the nodes that Recording::Add gave for this one");
  }

  static Dim3 ClusterOf(const NodeWork& work) {
    const bool kernel = work.kind == NodeWork::Kind::kKernel;
    return kernel ? work.launch->cluster : Dim3{};
  }
  absl::Status Give(std::string_view call, Entry* entry, const NodeWork& work) {
    const bool kernel = work.kind == NodeWork::Kind::kKernel;
    if (kernel && work.attributes != entry->attributes) {
      return Error(absl::StatusCode::kFailedPrecondition,
                   StrCat(call, ": other launch attributes than the node's"),
                   "record the graph again");
    }
    KVR_RETURN_IF_ERROR(CheckSlotWork(work));
    KVR_ASSIGN_OR_RETURN(entry->work, WorkOf(work));
    if (kernel) entry->cluster = work.launch->cluster;
    return absl::OkStatus();
  }

  // Whatever is refused leaves the captures as they are.
  static absl::Status Join(CapturingStream* stream, const CapturingStream& earlier) {
    CaptureState* const on = stream->capture;
    CaptureState* const other = earlier.capture;
    if (other == nullptr || (on != nullptr && on != other)) {
      return Error(absl::StatusCode::kFailedPrecondition,
                   other == nullptr ? "Wait: the stream captures and the earlier one does not"
                                    : "Wait: the streams record into two captures",
                   "wait before the capture, or let the earlier stream join it first");
    }
    if (stream->default_stream) return DefaultStreamCannotCapture();
    KVR_RETURN_IF_ERROR(other->Valid());
    other->Follow(stream, earlier);
    return absl::OkStatus();
  }

  absl::StatusOr<Exec*> Find(GraphExec exec) const {
    auto* const of = static_cast<Exec*>(exec.handle);
    if (execs_.count(of) != 0) return of;
    return Error(absl::StatusCode::kInvalidArgument, "no such executable on this device",
                 "edit one that is alive");
  }

  mutable std::mutex mutex_;
  std::unordered_map<CaptureState*, std::shared_ptr<Capture>> captures_;
  std::unordered_set<const Exec*> execs_;
  const std::shared_ptr<RetiredObjects> retired_ = std::make_shared<RetiredObjects>();
};

}  // namespace kvr
