// SPDX-License-Identifier: Apache-2.0
//
// The launch plans of mla_sparse_decode's variants, as they ship.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "core/key_policy.h"
#include "core/occupancy.h"
#include "tests/variants/problem.h"

namespace kvr {
namespace {

constexpr int kRtxPro6000Sms = 188;
constexpr int64_t kRtxPro6000SmemPerBlock = 101376;

class MlaSparseDecodePlan : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const VariantPtr& variant : ScanBuiltins().variants) {
      if (variant->op == op_->spec().name) variants_[variant->name] = variant;
    }
    ASSERT_TRUE(variants_.count("baseline") && variants_.count("w8") && variants_.count("s3"));
  }

  LaunchPlan Plan(const std::string& name, const Axes& given, const Config& overrides = {}) {
    const Variant& variant = *variants_.at(name);
    Config config = DefaultConfig(variant.tunables);
    for (const auto& [tunable, value] : overrides) config[tunable] = value;
    absl::StatusOr<AxisVector> axes = ResolveAxes(op_->spec(), given);
    EXPECT_TRUE(axes.ok()) << axes.status();
    LaunchPlan plan;
    const absl::Status status =
        variant.plan.Evaluate(*axes, variant.TunableValues(config), device_, &plan);
    EXPECT_TRUE(status.ok()) << status;
    return plan;
  }

  // nsplit, or 0 without kernels.
  int64_t Splits(const Axes& axes, const Config& overrides = {}) {
    const LaunchPlan plan = Plan("baseline", axes, overrides);
    return plan.kernel_count == 0 ? 0 : plan.kernels[0].grid.x;
  }

  const std::unique_ptr<Operation> op_ = BuiltinOperation("mla_sparse_decode");
  std::map<std::string, VariantPtr> variants_;
  DeviceInfo device_ = {.sms = kRtxPro6000Sms, .smem_per_block = kRtxPro6000SmemPerBlock};
};

TEST_F(MlaSparseDecodePlan, GoldenCasesOfThePlanner) {
  struct Golden {
    int64_t num_tokens, ctas;
    double waves;
    int64_t tail_ctas;
    int tail_percent;
  };
  for (const Golden& golden : {Golden{96, 384, 2.04, 8, 4}, Golden{80, 320, 1.70, 132, 70}}) {
    const Axes axes = {{"num_tokens", golden.num_tokens}, {"num_qo_heads", 32}, {"topk", 512}};
    const LaunchPlan plan = Plan("baseline", axes, {{"BLOCK_H", 16}, {"TARGET_CTAS", 256}});
    ASSERT_EQ(plan.kernel_count, 2);
    EXPECT_EQ(plan.kernels[0].grid, (Dim3{2, 2, static_cast<uint32_t>(golden.num_tokens)}));
    EXPECT_EQ(plan.kernels[0].grid.volume(), golden.ctas);

    // At one block an SM.
    const Waves waves = ComputeWaves(plan.kernels[0].grid.volume(), device_.sms, 1);
    EXPECT_NEAR(waves.waves, golden.waves, 0.005);
    EXPECT_EQ(waves.tail_ctas, golden.tail_ctas);
    EXPECT_NEAR(waves.tail_utilisation * 100, golden.tail_percent, 0.5);
  }
}

TEST_F(MlaSparseDecodePlan, EachLimitOnTheSplitsHolds) {
  const Axes one = {{"num_tokens", 1}, {"num_qo_heads", 16}, {"topk", 2048}};
  EXPECT_EQ(Splits(one), 16);  // NSPLIT_MAX
  EXPECT_EQ(Splits(one, {{"NSPLIT_MAX", 32}}), 32);
  EXPECT_EQ(Splits({{"num_tokens", 64}}), 4);  // 256 / 64
  EXPECT_EQ(Splits({{"num_tokens", 64}}, {{"TARGET_CTAS", 512}}), 8);
  EXPECT_EQ(Splits({{"num_tokens", 65}}), 4);                // rounds up
  EXPECT_EQ(Splits({{"num_tokens", 1}, {"topk", 200}}), 6);  // 200 / MIN_CHUNK
  EXPECT_EQ(Splits({{"num_tokens", 1}, {"topk", 200}}, {{"MIN_CHUNK", 64}}), 3);
  EXPECT_EQ(Splits({{"num_tokens", 1}, {"topk", 1}}), 1);
  EXPECT_EQ(Splits({{"num_tokens", 1024}, {"num_qo_heads", 128}}), 1);  // fills the device as it is
}

TEST_F(MlaSparseDecodePlan, HeadsAreGroupedByBlockH) {
  auto groups = [&](int64_t heads, int64_t block_h) {
    return Plan("baseline", {{"num_qo_heads", heads}}, {{"BLOCK_H", block_h}}).kernels[0].grid.y;
  };
  EXPECT_EQ(groups(1, 16), 1u);
  EXPECT_EQ(groups(17, 16), 2u);
  EXPECT_EQ(groups(17, 32), 1u);
  EXPECT_EQ(groups(128, 16), 8u);
}

TEST_F(MlaSparseDecodePlan, OneSplitNeedsNeitherMergeNorWorkspace) {
  const LaunchPlan plan = Plan("baseline", {{"num_tokens", 1}, {"topk", 1}});
  EXPECT_EQ(plan.kernel_count, 1);
  EXPECT_EQ(plan.workspace_bytes, 0);
}

