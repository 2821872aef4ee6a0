// SPDX-License-Identifier: Apache-2.0
//
// Graphs: what is recorded, when it runs, and what a stream is like after a capture, good or bad.
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
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

TEST_P(DeviceConformance, CapturesRunNothingAndReplayAsOftenAsTheyAreLaunched) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  const auto graph = sums.Capture([&] {
    const auto capturing = device_->IsCapturing(sums.stream);
    EXPECT_TRUE(capturing.ok() && *capturing);
    return sums.AddStep();
  });
  ASSERT_NE(graph, nullptr);
  const auto capturing = device_->IsCapturing(sums.stream);
  EXPECT_TRUE(capturing.ok() && !*capturing);
  sums.ExpectSteps(0);
  int launched = 0;
  for (const int times : {1, 2, 50}) {
    for (int i = 0; i < times; ++i) ASSERT_EQ(graph->Launch(sums.stream), absl::OkStatus());
    launched += times;
    sums.ExpectSteps(launched);
  }
}

TEST_P(DeviceConformance, CapturesRecordFillsToo) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  const auto graph = sums.Capture(
      [&] { return device_->MemsetAsync(sums.sum.data(), 7, kBytes / 2, sums.stream); });
  ASSERT_NE(graph, nullptr);
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(sums.Clear(), absl::OkStatus());
    auto got = Download<uint8_t>(device_.get(), sums.sum.data(), kBytes, sums.stream);
    EXPECT_EQ(got[0], 0);
    ASSERT_EQ(graph->Launch(sums.stream), absl::OkStatus());
    got = Download<uint8_t>(device_.get(), sums.sum.data(), kBytes, sums.stream);
    EXPECT_EQ(got[0], 7);
    EXPECT_EQ(got[kBytes / 2 - 1], 7);
    EXPECT_EQ(got[kBytes / 2], 0);
  }
}

TEST_P(DeviceConformance, CapturesKeepTheOrderWithinAndAgainstTheStream) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  const auto graph = sums.Capture([&] {
    KVR_RETURN_IF_ERROR(sums.AddStep());  // lost if what follows it comes first
    KVR_RETURN_IF_ERROR(sums.Clear());
    KVR_RETURN_IF_ERROR(sums.AddStep());
    return sums.AddStep();
  });
  ASSERT_NE(graph, nullptr);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(device_->MemsetAsync(sums.sum.data(), 0xff, kBytes, sums.stream), absl::OkStatus());
    ASSERT_EQ(graph->Launch(sums.stream), absl::OkStatus());
    ASSERT_EQ(sums.AddStep(), absl::OkStatus());
    ASSERT_EQ(sums.AddStep(), absl::OkStatus());
  }
  sums.ExpectSteps(4);
  ASSERT_EQ(sums.AddStep(), absl::OkStatus());
  ASSERT_EQ(graph->Launch(sums.stream), absl::OkStatus());
  sums.ExpectSteps(2);
}

TEST_P(DeviceConformance, CapturesKeepThePointersAndScalarsOfTheRecording) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  const Memory other(device_.get(), kBytes);
  ASSERT_EQ(device_->MemsetAsync(other.data(), 0, kBytes, sums.stream), absl::OkStatus());
  float* sum = reinterpret_cast<float*>(sums.sum.data());
  int count = kN;
  const auto enqueue = [&] { return sums.add(sum, sums.step.data(), sum, count, sums.stream); };
  const auto first = sums.Capture(enqueue);
  sum = reinterpret_cast<float*>(other.data());
  count = 1;
  const auto second = sums.Capture(enqueue);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  sum = nullptr;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(first->Launch(sums.stream), absl::OkStatus());
  ASSERT_EQ(second->Launch(sums.stream), absl::OkStatus());
  sums.ExpectSteps(3);
  const auto got = Download<float>(device_.get(), other.data(), 2, sums.stream);
  EXPECT_EQ(got[0], sums.runs_kernels ? 1 : 0);
  EXPECT_EQ(got[1], 0);
}

// Fills tensor 0 with the byte that the scalar says: as a function of the host does, or as one that
// enqueues on a stream.
class FillFunction : public LaunchFunction {
 public:
  explicit FillFunction(Device* device) : device_(device) {}
  absl::Status Launch(const FunctionLaunch& launch) const override {
    void* const data = launch.tensors[0].data;
    const uint8_t value = *static_cast<const uint8_t*>(launch.tensors[1].data);
    if (launch.stream != nullptr) {
      return device_->MemsetAsync(data, value, kBytes, Stream{launch.stream});
    }
    std::memset(data, value, kBytes);
    return absl::OkStatus();
  }

