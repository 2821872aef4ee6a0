// SPDX-License-Identifier: Apache-2.0
//
// The same planted faults on a GPU: each kills or poisons a worker's context at most. The tuning
// process holds a CUDA context of its own throughout, and it still works afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "api/tune.h"
#include "core/install_layout.h"
#include "core/status.h"

namespace kvr {
namespace {

using ::testing::AnyOf;

constexpr char kOp[] = "mla_sparse_decode";
constexpr double kTimeoutSeconds = 5;

// By MODE of faulty/variant.toml.
const std::map<int64_t, TrialStatus> kFaults = {
    {0, TrialStatus::kPassed},
    {1, TrialStatus::kIncorrectNumerical},
    {2, TrialStatus::kRuntimeError},  // past the end of the output, into its canary
    {3, TrialStatus::kRuntimeError},  // trap
    {4, TrialStatus::kRuntimeError},  // illegal address
    {5, TrialStatus::kTimeout},
    {6, TrialStatus::kRuntimeError},  // trap
    {7, TrialStatus::kRuntimeError},  // writes an input
    {8, TrialStatus::kIncorrectNumerical},
    {9, TrialStatus::kPassed},  // at an even topk; at an odd one it is found out
};

// A round trip through the device's memory, in this process's own context.
void ExpectWorks(Device& device) {
  std::vector<int> sent(1024), received(1024);
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<int>(i * i);
  const int64_t bytes = static_cast<int64_t>(sent.size() * sizeof(int));
  auto stream = device.CreateStream();
  ASSERT_TRUE(stream.ok()) << stream.status();
  auto memory = device.Allocate(bytes);
  ASSERT_TRUE(memory.ok()) << memory.status();
  ASSERT_TRUE(device.CopyToDevice(*memory, sent.data(), bytes, *stream).ok());
  ASSERT_TRUE(device.CopyToHost(received.data(), *memory, bytes, *stream).ok());
  ASSERT_TRUE(device.Synchronize(*stream).ok());
  EXPECT_EQ(sent, received);
  device.Free(*memory);
  device.DestroyStream(*stream);
}

TEST(CudaFaults, AreRecordedAndTuningGoesOnAndTheCallersContextStillWorks) {
  std::string directory = ::testing::TempDir() + "/kvr-cuda-faults-XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  PlatformOptions options;
  options.plugin_roots = {InstallPath("share/kvr/tests/faulty")};
  options.cache_dir = directory + "/cache";
  auto platform = Platform::Open(options);
  ASSERT_TRUE(platform.ok()) << platform.status();
  auto device = (*platform)->OpenDevice("cuda");
  ASSERT_TRUE(device.ok()) << device.status();
  ExpectWorks(**device);

  TuneSettings settings;
  settings.device = "cuda";
  settings.plugin_roots = options.plugin_roots;
  settings.timeout_s = kTimeoutSeconds;
  settings.ledger_directory = "none";
  TuneRequest request;
  request.op = kOp;
  request.variants = {"faulty", "w8"};
  request.shapes = {{{"num_tokens", 2}, {"num_qo_heads", 16}, {"topk", 64}}};
  request.selection_file = directory + "/selections.json";
  const auto report = Tune(**platform, settings, request);
  ASSERT_TRUE(report.ok()) << report.status();
  int seen = 0;
  for (const Trial& trial : report->trials) {
    if (trial.variant != "faulty") continue;
    if (trial.axes.at("topk") % 2 == 1) {
      EXPECT_EQ(trial.status == TrialStatus::kPassed, trial.config.at("MODE") != 9) << trial.reason;
      continue;
    }
    ++seen;
    EXPECT_EQ(trial.status, kFaults.at(trial.config.at("MODE")))
        << ConfigText(trial.config) << ": " << trial.reason;
    std::printf("%s: %s %s\n", ConfigText(trial.config).c_str(),
                std::string(TrialStatusName(trial.status)).c_str(), trial.reason.c_str());
  }
  EXPECT_EQ(seen, static_cast<int>(kFaults.size()));
  EXPECT_GE(report->respawns, 4);  // two traps, an illegal address, a timeout
  ASSERT_EQ(report->selections.size(), 1u);
  EXPECT_THAT(report->selections[0].variant, AnyOf("w8", "baseline"));
  EXPECT_TRUE(report->selections[0].published || report->selections[0].verdict == "INVALID")
      << report->selections[0].note;

  ExpectWorks(**device);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace kvr
