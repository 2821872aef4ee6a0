// SPDX-License-Identifier: Apache-2.0
//
// The baselines of the fp8 MLA ops: their plans, and what is promised of the binaries.
#include <gtest/gtest.h>

#include <string>

#include "jit/jit.h"
#include "jit/nvrtc/nvrtc.h"
#include "tests/variants/problem.h"

namespace kvr {
namespace {

class MlaFp8Build : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    for (const VariantPtr& variant : ScanBuiltins().variants) {
      if (variant->op == op_->spec().name && variant->is_baseline) baseline_ = variant;
    }
    ASSERT_NE(baseline_, nullptr);
  }

  LaunchPlan Plan(const Axes& given, const Config& overrides = {}) {
    Config config = DefaultConfig(baseline_->tunables);
    for (const auto& [tunable, value] : overrides) config[tunable] = value;
    absl::StatusOr<AxisVector> axes = ResolveAxes(op_->spec(), given);
    EXPECT_TRUE(axes.ok()) << axes.status();
    LaunchPlan plan;
    const DeviceInfo device = {.sms = 132, .smem_per_block = 232448};
    const absl::Status status =
        baseline_->plan.Evaluate(*axes, baseline_->TunableValues(config), device, &plan);
    EXPECT_TRUE(status.ok()) << status;
    return plan;
  }

  const std::unique_ptr<Operation> op_ = BuiltinOperation(GetParam());
  VariantPtr baseline_;
};

TEST_P(MlaFp8Build, SplitsByBothLists) {
  const auto splits = [&](const Axes& axes) { return Plan(axes).kernels[0].grid.x; };
  EXPECT_EQ(splits({{"num_tokens", 1}, {"topk", 2048}}), 16u);  // NSPLIT_MAX
  EXPECT_EQ(splits({{"num_tokens", 64}}), 4u);                  // 256 / 64
  EXPECT_EQ(splits({{"num_tokens", 1}, {"topk", 64}}), 2u);     // 64 / MIN_CHUNK
  EXPECT_EQ(splits({{"num_tokens", 1}, {"topk", 64}, {"extra_topk", 128}}), 6u);
  EXPECT_EQ(splits({{"num_tokens", 1}, {"topk", 1}}), 1u);
}

TEST_P(MlaFp8Build, OneSplitNeedsNeitherMergeNorWorkspace) {
  const LaunchPlan one = Plan({{"num_tokens", 1}, {"topk", 1}});
  EXPECT_EQ(one.kernel_count, 1);
  EXPECT_EQ(one.workspace_bytes, 0);
  const LaunchPlan many = Plan({{"num_tokens", 2}, {"num_qo_heads", 17}});
  ASSERT_EQ(many.kernel_count, 2);
  EXPECT_EQ(many.kernels[1].grid, (Dim3{17, 2, 1}));
  EXPECT_EQ(many.region_bytes[0], 2 * 17 * many.kernels[0].grid.x * 512 * 4);
}

TEST_P(MlaFp8Build, AnEmptyBatchLaunchesNothing) {
  EXPECT_EQ(Plan({{"num_tokens", 0}}).kernel_count, 0);
}

TEST_P(MlaFp8Build, DefaultsCompileWithoutSpills) {
  ToolchainOptions options;
  options.sdk_dir = KVR_SOURCE_DIR "/sdk/device";
  absl::StatusOr<std::unique_ptr<Compiler>> nvrtc = MakeNvrtcCompiler(options);
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status();
  std::vector<std::unique_ptr<Compiler>> compilers;
  compilers.push_back(*std::move(nvrtc));
  Jit jit(std::move(compilers), nullptr);
  for (const char* target : {"sm_80", "sm_90a"}) {
    if (!jit.CanCompile(target)) continue;
    SCOPED_TRACE(target);
    const auto built =
        jit.Build(op_->spec(), *baseline_, DefaultConfig(baseline_->tunables), target);
    ASSERT_TRUE(built.ok()) << built.status();
    for (const BinaryKernel& kernel : built->binary->kernels) {
      EXPECT_EQ(kernel.resources.spill_bytes, 0) << kernel.entry;
      EXPECT_EQ(kernel.resources.frame_bytes, 0) << kernel.entry;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, MlaFp8Build,
                         ::testing::Values("mla_sparse_decode_fp8", "mla_sparse_decode_fp8_v32"),
                         [](const auto& op) { return std::string(op.param); });

}  // namespace
}  // namespace kvr
