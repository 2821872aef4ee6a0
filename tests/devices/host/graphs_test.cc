// SPDX-License-Identifier: Apache-2.0
//
// Graphs and modules of the host device while its threads are at work.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/devices/host/host_fixture.h"

namespace kvr {
namespace {

constexpr char kSource[] = R"(
extern "C" __global__ void one(int* p) { *p += 1; }
extern "C" __global__ void thousand(int* p) { *p += 1000; }
extern "C" __global__ void trap() { __trap(); }
)";

const Binary& Kernels() {
  static const Binary binary = CompileForHost(kSource, {"one", "thousand", "trap"}).value();
  return binary;
}

// A kernel with its module, and what a slot needs of it.
class Kernel {
 public:
  explicit Kernel(size_t index)
      : module_(HostDeviceUnderTest().Load(Kernels()).value()),
        function_(module_->Get(Kernels().kernels[index].symbol, 0).value()) {}
  Function function() const { return function_; }
  std::shared_ptr<const void> module() const { return module_; }

 private:
  const std::shared_ptr<Module> module_;
  const Function function_;
};

TEST(HostGraphs, ModulesAreUnloadedWhileOthersLaunchAllTheTime) {
  Device& device = HostDeviceUnderTest();
  const Kernel busy(0);
  std::atomic<bool> stop{false};
  std::thread launches([&] {
    const Stream stream = device.CreateStream().value();
    int value = 0;
    int* p = &value;
    void* params[] = {&p};
    while (!stop) {
      // Never idle, and never far behind.
      for (int i = 0; i < 64; ++i) {
        ASSERT_EQ(device.Launch(busy.function(), {}, {}, params, stream), absl::OkStatus());
      }
      std::this_thread::yield();
    }
    EXPECT_EQ(device.Synchronize(stream), absl::OkStatus());
    device.DestroyStream(stream);
  });
  for (int i = 0; i < 20; ++i) Kernel unloaded(1);
  stop = true;
  launches.join();
}

// The module that a slot no longer uses goes while replays run; each replay adds one amount or the
// other, whole.
TEST(HostGraphs, ModulesAreSwappedUnderReplays) {
  constexpr int kSwaps = 50;
  Device& device = HostDeviceUnderTest();
  const Stream stream = device.CreateStream().value();
  int value = 0;
  int* p = &value;
  void* params[] = {&p};
  const KernelLaunch launch;
  NodeWork work;
  work.kind = NodeWork::Kind::kKernel;
  work.launch = &launch;
  work.params = params;

  auto kernel = std::make_unique<Kernel>(0);
  work.function = kernel->function();
  ASSERT_EQ(device.BeginCapture(stream, CaptureMode::kRelaxed), absl::OkStatus());
  const Node node = (*device.RecordingOf(stream))->Add(work, stream).value();
  const auto graph = device.EndCapture(stream, /*keep_graph=*/true).value();
  int expected = 0;
  for (int swap = 1; swap <= kSwaps; ++swap) {
    for (int i = 0; i < 10; ++i) ASSERT_EQ(graph->Launch(stream), absl::OkStatus());
    expected += 10 * (swap % 2 == 1 ? 1 : 1000);
    auto next = std::make_unique<Kernel>(swap % 2);
    work.function = next->function();
    ASSERT_EQ(device.SetNode(graph->exec(), node, work), absl::OkStatus());
    ASSERT_EQ(graph->Launch(stream), absl::OkStatus());
    expected += swap % 2 == 1 ? 1000 : 1;
    kernel = std::move(next);  // unloads the one before, when its replays are done
  }
  ASSERT_EQ(device.Synchronize(stream), absl::OkStatus());
  EXPECT_EQ(value, expected);
  device.DestroyStream(stream);
}

// By whoever collects, not by the stream's thread, which would wait for itself.
TEST(HostGraphs, TheLastReplayDoesNotUnloadWhatTheGraphRetained) {
  Device& device = HostDeviceUnderTest();
  const Stream stream = device.CreateStream().value();
  std::vector<char> delay(32 << 20);
  int value = 0;
  int* p = &value;
  void* params[] = {&p};
  auto kernel = std::make_unique<Kernel>(0);
  const std::weak_ptr<const void> watched = kernel->module();
  ASSERT_EQ(device.BeginCapture(stream, CaptureMode::kThreadLocal), absl::OkStatus());
  ASSERT_EQ(device.Launch(kernel->function(), {}, {}, params, stream), absl::OkStatus());
  ASSERT_EQ((*device.RecordingOf(stream))->Retain(kernel->module()), absl::OkStatus());
  kernel.reset();
  auto graph = device.EndCapture(stream).value();
  ASSERT_EQ(device.MemsetAsync(delay.data(), 1, 32 << 20, stream), absl::OkStatus());
  ASSERT_EQ(graph->Launch(stream), absl::OkStatus());
  graph.reset();  // the replay is all that is left
  ASSERT_EQ(device.Synchronize(stream), absl::OkStatus());
  EXPECT_EQ(value, 1);
  EXPECT_FALSE(watched.expired());
  device.Collect();
  EXPECT_TRUE(watched.expired());
  device.DestroyStream(stream);
}

TEST(HostGraphs, AStreamThatFailedIsNoObstacleToThoseThatWaitForIt) {
  Device& device = HostDeviceUnderTest();
  const Kernel trap(2);
  const Stream failing = device.CreateStream().value(), waiting = device.CreateStream().value();
  int value = 0;
  ASSERT_EQ(device.Launch(trap.function(), {}, {}, nullptr, failing), absl::OkStatus());
  ASSERT_EQ(device.Wait(waiting, failing), absl::OkStatus());
  ASSERT_EQ(device.MemsetAsync(&value, 1, 1, waiting), absl::OkStatus());
  EXPECT_EQ(device.Synchronize(waiting), absl::OkStatus());
  EXPECT_EQ(value, 1);
  EXPECT_EQ(device.Synchronize(failing).code(), absl::StatusCode::kInternal);
  device.DestroyStream(failing);
  device.DestroyStream(waiting);
}

}  // namespace
}  // namespace kvr
