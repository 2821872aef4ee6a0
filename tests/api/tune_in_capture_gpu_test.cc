// SPDX-License-Identifier: Apache-2.0
//
// Tuning asked for on a thread whose stream captures, on a GPU: it runs in another process, and
// touches neither the capture nor what serves.
#include <gtest/gtest.h>

#include <vector>

#include "api/runtime.h"
#include "api/tune.h"

namespace kvr {
namespace {

constexpr char kOp[] = "null";
constexpr int64_t kElements = 4096, kBytes = kElements * 4;

TEST(TuneInCapture, LeavesTheCaptureValidAndWhatServesServing) {
  auto runtime = Runtime::Open({.device = "cuda"});
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  Device& device = (*runtime)->device();
  ASSERT_TRUE((*runtime)->Load(kOp, {{{"n", kElements}}})->ready());
  const Stream stream = *device.CreateStream();
  ASSERT_TRUE((*runtime)->PrepareStream(stream).ok());
  void* const x = *device.Allocate(kBytes);
  void* const y = *device.Allocate(kBytes);
  std::vector<float> in(kElements), out(kElements);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 89);
  ASSERT_TRUE(device.CopyToDevice(x, in.data(), kBytes, stream).ok());
  const TensorView views[2] = {{x, DType::kF32, 1, {kElements}}, {y, DType::kF32, 1, {kElements}}};
  const Fingerprint serving = (*runtime)->generation()->digest();

  for (const CaptureMode mode :
       {CaptureMode::kGlobal, CaptureMode::kThreadLocal, CaptureMode::kRelaxed}) {
    ASSERT_TRUE(device.MemsetAsync(y, 0xff, kBytes, stream).ok());
    ASSERT_TRUE(device.BeginCapture(stream, mode).ok());
    auto scope = (*runtime)->OpenCapture(stream);
    ASSERT_TRUE(scope.ok()) << scope.status();

    const TuneSettings settings{.device = "cuda", .timeout_s = 30, .ledger_directory = "none"};
    TuneRequest request;
    request.op = kOp;
    request.shapes = {{{"n", kElements}}};
    const absl::StatusOr<TuneReport> report = Tune((*runtime)->platform(), settings, request);
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_EQ(report->selections.size(), 1u);
    EXPECT_GE(report->selections[0].tried, 2);

    EXPECT_TRUE((*runtime)->Launch(kOp, views, stream).ok());
    const absl::StatusOr<GraphBinding> binding = (*scope)->Finish();
    ASSERT_TRUE(binding.ok()) << binding.status();
    const auto graph = device.EndCapture(stream);
    ASSERT_TRUE(graph.ok()) << graph.status();
    ASSERT_TRUE((*graph)->Launch(stream).ok());
    ASSERT_TRUE(device.CopyToHost(out.data(), y, kBytes, stream).ok());
    ASSERT_TRUE(device.Synchronize(stream).ok());
    EXPECT_EQ(out, in);
  }
  EXPECT_EQ((*runtime)->generation()->digest(), serving);
  device.Free(x);
  device.Free(y);
  device.DestroyStream(stream);
}

}  // namespace
}  // namespace kvr
