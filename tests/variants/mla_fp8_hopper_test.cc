// SPDX-License-Identifier: Apache-2.0
//
// cluster and wide, the fp8 MLA ops for Hopper: their plans, and what is promised of the binaries.
// What they compute is for `kvr verify` on such a GPU.
#include <gtest/gtest.h>

#include <string>

#include "core/strings.h"
#include "jit/jit.h"
#include "jit/nvrtc/nvrtc.h"
#include "tests/variants/problem.h"

namespace kvr {
namespace {

constexpr int64_t kSmemPerBlock = 232448;  // of an H200

struct Case {
  const char *op, *variant;
};

class MlaFp8Hopper : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    for (const VariantPtr& variant : ScanBuiltins().variants) {
      if (variant->op == GetParam().op && variant->name == GetParam().variant) variant_ = variant;
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

  bool wide() const { return std::string(GetParam().variant) == "wide"; }
  int64_t heads_of_a_block() const { return wide() ? 64 : 16; }

  const std::unique_ptr<Operation> op_ = BuiltinOperation(GetParam().op);
  VariantPtr variant_;
};

TEST_P(MlaFp8Hopper, AClusterSplitsATokensListsAndMergesInOneLaunch) {
  const auto splits = [&](const Axes& axes, const Config& overrides = {}) {
    Axes shape = axes;
    shape["num_qo_heads"] = heads_of_a_block();
    const LaunchPlan plan = Plan(shape, overrides);
    EXPECT_EQ(plan.kernel_count, 1);
    EXPECT_EQ(plan.workspace_bytes, 0);
    EXPECT_EQ(plan.kernels[0].cluster, (Dim3{plan.kernels[0].grid.x, 1, 1}));
    return plan.kernels[0].grid.x;
  };
  EXPECT_EQ(splits({{"num_tokens", 1}}), 8u);  // NSPLIT_MAX
  EXPECT_EQ(splits({{"num_tokens", 1}, {"topk", 2048}}, {{"NSPLIT_MAX", 16}}), 16u);
  EXPECT_EQ(splits({{"num_tokens", 1}, {"topk", 130}}), 3u);  // tiles of 64
  EXPECT_EQ(splits({{"num_tokens", 1}, {"topk", 64}, {"extra_topk", 128}}), 3u);
  EXPECT_EQ(splits({{"num_tokens", 32}}), 3u);                           // floor(96 / 32)
  EXPECT_EQ(splits({{"num_tokens", 64}}, {{"TARGET_CTAS", 128}}), 2u);   // 128 / 64
  EXPECT_EQ(splits({{"num_tokens", 512}}, {{"TARGET_CTAS", 128}}), 1u);  // never none
}

TEST_P(MlaFp8Hopper, HeadsBeyondTheLastWholeGroupGetABlockOfTheirOwn) {
  const int64_t heads = heads_of_a_block() + 1;
  EXPECT_EQ(Plan({{"num_tokens", 5}, {"num_qo_heads", heads}}).kernels[0].grid.y, 2u);
  EXPECT_EQ(Plan({{"num_tokens", 5}, {"num_qo_heads", heads}}).kernels[0].grid.z, 5u);
}

TEST_P(MlaFp8Hopper, AnEmptyBatchLaunchesNothing) {
  EXPECT_EQ(Plan({{"num_tokens", 0}, {"num_qo_heads", 64}}).kernel_count, 0);
}

TEST_P(MlaFp8Hopper, DefaultsFitIntoSharedMemoryHoweverManySplits) {
  for (const int64_t topk : {64, 130, 300, 512, 2048}) {
    const LaunchPlan plan =
        Plan({{"num_tokens", 1}, {"num_qo_heads", 64}, {"topk", topk}}, {{"NSPLIT_MAX", 16}});
    EXPECT_LE(plan.kernels[0].smem, kSmemPerBlock) << topk;
  }
}

// The sources hold sizeof(Shared) against the manifest's bytes, so this checks those, too.
TEST_P(MlaFp8Hopper, DefaultsCompileForHopper) {
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
  // All of the block's registers at its entry; the warps share them out afterwards.
  EXPECT_EQ(resources.registers, wide() ? 128 : 96);
  EXPECT_LE(resources.spill_bytes, 96);
}

INSTANTIATE_TEST_SUITE_P(, MlaFp8Hopper,
                         ::testing::Values(Case{"mla_sparse_decode_fp8", "cluster"},
                                           Case{"mla_sparse_decode_fp8", "wide"},
                                           Case{"mla_sparse_decode_fp8_v32", "cluster"},
                                           Case{"mla_sparse_decode_fp8_v32", "wide"}),
                         [](const auto& test) {
                           return StrCat(test.param.op, "_", test.param.variant);
                         });

}  // namespace
}  // namespace kvr