 private:
  Device* const device_;
};

TEST_P(DeviceConformance, CapturesHoldFillsLaunchesAndCallsTogether) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  const FillFunction function(device_.get());
  const auto graph = sums.Capture([&] {
    uint8_t zero = 0;
    std::array<TensorView, 2> tensors;
    tensors[0].data = sums.sum.data();
    tensors[0].rank = 1;
    tensors[0].shape[0] = kBytes;
    tensors[0].dtype = tensors[1].dtype = DType::kU8;
    tensors[1].data = &zero;
    FunctionLaunch launch;
    launch.tensors = tensors;
    KVR_RETURN_IF_ERROR(device_->MemsetAsync(sums.sum.data(), 0xff, kBytes, sums.stream));
    KVR_RETURN_IF_ERROR(device_->Call(function, launch, sums.stream));
    zero = 0xff;  // the values of the recording, here too
    return sums.AddStep();
  });
  ASSERT_NE(graph, nullptr);
  sums.ExpectSteps(0);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(graph->Launch(sums.stream), absl::OkStatus());
    if (sums.runs_kernels) sums.ExpectSteps(1);
  }
}

TEST_P(DeviceConformance, CapturesRunOnWhicheverStreamTheyAreLaunched) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  const OwnStream other(device_.get());
  const auto graph = sums.Capture([&] { return sums.AddStep(); });
  ASSERT_NE(graph, nullptr);
  sums.ExpectSteps(0);
  for (const Stream stream : {Stream{}, other.get(), sums.stream.get()}) {
    ASSERT_EQ(graph->Launch(stream), absl::OkStatus());
    ASSERT_EQ(device_->Synchronize(stream), absl::OkStatus());
  }
  sums.ExpectSteps(3);
}

TEST_P(DeviceConformance, CapturesEndWithTheErrorOfWhatWasToBeRecorded) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  const absl::Status no = Error(StatusCode::kNotFound, "no such shape", "choose another");
  const absl::Status status = device_
                                  ->Capture(sums.stream,
                                            [&] {
                                              EXPECT_EQ(sums.AddStep(), absl::OkStatus());
                                              return no;
                                            })
                                  .status();
  EXPECT_EQ(status, no);
  sums.ExpectSteps(0);
  sums.ExpectUsable();
}

TEST_P(DeviceConformance, CapturesEndAfterALaunchThatIsRefused) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  KernelLaunch impossible = Add::Shape(kN);
  impossible.block.x = 4096;
  const absl::Status status =
      device_
          ->Capture(sums.stream,
                    [&] {
                      KVR_RETURN_IF_ERROR(sums.AddStep());
                      return sums.add.Launch(impossible, sums.sum.data(), sums.step.data(),
                                             sums.sum.data(), kN, sums.stream);
                    })
          .status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
  sums.ExpectUsable();
}

TEST_P(DeviceConformance, CapturesOfNothingAreErrors) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  const absl::Status status =
      device_
          ->Capture(sums.stream,
                    [&] {
                      // Of no bytes, and of another stream: neither belongs to the graph.
                      EXPECT_EQ(device_->MemsetAsync(sums.sum.data(), 1, 0, sums.stream),
                                absl::OkStatus());
                      return device_->MemsetAsync(sums.sum.data(), 0, kBytes, Stream{});
                    })
          .status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(What(status).find("nothing was enqueued"), std::string_view::npos) << status;
  EXPECT_EQ(device_->Synchronize({}), absl::OkStatus());
  sums.ExpectUsable();
}

TEST_P(DeviceConformance, CapturesOfTheDefaultStreamAreRefused) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  bool ran = false;
  const auto graph = device_->Capture({}, [&] {
    ran = true;
    return absl::OkStatus();
  });
  EXPECT_EQ(graph.status().code(), StatusCode::kFailedPrecondition) << graph.status();
  EXPECT_FALSE(ran);
  sums.ExpectUsable();
}

