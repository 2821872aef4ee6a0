// SPDX-License-Identifier: Apache-2.0
//
// The split planner of sparse decode as a manifest states it, and the cases that were measured on
// an RTX PRO 6000 Blackwell at one block per multiprocessor.
#include <gtest/gtest.h>

#include "core/occupancy.h"
#include "tests/core/plan_builder.h"
#include "tests/core/samples.h"

namespace kvr {
namespace {

PlanBuilder Planner() {
  PlanBuilder builder(SampleOp(), {{"BLOCK_H", {16, 32}, 32, Scope::kCompile, ""},
                                   {"TARGET_CTAS", {128, 256, 512}, 256, Scope::kLaunch, ""},
                                   {"NSPLIT_MAX", {16}, 16, Scope::kLaunch, ""},
                                   {"MIN_CHUNK", {32}, 32, Scope::kLaunch, ""}});
  builder.Let("head_groups", "ceildiv(num_qo_heads, BLOCK_H)")
      .Let("base", "max(1, num_tokens * head_groups)")
      .Let("nsplit",
           "min(ceildiv(TARGET_CTAS, base), NSPLIT_MAX, max(1, floordiv(topk, MIN_CHUNK)))")
      .Region("partial_o", DType::kF32, "num_tokens * num_qo_heads * nsplit * head_dim");
  builder.Kernel("split", {"nsplit", "head_groups", "num_tokens"}, {"128"});
  builder.Kernel("merge", {"num_tokens", "num_qo_heads"}, {"128"}).when =
      builder.Parse("nsplit > 1");
  return builder;
}

struct Golden {
  int64_t num_tokens, head_groups, target_ctas, nsplit, ctas;
  double waves;
  int64_t tail_ctas, tail_percent;
};

TEST(Planner, GoldenCasesOfTheCampaign) {
  const Golden cases[] = {{96, 2, 256, 2, 384, 2.04, 8, 4}, {80, 2, 256, 2, 320, 1.70, 132, 70}};
  PlanBuilder planner = Planner();
  for (const Golden& golden : cases) {
    LaunchPlan plan;
    absl::Status status = planner.Evaluate({{"num_tokens", golden.num_tokens},
                                            {"num_qo_heads", golden.head_groups * 16},
                                            {"topk", 512}},
                                           {{"BLOCK_H", 16}, {"TARGET_CTAS", golden.target_ctas}},
                                           RtxPro6000(), &plan);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(plan.kernel_count, 2);
    EXPECT_EQ(plan.kernels[0].grid.x, golden.nsplit);
    EXPECT_EQ(plan.kernels[0].grid.y, golden.head_groups);
    const int64_t ctas = plan.kernels[0].grid.volume();
    EXPECT_EQ(ctas, golden.ctas);
    const Waves waves = ComputeWaves(ctas, RtxPro6000().sms, /*blocks_per_sm=*/1);
    EXPECT_NEAR(waves.waves, golden.waves, 0.005);
    EXPECT_EQ(waves.tail_ctas, golden.tail_ctas);
    EXPECT_NEAR(waves.tail_utilisation * 100, static_cast<double>(golden.tail_percent), 0.5);
  }
}

TEST(Planner, FollowsItsFormulaEverywhere) {
  PlanBuilder planner = Planner();
  for (int64_t tokens : {1, 7, 8, 64, 96, 1024}) {
    for (int64_t heads : {1, 16, 64, 128}) {
      for (int64_t topk : {1, 31, 32, 37, 512, 2048, 32768}) {
        for (int64_t target : {128, 256, 512}) {
          LaunchPlan plan;
          ASSERT_TRUE(
              planner
                  .Evaluate({{"num_tokens", tokens}, {"num_qo_heads", heads}, {"topk", topk}},
                            {{"TARGET_CTAS", target}}, RtxPro6000(), &plan)
                  .ok());
          const int64_t base = tokens * ((heads + 31) / 32);
          const int64_t nsplit =
              std::min({(target + base - 1) / base, int64_t{16}, std::max(int64_t{1}, topk / 32)});
          ASSERT_EQ(plan.kernels[0].grid.x, nsplit);
          ASSERT_EQ(plan.kernel_count, nsplit > 1 ? 2 : 1);
          ASSERT_EQ(plan.region_bytes[0], tokens * heads * nsplit * 512 * 4);
        }
      }
    }
  }
}

TEST(Planner, EmptyBatchIsAnEmptyPlan) {
  LaunchPlan plan;
  ASSERT_TRUE(Planner().Evaluate({{"num_tokens", 0}}, {}, RtxPro6000(), &plan).ok());
  EXPECT_EQ(plan.kernel_count, 0);
}

}  // namespace
}  // namespace kvr
