// SPDX-License-Identifier: Apache-2.0
//
// Launch functions and tensor maps: what every device owes them.
#include <array>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>

#include "core/status.h"
#include "tests/conformance/devices/device_conformance.h"
#include "tests/conformance/devices/device_tools.h"

namespace kvr {
namespace {

class Function : public LaunchFunction {
 public:
  explicit Function(std::function<absl::Status(const FunctionLaunch&)> work)
      : work_(std::move(work)) {}
  absl::Status Launch(const FunctionLaunch& launch) const override { return work_(launch); }

 private:
  const std::function<absl::Status(const FunctionLaunch&)> work_;
};

// What Call is given may be gone, or something else, once it has returned.
TEST_P(DeviceConformance, CallsFunctionsWithWhatWasPassedThen) {
  const OwnStream stream(device_.get());
  const Memory owned(device_.get(), 64);
  void* const memory = owned.data();
  int calls = 0;
  const Function function([&](const FunctionLaunch& launch) {
    ++calls;
    EXPECT_EQ(launch.axes.size(), 2u);
    EXPECT_EQ(launch.axes[1], 7);
    EXPECT_EQ(launch.tensors[0].data, memory);
    EXPECT_EQ(launch.tensors[0].shape[0], 16);
    EXPECT_EQ(*static_cast<const float*>(launch.tensors[1].data), 2.5f);
    EXPECT_EQ(launch.tensors[2].data, nullptr);
    EXPECT_EQ(launch.workspace[0], memory);
    EXPECT_EQ(launch.workspace_bytes[0], 64);
    return absl::OkStatus();
  });
  {
    std::array<int64_t, 2> axes = {3, 7};
    float alpha = 2.5f;
    std::array<TensorView, 3> tensors;
    tensors[0].data = memory;
    tensors[0].rank = 1;
    tensors[0].shape[0] = 16;
    tensors[1].data = &alpha;
    std::array<void*, 1> workspace = {memory};
    std::array<int64_t, 1> bytes = {64};
    FunctionLaunch launch;
    launch.axes = axes;
    launch.tensors = tensors;
    launch.workspace = workspace;
    launch.workspace_bytes = bytes;
    EXPECT_EQ(device_->Call(function, launch, stream), absl::OkStatus());
    axes.fill(-1);
    alpha = -1;
    tensors.fill(TensorView{});
    workspace.fill(nullptr);
    bytes.fill(-1);
  }
  EXPECT_EQ(device_->Synchronize(stream), absl::OkStatus());
  EXPECT_EQ(calls, GetParam().runs_kernels ? 1 : 0);
}

TEST_P(DeviceConformance, ReportsWhatACallSays) {
  if (!GetParam().runs_kernels) GTEST_SKIP() << "does not call";
  const OwnStream stream(device_.get());
  const Function function([](const FunctionLaunch&) {
    return Error(absl::StatusCode::kFailedPrecondition, "no such shape", "choose another");
  });
  absl::Status status = device_->Call(function, {}, stream);
  if (status.ok()) status = device_->Synchronize(stream);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(What(status), "no such shape");
  EXPECT_EQ(device_->Synchronize(stream), absl::OkStatus()) << "the stream goes on";
}

TEST_P(DeviceConformance, RunsForeignWorkOnTheCallingThread) {
  std::thread::id ran;
  EXPECT_EQ(device_->WithContext([&] {
    ran = std::this_thread::get_id();
    return absl::OkStatus();
  }),
            absl::OkStatus());
  EXPECT_EQ(ran, std::this_thread::get_id());
  EXPECT_EQ(device_->WithContext([] { return absl::CancelledError("no"); }).code(),
            absl::StatusCode::kCancelled);
}

TEST_P(DeviceConformance, EncodesTensorMapsOrSaysThatItCannot) {
  const Memory memory(device_.get(), 64 * 128);
  TensorMapLaunch map;
  map.dtype = DType::kBF16;
  map.rank = 2;
  map.shape = {64, 64};
  map.box = {8, 64};
  TensorMap encoded;
  const absl::Status status = device_->EncodeTensorMap(map, memory.data(), &encoded);
  if (!status.ok()) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_FALSE(Fix(status).empty());
  }
}

}  // namespace
}  // namespace kvr
