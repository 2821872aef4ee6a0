// SPDX-License-Identifier: Apache-2.0
//
// Captures of several streams, begun and ended by hand: who takes part, who must have been waited
// for, on which thread they end, and what is left of one that went wrong.
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "core/status.h"
#include "tests/conformance/devices/device_conformance.h"
#include "tests/conformance/devices/device_tools.h"
#include "tests/conformance/devices/sums.h"

namespace kvr {
namespace {

using absl::StatusCode;

constexpr int kN = Sums::kN;
constexpr int64_t kBytes = Sums::kBytes;
constexpr CaptureMode kModes[] = {CaptureMode::kGlobal, CaptureMode::kThreadLocal,
                                  CaptureMode::kRelaxed};

bool Captures(Device& device, Stream stream) {
  const auto capturing = device.IsCapturing(stream);
  EXPECT_TRUE(capturing.ok()) << capturing.status();
  return capturing.ok() && *capturing;
}

// 0: it does not capture.
uint64_t RecordingId(Device& device, Stream stream) {
  const auto recording = device.RecordingOf(stream);
  EXPECT_TRUE(recording.ok()) << recording.status();
  return recording.ok() && *recording != nullptr ? (*recording)->id() : 0;
}

absl::Status AddStepOn(Sums& sums, Stream stream) {
  return sums.add(sums.sum.data(), sums.step.data(), sums.sum.data(), kN, stream);
}

// A stream that a capture left behind, however it ended: it works, and captures.
void ExpectFree(Sums& sums, Stream stream) {
  EXPECT_FALSE(Captures(*sums.device, stream));
  EXPECT_EQ(sums.device->Synchronize(stream), absl::OkStatus());
  const auto graph = sums.device->Capture(stream, [&] { return AddStepOn(sums, stream); });
  EXPECT_TRUE(graph.ok()) << graph.status();
}

TEST_P(DeviceConformance, StreamsWaitForEachOther) {
  constexpr int64_t kDelay = 16 << 20;
  Sums sums(device_.get(), GetParam());
  const OwnStream other(device_.get());
  const Memory delay(device_.get(), kDelay);
  for (int round = 0; round < 5; ++round) {
    ASSERT_EQ(device_->MemsetAsync(delay.data(), 1, kDelay, sums.stream), absl::OkStatus());
    ASSERT_EQ(device_->MemsetAsync(sums.sum.data(), 0xff, kBytes, sums.stream), absl::OkStatus());
    ASSERT_EQ(device_->Wait(other, sums.stream), absl::OkStatus());
    ASSERT_EQ(device_->MemsetAsync(sums.sum.data(), 0, kBytes, other), absl::OkStatus());
    ASSERT_EQ(device_->Wait({}, other), absl::OkStatus());
    ASSERT_EQ(AddStepOn(sums, {}), absl::OkStatus());
    ASSERT_EQ(device_->Wait(sums.stream, {}), absl::OkStatus());
    ASSERT_EQ(device_->Wait(sums.stream, sums.stream), absl::OkStatus());
    ASSERT_EQ(sums.AddStep(), absl::OkStatus());
    sums.ExpectSteps(2);
  }
}

TEST_P(DeviceConformance, StreamsJoinACaptureByWaiting) {
  Sums sums(device_.get(), GetParam());
  const OwnStream left(device_.get()), right(device_.get());
  for (const CaptureMode mode : kModes) {
    ASSERT_EQ(device_->BeginCapture(sums.stream, mode), absl::OkStatus());
    ASSERT_EQ(sums.AddStep(), absl::OkStatus());  // lost
    ASSERT_EQ(sums.Clear(), absl::OkStatus());
    ASSERT_EQ(device_->Wait(left, sums.stream), absl::OkStatus());
    ASSERT_EQ(device_->Wait(sums.stream, sums.stream), absl::OkStatus());
    ASSERT_EQ(AddStepOn(sums, left), absl::OkStatus());
    ASSERT_EQ(device_->Wait(right, left), absl::OkStatus());
    const uint64_t id = RecordingId(*device_, sums.stream);
    EXPECT_NE(id, 0u);
    for (const Stream stream : {left.get(), right.get()}) {
      EXPECT_TRUE(Captures(*device_, stream));
      EXPECT_EQ(RecordingId(*device_, stream), id);
      EXPECT_EQ(device_->Synchronize(stream).code(), StatusCode::kFailedPrecondition);
    }
    {
      const auto recording = device_->RecordingOf(left);
      ASSERT_TRUE(recording.ok()) << recording.status();
      KernelLaunch launch = Add::Shape(kN);
      void *sum = sums.sum.data(), *step = sums.step.data();
      int n = kN;
      void* params[] = {&sum, &step, &sum, &n};
      NodeWork work;
      work.kind = NodeWork::Kind::kKernel;
      work.function = sums.add.function();
      work.launch = &launch;
      work.params = params;
      const auto node = (*recording)->Add(work, right);  // of whichever stream that joined
      EXPECT_TRUE(node.ok()) << node.status();
    }
    ASSERT_EQ(device_->Wait(sums.stream, right), absl::OkStatus());
    ASSERT_EQ(sums.AddStep(), absl::OkStatus());
    const auto graph = device_->EndCapture(sums.stream);
    ASSERT_TRUE(graph.ok()) << graph.status();
    for (const Stream stream : {sums.stream.get(), left.get(), right.get()}) {
      EXPECT_FALSE(Captures(*device_, stream));
      EXPECT_EQ(RecordingId(*device_, stream), 0u);
    }
    for (int i = 0; i < 5; ++i) ASSERT_EQ((*graph)->Launch(sums.stream), absl::OkStatus());
    sums.ExpectSteps(3);
    ExpectFree(sums, left);
    ExpectFree(sums, right);
  }
}

TEST_P(DeviceConformance, RecordingsOfTwoCapturesDiffer) {
  Sums sums(device_.get(), GetParam());
  const OwnStream other(device_.get());
  EXPECT_EQ(RecordingId(*device_, sums.stream), 0u);
  EXPECT_EQ(RecordingId(*device_, {}), 0u);
  std::vector<uint64_t> ids;
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(device_->BeginCapture(sums.stream, CaptureMode::kRelaxed), absl::OkStatus());
    ASSERT_EQ(device_->BeginCapture(other, CaptureMode::kRelaxed), absl::OkStatus());
    ids.push_back(RecordingId(*device_, sums.stream));
    ids.push_back(RecordingId(*device_, other));
    const auto recording = device_->RecordingOf(sums.stream);
    ASSERT_TRUE(recording.ok()) << recording.status();
    const absl::Status status = (*recording)->Add({}, other).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    ASSERT_EQ(sums.AddStep(), absl::OkStatus());
    ASSERT_EQ(AddStepOn(sums, other), absl::OkStatus());
    EXPECT_TRUE(device_->EndCapture(sums.stream).ok());
    EXPECT_TRUE(device_->EndCapture(other).ok());
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_NE(ids[i], 0u);
    for (size_t j = 0; j < i; ++j) EXPECT_NE(ids[i], ids[j]);
  }
}

TEST_P(DeviceConformance, ACaptureWhoseStreamsHaveNotComeBackIsAnError) {
  Sums sums(device_.get(), GetParam());
  const OwnStream other(device_.get()), third(device_.get());
  for (const bool came_back_before : {false, true}) {
    ASSERT_EQ(device_->BeginCapture(sums.stream, CaptureMode::kThreadLocal), absl::OkStatus());
    ASSERT_EQ(sums.AddStep(), absl::OkStatus());
    ASSERT_EQ(device_->Wait(other, sums.stream), absl::OkStatus());
    ASSERT_EQ(AddStepOn(sums, other), absl::OkStatus());
    ASSERT_EQ(device_->Wait(third, other), absl::OkStatus());
    if (came_back_before) {
      ASSERT_EQ(device_->Wait(sums.stream, other), absl::OkStatus());
    }
    ASSERT_EQ(AddStepOn(sums, third), absl::OkStatus());
    const auto graph = device_->EndCapture(sums.stream);
    EXPECT_EQ(graph.status().code(), StatusCode::kFailedPrecondition) << graph.status();
    EXPECT_FALSE(Fix(graph.status()).empty());
    for (const Stream stream : {sums.stream.get(), other.get(), third.get()}) {
      ExpectFree(sums, stream);
    }
    sums.ExpectSteps(0);
  }
  sums.ExpectUsable();
}

TEST_P(DeviceConformance, WaitingAcrossTheBorderOfACaptureIsRefusedAndItGoesOn) {
  Sums sums(device_.get(), GetParam());
  const OwnStream other(device_.get()), outside(device_.get());
  ASSERT_EQ(device_->BeginCapture(sums.stream, CaptureMode::kThreadLocal), absl::OkStatus());
  ASSERT_EQ(device_->BeginCapture(other, CaptureMode::kThreadLocal), absl::OkStatus());
  ASSERT_EQ(sums.AddStep(), absl::OkStatus());
  ASSERT_EQ(AddStepOn(sums, other), absl::OkStatus());
  const std::pair<Stream, Stream> refused[] = {{sums.stream, outside},
                                               {sums.stream, other},
                                               {other, sums.stream},
                                               {{}, sums.stream},
                                               {sums.stream, Stream{}}};
  for (const auto& [stream, earlier] : refused) {
    const absl::Status status = device_->Wait(stream, earlier);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    EXPECT_FALSE(Fix(status).empty()) << status;
  }
  EXPECT_FALSE(Captures(*device_, outside));
  EXPECT_FALSE(Captures(*device_, {}));
  ASSERT_EQ(sums.AddStep(), absl::OkStatus());
  const auto graph = device_->EndCapture(sums.stream);
  ASSERT_TRUE(graph.ok()) << graph.status();
  sums.ExpectAdds(**graph, 2);
  const auto second = device_->EndCapture(other);
  ASSERT_TRUE(second.ok()) << second.status();
  sums.ExpectAdds(**second, 1);
}

TEST_P(DeviceConformance, BeginningAndEndingWhereThatCannotBeIsRefused) {
  Sums sums(device_.get(), GetParam());
  const OwnStream other(device_.get());
  for (const CaptureMode mode : kModes) {
    EXPECT_EQ(device_->BeginCapture({}, mode).code(), StatusCode::kFailedPrecondition);
  }
  const absl::Status never = device_->EndCapture(sums.stream).status();
  EXPECT_EQ(never.code(), StatusCode::kFailedPrecondition) << never;
  ASSERT_EQ(device_->BeginCapture(sums.stream, CaptureMode::kRelaxed), absl::OkStatus());
  for (const CaptureMode mode : kModes) {
    const absl::Status status = device_->BeginCapture(sums.stream, mode);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    EXPECT_FALSE(Fix(status).empty());
  }
  ASSERT_EQ(device_->Wait(other, sums.stream), absl::OkStatus());
  EXPECT_EQ(device_->BeginCapture(other, CaptureMode::kRelaxed).code(),
            StatusCode::kFailedPrecondition);
  ASSERT_EQ(AddStepOn(sums, other), absl::OkStatus());
  ASSERT_EQ(device_->Wait(sums.stream, other), absl::OkStatus());
  const auto graph = device_->EndCapture(sums.stream);
  ASSERT_TRUE(graph.ok()) << graph.status();
  sums.ExpectAdds(**graph, 1);
  const absl::Status again = device_->EndCapture(sums.stream).status();
  EXPECT_EQ(again.code(), StatusCode::kFailedPrecondition) << again;
  sums.ExpectUsable();
}

// Whether the capture survives the attempt is the device's own business.
TEST_P(DeviceConformance, ACaptureEndsOnTheStreamThatBeganIt) {
  Sums sums(device_.get(), GetParam());
  const OwnStream other(device_.get());
  ASSERT_EQ(device_->BeginCapture(sums.stream, CaptureMode::kThreadLocal), absl::OkStatus());
  ASSERT_EQ(sums.AddStep(), absl::OkStatus());
  ASSERT_EQ(device_->Wait(other, sums.stream), absl::OkStatus());
  const absl::Status status = device_->EndCapture(other).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  device_->EndCapture(sums.stream).status().IgnoreError();
  ExpectFree(sums, other);
  sums.ExpectUsable();
}

TEST_P(DeviceConformance, OnlyARelaxedCaptureEndsOnAnotherThread) {
  Sums sums(device_.get(), GetParam());
  for (const CaptureMode mode : kModes) {
    ASSERT_EQ(device_->BeginCapture(sums.stream, mode), absl::OkStatus());
    ASSERT_EQ(sums.AddStep(), absl::OkStatus());
    absl::StatusOr<std::unique_ptr<Graph>> graph;
    std::thread([&] { graph = device_->EndCapture(sums.stream); }).join();
    if (mode == CaptureMode::kRelaxed) {
      ASSERT_TRUE(graph.ok()) << graph.status();
      sums.ExpectAdds(**graph, 1);
    } else {
      EXPECT_EQ(graph.status().code(), StatusCode::kFailedPrecondition) << graph.status();
      device_->EndCapture(sums.stream).status().IgnoreError();
    }
    sums.ExpectUsable();
  }
}

TEST_P(DeviceConformance, OtherThreadsMayEnqueueOnAStreamThatCaptures) {
  Sums sums(device_.get(), GetParam());
  for (const CaptureMode mode : kModes) {
    ASSERT_EQ(device_->BeginCapture(sums.stream, mode), absl::OkStatus());
    std::thread([&] { EXPECT_EQ(sums.AddStep(), absl::OkStatus()); }).join();
    ASSERT_EQ(sums.AddStep(), absl::OkStatus());
    const auto graph = device_->EndCapture(sums.stream);
    ASSERT_TRUE(graph.ok()) << graph.status();
    sums.ExpectAdds(**graph, 2);
  }
}

TEST_P(DeviceConformance, WhatOtherThreadsDoLeavesCapturesAlone) {
  Sums sums(device_.get(), GetParam());
  const auto before = sums.Capture([&] { return sums.AddStep(); });
  ASSERT_NE(before, nullptr);
  for (const CaptureMode mode : kModes) {
    ASSERT_EQ(device_->BeginCapture(sums.stream, mode), absl::OkStatus());
    ASSERT_EQ(sums.AddStep(), absl::OkStatus());
    std::thread([&] {
      const OwnStream stream(device_.get());
      const Memory memory(device_.get(), 4096);
      auto loaded = std::make_unique<Add>(device_.get(), GetParam());
      EXPECT_EQ(device_->MemsetAsync(memory.data(), 0, 4096, stream), absl::OkStatus());
      EXPECT_EQ((*loaded)(memory.data(), memory.data(), memory.data(), 16, stream),
                absl::OkStatus());
      EXPECT_EQ(before->Launch(stream), absl::OkStatus());
      const auto event = device_->CreateEvent();
      ASSERT_TRUE(event.ok()) << event.status();
      EXPECT_EQ(device_->Record(*event, stream), absl::OkStatus());
      EXPECT_EQ(device_->Wait({}, stream), absl::OkStatus());
      EXPECT_EQ(device_->Synchronize(stream), absl::OkStatus());
      EXPECT_EQ(device_->Synchronize({}), absl::OkStatus());
      device_->DestroyEvent(*event);
      loaded.reset();
      device_->Collect();
    }).join();
    ASSERT_EQ(sums.AddStep(), absl::OkStatus());
    const auto graph = device_->EndCapture(sums.stream);
    ASSERT_TRUE(graph.ok()) << graph.status();
    sums.ExpectAdds(**graph, 2);
  }
}

TEST_P(DeviceConformance, AnInvalidatedCaptureRecordsNoMoreAndEndsWithAnError) {
  if (GetParam().invalidate == nullptr) GTEST_SKIP() << "nothing invalidates a capture";
  Sums sums(device_.get(), GetParam());
  const OwnStream other(device_.get());
  ASSERT_EQ(device_->BeginCapture(sums.stream, CaptureMode::kThreadLocal), absl::OkStatus());
  ASSERT_EQ(sums.AddStep(), absl::OkStatus());
  ASSERT_EQ(device_->Wait(other, sums.stream), absl::OkStatus());
  const auto recording = device_->RecordingOf(sums.stream);
  ASSERT_TRUE(recording.ok()) << recording.status();
  GetParam().invalidate(*device_, sums.stream);
  EXPECT_TRUE(Captures(*device_, sums.stream));
  const absl::Status refused[] = {
      sums.AddStep(),
      sums.Clear(),
      device_->RecordingOf(sums.stream).status(),
      device_->RecordingOf(other).status(),
      (*recording)->Add({}, sums.stream).status(),
      (*recording)->Copy().status(),
      (*recording)->Retain(std::make_shared<int>(1)),
      device_->EndCapture(sums.stream).status(),
  };
  for (const absl::Status& status : refused) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    EXPECT_FALSE(Fix(status).empty()) << status;
  }
  ExpectFree(sums, other);
  sums.ExpectUsable();
}

TEST_P(DeviceConformance, ARecordingIsOfNoUseAfterItsCapture) {
  Sums sums(device_.get(), GetParam());
  ASSERT_EQ(device_->BeginCapture(sums.stream, CaptureMode::kRelaxed), absl::OkStatus());
  const auto recording = device_->RecordingOf(sums.stream);
  ASSERT_TRUE(recording.ok()) << recording.status();
  ASSERT_EQ(sums.AddStep(), absl::OkStatus());
  const auto graph = device_->EndCapture(sums.stream);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const absl::Status refused[] = {(*recording)->Add({}, sums.stream).status(),
                                  (*recording)->Copy().status(),
                                  (*recording)->Retain(std::make_shared<int>(1))};
  for (const absl::Status& status : refused) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  }
  sums.ExpectAdds(**graph, 1);
}

}  // namespace
}  // namespace kvr
