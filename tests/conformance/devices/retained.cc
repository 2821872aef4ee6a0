// SPDX-License-Identifier: Apache-2.0
//
// What a graph retains: until when, and who drops it.
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "core/status.h"
#include "tests/conformance/devices/device_conformance.h"
#include "tests/conformance/devices/device_tools.h"
#include "tests/conformance/devices/sums.h"

namespace kvr {
namespace {

using absl::StatusCode;

// An object that says when, and on which thread, it goes.
class Kept {
 public:
  explicit Kept(std::thread::id* dropped_on) : dropped_on_(dropped_on) {}
  ~Kept() { *dropped_on_ = std::this_thread::get_id(); }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

 private:
  std::thread::id* const dropped_on_;
};

class Retention {
 public:
  explicit Retention(Device* device) : device_(device) {}

  // Into the capture of `stream`; the graph alone keeps it.
  void RetainIn(Stream stream) {
    const auto recording = device_->RecordingOf(stream);
    ASSERT_TRUE(recording.ok() && *recording != nullptr) << recording.status();
    auto kept = std::make_shared<const Kept>(&dropped_on_);
    kept_ = kept;
    ASSERT_EQ((*recording)->Retain(std::move(kept)), absl::OkStatus());
  }

  void ExpectKept() {
    device_->Collect();
    EXPECT_FALSE(kept_.expired());
  }
  // On this thread and not before Collect. A driver may take its time to tell that a graph is gone.
  void ExpectDroppedByCollect() {
    for (int i = 0; i < 1000 && !kept_.expired(); ++i) {
      if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      EXPECT_EQ(dropped_on_, std::thread::id());
      device_->Collect();
    }
    EXPECT_TRUE(kept_.expired());
    EXPECT_EQ(dropped_on_, std::this_thread::get_id());
  }
  std::thread::id dropped_on() const { return dropped_on_; }

 private:
  Device* const device_;
  std::weak_ptr<const Kept> kept_;
  std::thread::id dropped_on_;
};

TEST_P(DeviceConformance, RetainedObjectsGoByCollectAfterTheGraph) {
  Sums sums(device_.get(), GetParam());
  for (const bool keep_graph : {false, true}) {
    Retention retention(device_.get());
    ASSERT_EQ(device_->BeginCapture(sums.stream, CaptureMode::kThreadLocal), absl::OkStatus());
    ASSERT_EQ(sums.AddStep(), absl::OkStatus());
    retention.RetainIn(sums.stream);
    retention.ExpectKept();
    auto graph = device_->EndCapture(sums.stream, keep_graph);
    ASSERT_TRUE(graph.ok()) << graph.status();
    retention.ExpectKept();
    sums.ExpectAdds(**graph, 2, 2);
    retention.ExpectKept();
    graph->reset();
    retention.ExpectDroppedByCollect();
  }
}

TEST_P(DeviceConformance, RetainedObjectsOfACaptureThatFailedGoByCollect) {
  Sums sums(device_.get(), GetParam());
  const OwnStream other(device_.get());
  Retention retention(device_.get());
  ASSERT_EQ(device_->BeginCapture(sums.stream, CaptureMode::kThreadLocal), absl::OkStatus());
  ASSERT_EQ(device_->Wait(other, sums.stream), absl::OkStatus());
  ASSERT_EQ(device_->MemsetAsync(sums.sum.data(), 0, 4, other), absl::OkStatus());
  retention.RetainIn(other);
  EXPECT_FALSE(device_->EndCapture(sums.stream).ok());
  retention.ExpectDroppedByCollect();
}

TEST_P(DeviceConformance, RetainedObjectsAreNotKeptByACopy) {
  Sums sums(device_.get(), GetParam());
  for (const bool updated : {false, true}) {
    Retention retention(device_.get());
    ASSERT_EQ(device_->BeginCapture(sums.stream, CaptureMode::kRelaxed), absl::OkStatus());
    ASSERT_EQ(sums.AddStep(), absl::OkStatus());
    retention.RetainIn(sums.stream);
    const auto copy = (*device_->RecordingOf(sums.stream))->Copy();
    ASSERT_TRUE(copy.ok()) << copy.status();
    auto graph = device_->EndCapture(sums.stream);
    ASSERT_TRUE(graph.ok()) << graph.status();
    if (updated) {
      ASSERT_EQ((*copy)->Update((*graph)->exec()), absl::OkStatus());
      retention.ExpectKept();  // by the executable, still
    }
    graph->reset();
    retention.ExpectDroppedByCollect();
  }
}

// The use of it all: a graph keeps the module that it launches.
TEST_P(DeviceConformance, RetainedModulesAreUnloadedByCollect) {
  Sums sums(device_.get(), GetParam());
  auto own = std::make_shared<Add>(device_.get(), GetParam());
  const std::weak_ptr<Add> watched = own;
  ASSERT_EQ(device_->BeginCapture(sums.stream, CaptureMode::kThreadLocal), absl::OkStatus());
  ASSERT_EQ((*own)(sums.sum.data(), sums.step.data(), sums.sum.data(), Sums::kN, sums.stream),
            absl::OkStatus());
  ASSERT_EQ((*device_->RecordingOf(sums.stream))->Retain(std::move(own)), absl::OkStatus());
  auto graph = device_->EndCapture(sums.stream);
  ASSERT_TRUE(graph.ok()) << graph.status();
  sums.ExpectAdds(**graph, 3, 3);
  graph->reset();
  for (int i = 0; i < 1000 && !watched.expired(); ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    device_->Collect();
  }
  EXPECT_TRUE(watched.expired());
  sums.ExpectUsable();
}

TEST_P(DeviceConformance, RetainedObjectsNobodyCollectsGoWithTheDevice) {
  auto device = GetParam().open();
  ASSERT_TRUE(device.ok()) << device.status();
  Retention retention(device->get());
  {
    Sums sums(device->get(), GetParam());
    ASSERT_EQ((*device)->BeginCapture(sums.stream, CaptureMode::kRelaxed), absl::OkStatus());
    ASSERT_EQ(sums.AddStep(), absl::OkStatus());
    retention.RetainIn(sums.stream);
    EXPECT_TRUE((*device)->EndCapture(sums.stream).ok());
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // as in ExpectDroppedByCollect
  EXPECT_EQ(retention.dropped_on(), std::thread::id());
  device->reset();
  EXPECT_EQ(retention.dropped_on(), std::this_thread::get_id());
}

TEST_P(DeviceConformance, TheEndOfAModuleWaitsForItsLaunches) {
  constexpr int64_t kDelay = 64 << 20;
  Sums sums(device_.get(), GetParam());
  const Memory delay(device_.get(), kDelay);
  for (int round = 1; round <= 3; ++round) {
    auto own = std::make_unique<Add>(device_.get(), GetParam());
    ASSERT_EQ(device_->MemsetAsync(delay.data(), 1, kDelay, sums.stream), absl::OkStatus());
    ASSERT_EQ((*own)(sums.sum.data(), sums.step.data(), sums.sum.data(), Sums::kN, sums.stream),
              absl::OkStatus());
    own.reset();
    sums.ExpectSteps(round);
  }
}

}  // namespace
}  // namespace kvr
