// SPDX-License-Identifier: Apache-2.0
//
// A GPU whose streams capture, for tests of graphs and their slots.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/devices/cuda/gpu.h"
#include "tests/devices/cuda/ptx.h"

namespace kvr {

inline constexpr CaptureMode kModes[] = {CaptureMode::kGlobal, CaptureMode::kThreadLocal,
                                         CaptureMode::kRelaxed};

// A kernel with its arguments, as work for a slot.
class Kernel {
 public:
  Kernel(Function function, uint32_t grid, void* out, std::vector<uint32_t> values = {})
      : out_(out), values_(std::move(values)) {
    launch_.grid.x = grid;
    params_.push_back(&out_);
    for (uint32_t& value : values_) params_.push_back(&value);
    work_.kind = NodeWork::Kind::kKernel;
    work_.function = function;
    work_.launch = &launch_;
    work_.params = params_.data();
  }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  Kernel& Cluster(uint32_t x) {
    launch_.cluster.x = x;
    return *this;
  }
  Kernel& With(LaunchAttributes attributes) {
    work_.attributes = attributes;
    return *this;
  }
  operator const NodeWork&() const { return work_; }  // NOLINT(google-explicit-constructor)

 private:
  void* out_;
  std::vector<uint32_t> values_;
  std::vector<void*> params_;
  KernelLaunch launch_;
  NodeWork work_;
};

inline NodeWork Clear(void* data, int64_t bytes) {
  NodeWork work;
  work.kind = NodeWork::Kind::kClear;
  work.data = data;
  work.bytes = bytes;
  return work;
}

class GpuGraph : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (device_ == nullptr) return;
    if (device_->info().max_cluster_size == 1) GTEST_SKIP() << "before Hopper";
    marks_ = Load(kMarkPtx);
    sums_ = Load(kSumOfPtx);
    clusters_ = Load(kClusterPtx);
    ASSERT_TRUE(marks_ != nullptr && sums_ != nullptr && clusters_ != nullptr);
    mark_ = Get(*marks_, "mark");
    spin_ = Get(*marks_, "spin");
    increment_ = Get(*marks_, "increment");
    sum_of_ = Get(*sums_, "sum_of");
    cluster_size_ = Get(*clusters_, "cluster_size");
    Fill(0xff);
  }
  void TearDown() override {
    marks_.reset();
    sums_.reset();
    clusters_.reset();
    Gpu::TearDown();
  }

  static Function Get(Module& module, std::string_view name) {
    auto function = module.Get(name, 0);
    EXPECT_TRUE(function.ok()) << function.status();
    return function.ok() ? *function : Function{};
  }
  void Fill(uint8_t value) {
    ASSERT_EQ(device_->MemsetAsync(out_, value, kOutBytes, stream_), absl::OkStatus());
    ASSERT_EQ(device_->Synchronize(stream_), absl::OkStatus());
  }

  std::unique_ptr<Recording> Begin(CaptureMode mode = CaptureMode::kThreadLocal) {
    EXPECT_EQ(device_->BeginCapture(stream_, mode), absl::OkStatus());
    auto recording = device_->RecordingOf(stream_);
    EXPECT_TRUE(recording.ok()) << recording.status();
    return recording.ok() ? *std::move(recording) : nullptr;
  }
  Node Add(Recording& recording, const NodeWork& work) {
    const auto node = recording.Add(work, stream_);
    EXPECT_TRUE(node.ok()) << node.status();
    return node.ok() ? *node : Node{};
  }
  std::unique_ptr<Graph> End(bool keep_graph = false) {
    auto graph = device_->EndCapture(stream_, keep_graph);
    EXPECT_TRUE(graph.ok()) << graph.status();
    return graph.ok() ? *std::move(graph) : nullptr;
  }
  std::unique_ptr<GraphCopy> Copy(Recording& recording) {
    auto copy = recording.Copy();
    EXPECT_TRUE(copy.ok()) << copy.status();
    return copy.ok() ? *std::move(copy) : nullptr;
  }
  // `count` words of the memory after a replay over ones.
  std::vector<uint32_t> Replay(Graph& graph, int count) {
    Fill(0xff);
    EXPECT_EQ(graph.Launch(stream_), absl::OkStatus());
    return Out(count);
  }
  // The driver fires user objects on a thread of its own, some time after.
  bool Dropped(const std::weak_ptr<const void>& object) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!object.expired() && std::chrono::steady_clock::now() < end) {
      device_->Collect();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return object.expired();
  }

  // One graph of one slot, given each kind of work by `set`.
  void TryEachWork(Graph& graph, const std::function<absl::Status(const NodeWork&)>& set) {
    constexpr uint32_t kOnes = 0xffffffff;
    EXPECT_EQ(Replay(graph, 3), (std::vector<uint32_t>{7, 7, kOnes}));
    EXPECT_EQ(set(Kernel(sum_of_, 3, out_, {100, 20, 3})), absl::OkStatus());
    EXPECT_EQ(Replay(graph, 4), (std::vector<uint32_t>{123, 123, 123, kOnes}));
    EXPECT_EQ(set(NodeWork{}), absl::OkStatus());
    EXPECT_THAT(Replay(graph, 4), testing::Each(kOnes));
    EXPECT_EQ(set(Clear(out_, 4 * 4 + 3)), absl::OkStatus());
    EXPECT_EQ(Replay(graph, 6), (std::vector<uint32_t>{0, 0, 0, 0, 0xff000000, kOnes}));
    EXPECT_EQ(set(Kernel(mark_, 1, out_, {9})), absl::OkStatus());
    EXPECT_EQ(Replay(graph, 2), (std::vector<uint32_t>{9, kOnes}));
  }

  std::unique_ptr<Module> marks_, sums_, clusters_;
  Function mark_, spin_, increment_, sum_of_, cluster_size_;
};

}  // namespace kvr
