// SPDX-License-Identifier: Apache-2.0
#include "tuner/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tuner/fixture.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;

class ExplainTest : public ::testing::Test {
 protected:
  absl::StatusOr<Explanation> Run(const Axes& axes, Config config, int ctas_per_sm = 0) {
    Config full = DefaultConfig(variant_->tunables);
    for (const auto& [name, value] : config) full[name] = value;
    return ExplainConfig(op_, {variant_, full}, test::Shape(op_.spec(), axes), device_, binary_,
                         ctas_per_sm);
  }
  test::DecodeOp op_;
  std::shared_ptr<Variant> variant_ = test::SplitVariant(op_.spec());
  DeviceInfo device_ = test::Blackwell();
  const Binary* binary_ = nullptr;
};

TEST_F(ExplainTest, TheCampaignsWavesAt96Tokens) {
  const auto e = Run({{"num_tokens", 96}, {"num_qo_heads", 32}, {"topk", 512}},
                     {{"BLOCK_H", 16}, {"TARGET_CTAS", 256}}, /*ctas_per_sm=*/1);
  ASSERT_TRUE(e.ok()) << e.status();
  EXPECT_EQ(e->ctas, 384);
  EXPECT_EQ(e->kernels[0].grid, (Dim3{2, 2, 96}));
  EXPECT_NEAR(e->waves.waves, 2.04, 0.005);
  EXPECT_EQ(e->waves.tail_ctas, 8);
  EXPECT_NEAR(e->waves.tail_utilisation, 0.04, 0.005);
}

TEST_F(ExplainTest, TheCampaignsWavesAt80Tokens) {
  const auto e = Run({{"num_tokens", 80}, {"num_qo_heads", 32}, {"topk", 512}},
                     {{"BLOCK_H", 16}, {"TARGET_CTAS", 256}}, /*ctas_per_sm=*/1);
  ASSERT_TRUE(e.ok()) << e.status();
  EXPECT_EQ(e->ctas, 320);
  EXPECT_NEAR(e->waves.waves, 1.70, 0.005);
  EXPECT_EQ(e->waves.tail_ctas, 132);
  EXPECT_NEAR(e->waves.tail_utilisation, 0.70, 0.005);
}

TEST_F(ExplainTest, TheMainKernelReadsTheInputsHoweverManyBlocksAnotherHas) {
  // merge: 32 * 96 = 3072 blocks of 32 threads; split: 3 * 1 * 96 = 288 blocks of 128.
  auto e = Run({}, {});
  ASSERT_TRUE(e.ok()) << e.status();
  ASSERT_EQ(e->kernels.size(), 2u);
  EXPECT_EQ(e->kernels[e->main_kernel].name, "split");
  EXPECT_EQ(e->ctas, 288);
}

TEST_F(ExplainTest, OfKernelsThatReadTheSameTheOneWithTheMostThreadsIsMain) {
  variant_->plan.kernels[1].args = variant_->plan.kernels[0].args;
  const auto e = Run({}, {});
  ASSERT_TRUE(e.ok()) << e.status();
  EXPECT_EQ(e->kernels[e->main_kernel].name, "merge");
  EXPECT_EQ(e->ctas, 3072);
}

TEST_F(ExplainTest, SharedMemoryLimitsOccupancy) {
  const auto e = Run({}, {});
  ASSERT_TRUE(e.ok()) << e.status();
  EXPECT_EQ(e->ctas_per_sm, 1);  // 60000 bytes of 102400
  EXPECT_EQ(e->limiter, "shared memory");
  EXPECT_EQ(e->smem_bytes, 60000);
  EXPECT_EQ(e->smem_limit, 101376);
  EXPECT_FALSE(e->resources_known);
}

TEST_F(ExplainTest, TheFloorIsBytesOverBandwidth) {
  const auto e = Run({}, {});
  ASSERT_TRUE(e.ok()) << e.status();
  EXPECT_EQ(e->bytes, 96000);
  EXPECT_NEAR(e->floor_us, 0.06, 1e-9);
}

TEST_F(ExplainTest, ABinaryBringsRegistersAndStaticSharedMemory) {
  Binary binary;
  binary.kernels = {{"split<BLOCK_H>", "a", {}}, {"merge", "b", {}}};
  binary.kernels[0].resources.registers = 200;
  binary.kernels[0].resources.smem_static = 100;
  binary_ = &binary;
  const auto e = Run({}, {});
  ASSERT_TRUE(e.ok()) << e.status();
  EXPECT_TRUE(e->resources_known);
  EXPECT_EQ(e->kernels[0].registers, 200);
  EXPECT_EQ(e->kernels[0].smem_static, 100);
}

TEST_F(ExplainTest, AnEmptyBatchHasNoKernelsAndNoWaves) {
  const auto e = Run({{"num_tokens", 0}}, {});
  ASSERT_TRUE(e.ok()) << e.status();
  EXPECT_TRUE(e->kernels.empty());
  EXPECT_EQ(e->main_kernel, -1);
  EXPECT_EQ(e->ctas, 0);
}

TEST_F(ExplainTest, OfALaunchFunctionOnlyTheMemoryIsKnown) {
  variant_->plan.kernels.clear();
  variant_->has_launch_function = true;
  RegionSpec region;
  region.elements = Expr::Constant(1000);
  variant_->plan.regions = {region};
  Binary binary;
  binary_ = &binary;
  auto e = Run({}, {});
  ASSERT_TRUE(e.ok()) << e.status();
  EXPECT_TRUE(e->launch_function);
  EXPECT_FALSE(e->resources_known);
  EXPECT_TRUE(e->kernels.empty());
  EXPECT_EQ(e->workspace_bytes, 4096);
  EXPECT_GT(e->bytes, 0);
  // Every output empty: nothing is called.
  e = Run({{"num_tokens", 0}}, {});
  ASSERT_TRUE(e.ok()) << e.status();
  EXPECT_FALSE(e->launch_function);
  EXPECT_EQ(e->workspace_bytes, 0);
}

TEST_F(ExplainTest, AKernelReadsWhatItsTensorMapsShow) {
  // merge gets q through a map, and with it as many input bytes as split, and more threads.
  TensorMapSpec map;
  map.shape = map.box = {Expr::Constant(8)};
  variant_->plan.tensor_maps = {map};
  ArgSpec arg;
  arg.kind = ArgSpec::Kind::kTensorMap;
  variant_->plan.kernels[1].args = {arg};
  variant_->plan.kernels[1].grid[0] = Expr::Constant(100000);
  const auto e = Run({}, {});
  ASSERT_TRUE(e.ok()) << e.status();
  EXPECT_EQ(e->kernels[e->main_kernel].name, "merge");
}

TEST_F(ExplainTest, WhatDoesNotFitIsAnErrorWithTheReason) {
  EXPECT_THAT(Run({{"topk", 5000}}, {}).status().message(), HasSubstr("topk <= 4096"));
}

}  // namespace
}  // namespace kvr
