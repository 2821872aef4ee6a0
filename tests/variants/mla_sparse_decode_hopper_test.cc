// SPDX-License-Identifier: Apache-2.0
//
// cluster and wide, mla_sparse_decode for Hopper: their plans, and what is promised of the
// binaries. What they compute is for `kvr verify` on such a GPU.
#include <gtest/gtest.h>

#include <string>

#include "jit/jit.h"
#include "jit/nvrtc/nvrtc.h"
#include "tests/variants/problem.h"

namespace kvr {
namespace {

constexpr int64_t kSmemPerBlock = 232448;  // of an H200
constexpr const char* kOp = "mla_sparse_decode";

class MlaSparseDecodeHopper : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    for (const VariantPtr& variant : ScanBuiltins().variants) {
      if (variant->op == kOp && variant->name == GetParam()) variant_ = variant;
    }
    ASSERT_NE(variant_, nullptr);
  }

  LaunchPlan Plan(const Axes& given, const Config& overrides = {}) {
    Config config = DefaultConfig(variant_->tunables);
    for (const auto& [tunable, value] : overrides) config[tunable] = value;
    absl::StatusOr<AxisVector> axes = ResolveAxes(op_->spec(), given);
    EXPECT_TRUE(axes.ok()) << axes.status();
    LaunchPlan plan;
    DeviceInfo device;
    device.sms = 132, device.smem_per_block = kSmemPerBlock, device.max_cluster_size = 16;
    const absl::Status status =
        variant_->plan.Evaluate(*axes, variant_->TunableValues(config), device, &plan);
    EXPECT_TRUE(status.ok()) << status;
    return plan;
  }

  bool wide() const { return std::string(GetParam()) == "wide"; }
  int64_t heads_of_a_block() const { return wide() ? 64 : 16; }

  const std::unique_ptr<Operation> op_ = BuiltinOperation(kOp);
  VariantPtr variant_;
};

TEST_P(MlaSparseDecodeHopper, AClusterSplitsATokensListAndMergesInOneLaunch) {
  const auto splits = [&](const Axes& axes, const Config& overrides = {}) {
    Axes shape = axes;
    shape["num_qo_heads"] = heads_of_a_block();
    const LaunchPlan plan = Plan(shape, overrides);
    EXPECT_EQ(plan.kernel_count, 1);
    EXPECT_EQ(plan.workspace_bytes, 0);
    EXPECT_EQ(plan.kernels[0].cluster, (Dim3{plan.kernels[0].grid.x, 1, 1}));
    return plan.kernels[0].grid.x;
  };
  EXPECT_EQ(splits({{"num_tokens", 1}}, {{"NSPLIT_MAX", 8}}), 8u);
  EXPECT_EQ(splits({{"num_tokens", 1}, {"topk", 130}}), 5u);  // tiles of 32
  EXPECT_EQ(splits({{"num_tokens", 1}, {"topk", 1}}), 1u);
  EXPECT_EQ(splits({{"num_tokens", 32}}, {{"TARGET_CTAS", 96}}), 3u);
  EXPECT_EQ(splits({{"num_tokens", 64}}, {{"TARGET_CTAS", 128}}), 2u);
  EXPECT_EQ(splits({{"num_tokens", 512}}, {{"TARGET_CTAS", 128}}), 1u);  // never none
}

TEST_P(MlaSparseDecodeHopper, HeadsBeyondTheLastWholeGroupGetABlockOfTheirOwn) {
  const int64_t heads = heads_of_a_block() + 1;
  EXPECT_EQ(Plan({{"num_tokens", 5}, {"num_qo_heads", heads}}).kernels[0].grid.y, 2u);
  EXPECT_EQ(Plan({{"num_tokens", 5}, {"num_qo_heads", heads}}).kernels[0].grid.z, 5u);
}

TEST_P(MlaSparseDecodeHopper, AnEmptyBatchLaunchesNothing) {
  EXPECT_EQ(Plan({{"num_tokens", 0}, {"num_qo_heads", 64}}).kernel_count, 0);
}

TEST_P(MlaSparseDecodeHopper, DefaultsFitIntoSharedMemory) {
  for (const int64_t topk : {1, 32, 300, 512, 2048}) {
    const LaunchPlan plan = Plan({{"num_tokens", 1}, {"num_qo_heads", 64}, {"topk", topk}});
    EXPECT_LE(plan.kernels[0].smem, kSmemPerBlock) << topk;
  }
}

// The sources hold sizeof(Shared) against the manifest's bytes, so this checks those, too.
TEST_P(MlaSparseDecodeHopper, DefaultsCompileForHopper) {
  ToolchainOptions options;
  options.sdk_dir = KVR_SOURCE_DIR "/sdk/device";
  absl::StatusOr<std::unique_ptr<Compiler>> nvrtc = MakeNvrtcCompiler(options);
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status();
  std::vector<std::unique_ptr<Compiler>> compilers;
  compilers.push_back(*std::move(nvrtc));
  Jit jit(std::move(compilers), nullptr);
  if (!jit.CanCompile("sm_90a")) GTEST_SKIP() << "this NVRTC knows no sm_90a";
  const auto built = jit.Build(op_->spec(), *variant_, DefaultConfig(variant_->tunables), "sm_90a");
  ASSERT_TRUE(built.ok()) << built.status();
  ASSERT_EQ(built->binary->kernels.size(), 1u);
  const KernelResources& resources = built->binary->kernels[0].resources;
  EXPECT_LE(resources.registers, wide() ? 128 : 96);
  EXPECT_LE(resources.spill_bytes, wide() ? 0 : 64);  // stores and loads
}

INSTANTIATE_TEST_SUITE_P(, MlaSparseDecodeHopper, ::testing::Values("cluster", "wide"),
                         [](const auto& variant) { return std::string(variant.param); });

}  // namespace
}  // namespace kvr