TEST_P(DeviceConformance, CapturesRefuseWhatIsNotLegalAndGoOn) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  const auto before = sums.Capture([&] { return sums.AddStep(); });
  ASSERT_NE(before, nullptr);
  const auto event = device_->CreateEvent();
  ASSERT_TRUE(event.ok()) << event.status();
  float value = 5;
  bool nested_ran = false;
  const auto nested = [&] {
    nested_ran = true;
    return sums.AddStep();
  };
  const auto graph = sums.Capture([&] {
    KVR_RETURN_IF_ERROR(sums.AddStep());
    const absl::Status refused[] = {
        before->Launch(sums.stream),
        device_->Capture(sums.stream, nested).status(),
        device_->CopyToDevice(sums.sum.data(), &value, 4, sums.stream),
        device_->CopyToHost(&value, sums.sum.data(), 4, sums.stream),
        device_->Record(*event, sums.stream),
        device_->Synchronize(sums.stream),
    };
    for (const absl::Status& status : refused) {
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
      EXPECT_FALSE(Fix(status).empty()) << status;
    }
    return sums.AddStep();
  });
  ASSERT_NE(graph, nullptr);
  EXPECT_FALSE(nested_ran);
  EXPECT_EQ(value, 5);
  sums.ExpectSteps(0);
  ASSERT_EQ(graph->Launch(sums.stream), absl::OkStatus());
  ASSERT_EQ(before->Launch(sums.stream), absl::OkStatus());
  sums.ExpectSteps(3);
  device_->DestroyEvent(*event);
}

TEST_P(DeviceConformance, CapturesOfTwoStreamsAreApart) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  const OwnStream other(device_.get());
  std::unique_ptr<Graph> inner;
  const auto outer = sums.Capture([&] {
    KVR_RETURN_IF_ERROR(sums.AddStep());
    auto graph = device_->Capture(other, [&] {
      KVR_RETURN_IF_ERROR(sums.AddStep());  // on the first stream
      return sums.add(sums.sum.data(), sums.step.data(), sums.sum.data(), 1, other);
    });
    EXPECT_TRUE(graph.ok()) << graph.status();
    if (graph.ok()) inner = *std::move(graph);
    return absl::OkStatus();
  });
  ASSERT_TRUE(outer != nullptr && inner != nullptr);
  ASSERT_EQ(outer->Launch(sums.stream), absl::OkStatus());
  sums.ExpectSteps(2);
  ASSERT_EQ(inner->Launch(sums.stream), absl::OkStatus());
  const auto got = Download<float>(device_.get(), sums.sum.data(), 2, sums.stream);
  EXPECT_EQ(got[0], sums.runs_kernels ? 3 : 0);
  EXPECT_EQ(got[1], sums.runs_kernels ? 4 : 0);
}

TEST_P(DeviceConformance, CapturesOfManyThreadsAreApart) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const OwnStream stream(device_.get());
      const Memory sum(device_.get(), kBytes);
      ASSERT_EQ(device_->MemsetAsync(sum.data(), 0, kBytes, stream), absl::OkStatus());
      for (int round = 1; round <= 10; ++round) {
        const auto graph = device_->Capture(
            stream, [&] { return sums.add(sum.data(), sums.step.data(), sum.data(), kN, stream); });
        ASSERT_TRUE(graph.ok()) << graph.status();
        ASSERT_EQ((*graph)->Launch(stream), absl::OkStatus());
        const auto got = Download<float>(device_.get(), sum.data(), kN, stream);
        EXPECT_EQ(got[kN - 1], sums.runs_kernels ? static_cast<float>(round * kN) : 0);
      }
    });
  }
  ASSERT_EQ(device_->Synchronize(sums.stream), absl::OkStatus());
  for (std::thread& thread : threads) thread.join();
}

TEST_P(DeviceConformance, CapturesReportTheFaultOfAKernelAsItsLaunchDoes) {
  Sums sums(device_.get(), GetParam());
  ASSERT_NE(sums.add.function().handle, nullptr);
  if (!sums.runs_kernels) GTEST_SKIP() << "kernels do not run";
  if (GetParam().faults_stick) GTEST_SKIP() << "a fault is the end of this process's device";
  const auto trap = sums.add.module()->Get("trap", 0);
  ASSERT_TRUE(trap.ok()) << trap.status();
  const auto graph = sums.Capture([&] {
    KVR_RETURN_IF_ERROR(device_->Launch(*trap, KernelLaunch{}, {}, nullptr, sums.stream));
    return sums.AddStep();
  });
  ASSERT_NE(graph, nullptr);
  ASSERT_EQ(graph->Launch(sums.stream), absl::OkStatus());
  ASSERT_EQ(graph->Launch(sums.stream), absl::OkStatus());
  EXPECT_EQ(device_->Synchronize(sums.stream).code(), StatusCode::kInternal);
  sums.ExpectSteps(0);
  sums.ExpectUsable();
}

}  // namespace
}  // namespace kvr
