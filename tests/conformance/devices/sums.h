// SPDX-License-Identifier: Apache-2.0
//
// A stream with memory whose content tells how often a kernel has run.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "core/device.h"
#include "tests/conformance/devices/device_conformance.h"
#include "tests/conformance/devices/device_tools.h"

namespace kvr {

// Two arrays of kN floats on a stream, `step` one to kN, and the kernel that adds it to `sum`.
struct Sums {
  static constexpr int kN = 1000;
  static constexpr int64_t kBytes = kN * 4;

  Sums(Device* on, const Subject& subject)
      : device(on),
        runs_kernels(subject.runs_kernels),
        stream(on),
        sum(on, kBytes),
        step(on, kBytes),
        add(on, subject) {
    EXPECT_EQ(on->CopyToDevice(step.data(), Ramp(kN, 1).data(), kBytes, stream), absl::OkStatus());
    EXPECT_EQ(Clear(), absl::OkStatus());
    EXPECT_EQ(on->Synchronize(stream), absl::OkStatus());
  }

  absl::Status Clear() { return device->MemsetAsync(sum.data(), 0, kBytes, stream); }
  absl::Status AddStep() { return add(sum.data(), step.data(), sum.data(), kN, stream); }

  std::unique_ptr<Graph> Capture(absl::FunctionRef<absl::Status()> enqueue) {
    auto graph = device->Capture(stream, enqueue);
    EXPECT_TRUE(graph.ok()) << graph.status();
    return graph.ok() ? *std::move(graph) : nullptr;
  }

  // Is every sum this many steps? Where kernels do not run it stays at nothing.
  void ExpectSteps(int steps) {
    const auto got = Download<float>(device, sum.data(), kN, stream);
    const float times = runs_kernels ? static_cast<float>(steps) : 0;
    for (int i = 0; i < kN; ++i) ASSERT_EQ(got[i], times * static_cast<float>(i + 1)) << i;
  }

  // From nothing, so many replays add so many steps.
  void ExpectAdds(Graph& graph, int steps, int times = 1) {
    ASSERT_EQ(Clear(), absl::OkStatus());
    for (int i = 0; i < times; ++i) ASSERT_EQ(graph.Launch(stream), absl::OkStatus());
    ExpectSteps(steps);
  }

  // Of `bytes` that were ones, a replay clears the first `cleared`.
  void ExpectClears(Graph& graph, const Memory& memory, int64_t bytes, int64_t cleared) {
    ASSERT_EQ(device->MemsetAsync(memory.data(), 0xff, bytes, stream), absl::OkStatus());
    ASSERT_EQ(graph.Launch(stream), absl::OkStatus());
    const auto got = Download<uint8_t>(device, memory.data(), bytes, stream);
    for (int64_t i = 0; i < bytes; ++i) ASSERT_EQ(got[i], i < cleared ? 0 : 0xff) << i;
  }

  // After a capture that came to nothing: the stream works, and captures.
  void ExpectUsable() {
    const auto capturing = device->IsCapturing(stream);
    ASSERT_TRUE(capturing.ok()) << capturing.status();
    EXPECT_FALSE(*capturing);
    ASSERT_EQ(device->Synchronize(stream), absl::OkStatus());
    ASSERT_EQ(Clear(), absl::OkStatus());
    ASSERT_EQ(AddStep(), absl::OkStatus());
    ExpectSteps(1);
    const auto graph = Capture([&] { return AddStep(); });
    ASSERT_NE(graph, nullptr);
    ASSERT_EQ(graph->Launch(stream), absl::OkStatus());
    ExpectSteps(2);
  }

  Device* const device;
  const bool runs_kernels;
  OwnStream stream;
  Memory sum, step;
  Add add;
};

}  // namespace kvr