TEST_F(MlaSparseDecodePlan, SplitsAreMergedThroughTheWorkspace) {
  const LaunchPlan plan = Plan("baseline", {{"num_tokens", 2}, {"num_qo_heads", 17}});
  ASSERT_EQ(plan.kernel_count, 2);
  EXPECT_EQ(plan.kernels[1].grid, (Dim3{17, 2, 1}));
  EXPECT_EQ(plan.region_bytes[0], 2 * 17 * 16 * 512 * 4);
  EXPECT_EQ(plan.region_bytes[1], 2 * 17 * 16 * 4);
}

TEST_F(MlaSparseDecodePlan, AnEmptyBatchLaunchesNothing) {
  EXPECT_EQ(Plan("baseline", {{"num_tokens", 0}}).kernel_count, 0);
}

TEST_F(MlaSparseDecodePlan, DefaultsFitTheSmallestDevice) {
  for (const auto& [name, smem] :
       std::map<std::string, int64_t>{{"baseline", 82560}, {"w8", 53888}, {"s3", 101312}}) {
    const LaunchPlan plan = Plan(name, {});
    EXPECT_EQ(plan.kernels[0].smem, smem) << name;
    EXPECT_LE(plan.kernels[0].smem, kRtxPro6000SmemPerBlock) << name;
  }
}

TEST_F(MlaSparseDecodePlan, TheExtensionsDifferFromTheBaselineInOneTunable) {
  const Config baseline = DefaultConfig(variants_["baseline"]->tunables);
  for (const auto& [name, tunable] :
       std::map<std::string, std::string>{{"w8", "WARPS"}, {"s3", "STAGES"}}) {
    Config config = DefaultConfig(variants_[name]->tunables);
    EXPECT_NE(config[tunable], baseline.at(tunable)) << name;
    config[tunable] = baseline.at(tunable);
    EXPECT_EQ(config, baseline) << name;
    EXPECT_FALSE(variants_[name]->is_baseline);
  }
  EXPECT_TRUE(variants_["baseline"]->is_baseline);
  EXPECT_EQ(Plan("w8", {}).kernels[0].block.x, 256u);
  EXPECT_EQ(Plan("s3", {}).kernels[0].block.x, 128u);
}

TEST_F(MlaSparseDecodePlan, BatchKeyHasTheSpacesOfTheOthersAndKeepsTheOpsKeys) {
  const Variant& batch_key = *variants_.at("batch_key");
  std::map<std::string, std::set<int64_t>> together, its;
  for (const char* name : {"baseline", "w8", "s3"}) {
    for (const Tunable& tunable : variants_.at(name)->tunables) {
      together[tunable.name].insert(tunable.values.begin(), tunable.values.end());
    }
  }
  size_t configs = 1;
  for (const Tunable& tunable : batch_key.tunables) {
    its[tunable.name].insert(tunable.values.begin(), tunable.values.end());
    configs *= tunable.values.size();
  }
  EXPECT_EQ(its, together);
  EXPECT_EQ(configs, 384u);
  EXPECT_EQ(DefaultConfig(batch_key.tunables), DefaultConfig(variants_.at("baseline")->tunables));
  // One kernel: what was measured of it under another name still holds.
  EXPECT_EQ(batch_key.fingerprint, variants_.at("baseline")->fingerprint);
  EXPECT_EQ(op_->spec().key_policy, "topk:pow2");
  EXPECT_EQ(variants_.at("baseline")->key_policy, "");
}

TEST_F(MlaSparseDecodePlan, EveryBucketOfBatchKeyHasALegalRepresentative) {
  const OpSpec& spec = op_->spec();
  const auto policy = KeyPolicy::Parse(variants_.at("batch_key")->key_policy, spec);
  ASSERT_TRUE(policy.ok()) << policy.status();
  std::map<int64_t, std::set<int64_t>> tokens, heads;
  for (int64_t value = 1; value <= 128; ++value) {
    for (const char* axis : {"num_tokens", "num_qo_heads"}) {
      const auto axes = ResolveAxes(spec, {{axis, value}, {"topk", 512}});
      ASSERT_TRUE(axes.ok()) << axes.status();
      const Axes representative = NamedAxes(spec, policy->Representative(*axes));
      EXPECT_TRUE(ResolveAxes(spec, representative).ok()) << AxesText(representative);
      (axis[4] == 't' ? tokens : heads)[representative.at(axis)].insert(value);
    }
  }
  EXPECT_EQ(tokens.size(), 11u);
  EXPECT_EQ(heads.size(), 4u);
  for (const auto* buckets : {&tokens, &heads}) {
    for (const auto& [representative, members] : *buckets) {
      EXPECT_EQ(*members.rbegin(), representative);  // the largest: it has the most to do
    }
  }
}

TEST_F(MlaSparseDecodePlan, ABundleIsTheSameVariantAsDirectoryAndInAPlugin) {
  const OpSpec* spec = &op_->spec();
  const std::string root = KVR_SOURCE_DIR "/variants/mla_sparse_decode";
  const Scan scan = ScanPlugins({&root, 1}, {.ops = {&spec, 1}});
  EXPECT_TRUE(scan.rejections.empty());
  EXPECT_EQ(scan.variants.size(), variants_.size());
  for (const VariantPtr& variant : scan.variants) {
    ASSERT_EQ(variants_.count(variant->name), 1u) << variant->name;
    EXPECT_EQ(variant->fingerprint, variants_[variant->name]->fingerprint) << variant->name;
  }
}

}  // namespace
}  // namespace kvr
