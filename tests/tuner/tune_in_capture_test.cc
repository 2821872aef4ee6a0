// SPDX-License-Identifier: Apache-2.0
//
// Verify and tune on a thread whose stream captures: they run in another process, and touch neither
// the capture nor what serves.
#include "api/tune.h"
#include "registry/capture_scope.h"
#include "registry/graph_binding.h"
#include "tests/tuner/swapper_fixture.h"

namespace kvr::test {
namespace {

using TuneInCapture = SwapperTest;

TEST_F(TuneInCapture, LeavesTheCaptureValidAndWhatServesServing) {
  Open();
  Device& device = runtime_->device();
  std::vector<float> x(4096), y(4096, -1);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 89);
  const TensorView views[2] = {{x.data(), DType::kF32, 1, {4096}},
                               {y.data(), DType::kF32, 1, {4096}}};
  for (const CaptureMode mode :
       {CaptureMode::kGlobal, CaptureMode::kThreadLocal, CaptureMode::kRelaxed}) {
    ASSERT_TRUE(device.BeginCapture(stream_, mode).ok());
    auto scope = runtime_->OpenCapture(stream_);
    ASSERT_TRUE(scope.ok()) << scope.status();

    TuneSettings settings{.device = "host", .timeout_s = 30, .ledger_directory = "none"};
    TuneRequest request;
    request.op = kOp;
    request.variants = {"planned"};
    request.shapes = {{{"n", 100}}};
    request.pins = {"THREADS=256"};
    request.race.final_rounds = 8;
    request.duel_rounds = 8;
    const absl::StatusOr<TuneReport> report = Tune(runtime_->platform(), settings, request);
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_EQ(report->selections.size(), 1u);
    EXPECT_GE(report->selections[0].tried, 1);

    EXPECT_TRUE(runtime_->Launch(kOp, views, stream_).ok());
    absl::StatusOr<GraphBinding> binding = (*scope)->Finish();
    ASSERT_TRUE(binding.ok()) << binding.status();
    EXPECT_EQ(binding->launches(), 1);
    const auto graph = device.EndCapture(stream_);
    ASSERT_TRUE(graph.ok()) << graph.status();
    y.assign(y.size(), -1);
    EXPECT_TRUE((*graph)->Launch(stream_).ok());
    EXPECT_TRUE(device.Synchronize(stream_).ok());
    EXPECT_EQ(y, x);
  }
  EXPECT_EQ(runtime_->generation()->digest(), booted_);
}

}  // namespace
}  // namespace kvr::test
