// SPDX-License-Identifier: Apache-2.0
#include "core/plan.h"

#include <gtest/gtest.h>

#include "core/strings.h"
#include "tests/core/plan_builder.h"
#include "tests/core/samples.h"

namespace kvr {
namespace {

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

PlanBuilder Builder() {
  return PlanBuilder(SampleOp(), {{"WARPS", {4, 8}, 4, Scope::kCompile, ""},
                                  {"SPLITS", {0, 1, 2}, 2, Scope::kLaunch, ""}});
}

TEST(Plan, EvaluatesLetsGridBlockArgumentsAndWorkspace) {
  PlanBuilder builder = Builder();
  builder.Let("rows", "num_tokens * num_qo_heads")
      .Let("both", "rows + sms + smem_per_block")
      .Region("partial", DType::kF32, "rows * 3")
      .Region("flags", DType::kU8, "num_tokens")
      .Region("last", DType::kBF16, "1");
  KernelSpec& split = builder.Kernel("split", {"SPLITS", "rows"}, {"32 * WARPS", "2"}, "both");
  split.args = {PlanBuilder::ValueArg(DType::kI32, builder.Parse("rows")), ArgSpec{},
                PlanBuilder::ValueArg(DType::kI64, builder.Parse("both * 65536 * 65536"))};
  builder.Kernel("merge", {"rows"}, {"128"});
  DeviceInfo device = RtxPro6000();
  device.smem_per_block = 200000;  // `both` fits
  LaunchPlan plan;
  ASSERT_TRUE(
      builder.Evaluate({{"num_tokens", 3}, {"num_qo_heads", 5}}, {{"WARPS", 8}}, device, &plan)
          .code() == kRefused)
      << "both is 15 + 188 + 200000";
  device.smem_per_block = 1000;
  builder.program.kernels[0].smem = builder.Parse("both - 203");
  absl::Status status =
      builder.Evaluate({{"num_tokens", 3}, {"num_qo_heads", 5}}, {{"WARPS", 8}}, device, &plan);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(plan.kernel_count, 2);
  EXPECT_EQ(plan.launches().size(), 2u);
  EXPECT_EQ(plan.kernels[0].kernel, 0);
  EXPECT_EQ(plan.kernels[0].grid, (Dim3{2, 15, 1}));
  EXPECT_EQ(plan.kernels[0].block, (Dim3{256, 2, 1}));
  EXPECT_EQ(plan.kernels[0].cluster, (Dim3{1, 1, 1}));
  EXPECT_EQ(plan.kernels[0].smem, 1000);
  EXPECT_EQ(plan.kernels[0].values[0], 15);
  EXPECT_EQ(plan.kernels[0].values[2], (int64_t{15} + 188 + 1000) << 32);
  EXPECT_EQ(plan.kernels[1].kernel, 1);
  EXPECT_EQ(plan.kernels[1].grid, (Dim3{15, 1, 1}));
  EXPECT_EQ(plan.region_bytes[0], 180);
  EXPECT_EQ(plan.region_offset[0], 0);
  EXPECT_EQ(plan.region_bytes[1], 3);
  EXPECT_EQ(plan.region_offset[1], 256);
  EXPECT_EQ(plan.region_offset[2], 512);
  EXPECT_EQ(plan.workspace_bytes, 768);
}

TEST(Plan, EmptyBatchLaunchesNothingAndNeedsNoWorkspace) {
  PlanBuilder builder = Builder();
  builder.Region("partial", DType::kF32, "1");
  builder.Kernel("split", {"num_tokens"}, {"128"});
  LaunchPlan plan;
  ASSERT_TRUE(builder.Evaluate({{"num_tokens", 0}}, {}, H200(), &plan).ok());
  EXPECT_EQ(plan.kernel_count, 0);
  EXPECT_EQ(plan.workspace_bytes, 0);
}

TEST(Plan, EmptyBatchHasNoRegionsWhateverTheirOwnSize) {
  PlanBuilder builder = Builder();
  builder.Region("partial", DType::kF32, "num_tokens").Region("flags", DType::kI32, "64");
  builder.program.regions[1].zeroed = true;
  builder.Kernel("split", {"num_tokens"}, {"128"});
  LaunchPlan plan;
  ASSERT_TRUE(builder.Evaluate({{"num_tokens", 3}}, {}, H200(), &plan).ok());
  EXPECT_EQ(plan.region_bytes[1], 256);
  EXPECT_EQ(plan.region_offset[1], 256);
  ASSERT_TRUE(builder.Evaluate({{"num_tokens", 0}}, {}, H200(), &plan).ok());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(plan.region_bytes[i], 0) << i;
    EXPECT_EQ(plan.region_offset[i], 0) << i;
  }
}

TEST(Plan, WhenZeroLeavesAKernelOutWithoutEvaluatingTheRest) {
  PlanBuilder builder = Builder();
  builder.Kernel("split", {"ceildiv(8, SPLITS)"}, {"128"}).when = builder.Parse("SPLITS > 0");
  builder.Kernel("merge", {"1"}, {"64"});
  LaunchPlan plan;
  absl::Status status = builder.Evaluate({}, {{"SPLITS", 0}}, H200(), &plan);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(plan.kernel_count, 1);
  EXPECT_EQ(plan.kernels[0].kernel, 1) << "the index is the program's";
  ASSERT_TRUE(builder.Evaluate({}, {{"SPLITS", 2}}, H200(), &plan).ok());
  EXPECT_EQ(plan.kernel_count, 2);
}

TEST(Plan, LaunchLimitsAreErrorsThatNameKernelPlaceAndLimit) {
  LaunchPlan plan;
  auto error = [&plan](const std::vector<std::string>& grid, const std::vector<std::string>& block,
                       const char* smem = "0") {
    PlanBuilder builder = Builder();
    builder.Kernel("split", grid, block, smem);
    return builder.Evaluate({}, {}, RtxPro6000(), &plan);
  };
  EXPECT_TRUE(error({"2147483647", "65535", "65535"}, {"1024"}, "101376").ok());
  EXPECT_TRUE(error({"1"}, {"1", "16", "64"}).ok());
  EXPECT_THAT(
      error({"2147483648"}, {"1"}),
      IsError(kRefused, "variant.toml:30: kernel 'split': grid.x = 2147483648", "0...2147483647"));
  EXPECT_THAT(error({"1", "65536"}, {"1"}), IsError(kRefused, "grid.y = 65536", "0...65535"));
  EXPECT_THAT(error({"1", "1", "65536"}, {"1"}), IsError(kRefused, "grid.z", "0...65535"));
  EXPECT_THAT(error({"-1"}, {"1"}), IsError(kRefused, "grid.x = -1 (-1)", "0..."));
  EXPECT_THAT(error({"1"}, {"0"}), IsError(kRefused, "block.x = 0", "1...1024"));
  EXPECT_THAT(error({"1"}, {"1025"}), IsError(kRefused, "block.x = 1025", "1...1024"));
  EXPECT_THAT(error({"1"}, {"1", "1", "65"}), IsError(kRefused, "block.z = 65", "1...64"));
  EXPECT_THAT(
      error({"1"}, {"512", "4"}),
      IsError(kRefused, "a block of (512, 4, 1) has 2048 threads", "at most 1024 on NVIDIA"));
  EXPECT_THAT(error({"1"}, {"32"}, "smem_per_block + 1"),
              IsError(kRefused, "smem = 101377 bytes of dynamic shared memory (smem_per_block + 1)",
                      "at most 101376"));
  EXPECT_THAT(error({"1"}, {"32"}, "-1"), IsError(kRefused, "smem = -1", "0 or more"));
}

TEST(Plan, ClustersFitTheDeviceAndDivideTheGrid) {
  PlanBuilder builder = Builder();
  KernelSpec& kernel = builder.Kernel("split", {"12", "3"}, {"32"});
  auto error = [&](const char* x, const char* y) {
    kernel.cluster[0] = builder.Parse(x);
    kernel.cluster[1] = builder.Parse(y);
    LaunchPlan plan;
    return builder.Evaluate({}, {}, H200(), &plan);
  };
  EXPECT_TRUE(error("4", "1").ok());
  EXPECT_TRUE(error("2", "3").ok());
  EXPECT_THAT(error("4", "3"), IsError(kRefused, "a cluster of (4, 3, 1) has 12", "at most 8"));
  EXPECT_THAT(error("8", "1"), IsError(kRefused, "no multiple of the cluster (8, 1, 1)", "round"));
  EXPECT_THAT(error("0", "1"), IsError(kRefused, "cluster.x = 0", "1..."));
}

TEST(Plan, Int32ArgumentsMustFit) {
  PlanBuilder builder = Builder();
  builder.Kernel("split", {"1"}, {"32"}).args = {
      PlanBuilder::ValueArg(DType::kI32, builder.Parse("topk * 1048576"))};
  LaunchPlan plan;
  EXPECT_THAT(builder.Evaluate({}, {}, H200(), &plan),
              IsError(kRefused, "argument 1, i32(topk * 1048576), is 2147483648", "i64("));
  EXPECT_TRUE(builder.Evaluate({{"topk", 2047}}, {}, H200(), &plan).ok());
}

TEST(Plan, ConstraintsAreQuoted) {
  PlanBuilder builder = Builder();
  builder.Let("rows", "num_tokens * 2").Constraint("rows <= 100");
  builder.Kernel("split", {"rows"}, {"32"});
  LaunchPlan plan;
  EXPECT_TRUE(builder.Evaluate({{"num_tokens", 50}}, {}, H200(), &plan).ok());
  EXPECT_THAT(builder.Evaluate({{"num_tokens", 51}}, {}, H200(), &plan),
              IsError(kRefused, "constraint not met: rows <= 100", "another variant"));
}

TEST(Plan, AConstraintExplainsALetThatFails) {
  PlanBuilder builder = Builder();
  builder.Let("chunk", "ceildiv(topk, SPLITS)").Let("more", "chunk * 2");
  builder.Kernel("split", {"chunk"}, {"32"});
  LaunchPlan plan;
  EXPECT_THAT(builder.Evaluate({}, {{"SPLITS", 0}}, H200(), &plan),
              IsError(absl::StatusCode::kOutOfRange,
                      "let 'chunk': expression 'ceildiv(topk, SPLITS)', column 1", "max(1, b)"));
  builder.Constraint("more < 100000").Constraint("SPLITS >= 1");
  EXPECT_THAT(builder.Evaluate({}, {{"SPLITS", 0}}, H200(), &plan),
              IsError(kRefused, "constraint not met: SPLITS >= 1", "another variant"));
}

TEST(Plan, WorkspaceSizesAreChecked) {
  LaunchPlan plan;
  auto error = [&plan](const char* elements) {
    PlanBuilder builder = Builder();
    builder.Region("partial", DType::kF32, elements);
    builder.Kernel("split", {"1"}, {"32"});
    return builder.Evaluate({}, {}, H200(), &plan);
  };
  EXPECT_TRUE(error("0").ok());
  EXPECT_EQ(plan.workspace_bytes, 0);
  EXPECT_THAT(error("-1"), IsError(kRefused, "workspace 'partial' has -1 elements", "0 or more"));
  EXPECT_THAT(error("9223372036854775807"), IsError(kRefused, "'partial'", "fit 64 bits"));
  EXPECT_THAT(error("mod(1, 0)"), IsError(absl::StatusCode::kOutOfRange, "'partial'", "positive"));
}

TEST(Plan, TooLargeProgramsAreRefused) {
  LaunchPlan plan;
  PlanBuilder lets = Builder(), kernels = Builder(), args = Builder();
  for (int i = 0; i < kMaxSlots; ++i) lets.program.lets.push_back({StrCat("x", i), Expr()});
  EXPECT_THAT(lets.Evaluate({}, {}, H200(), &plan), IsError(kInvalid, "too large", "at most 96"));
  for (int i = 0; i <= kMaxKernels; ++i) kernels.Kernel("k", {"1"}, {"32"});
  EXPECT_THAT(kernels.Evaluate({}, {}, H200(), &plan), IsError(kInvalid, "9 kernels", "8"));
  args.Kernel("k", {"1"}, {"32"}).args.resize(kMaxArgs + 1);
  EXPECT_THAT(args.Evaluate({}, {}, H200(), &plan), IsError(kRefused, "33 arguments", "32"));
  EXPECT_THAT(args.program.Evaluate({}, {}, H200(), &plan),
              IsError(absl::StatusCode::kInternal, "given 0 tunable values, not 2", "Tunable"));
}

TEST(Plan, SymbolsFollowTheSlotLayout) {
  PlanBuilder builder = Builder();
  builder.Let("x", "1").Let("y", "x");
  SymbolTable symbols =
      PlanProgram::Symbols(builder.op, builder.tunables, {}, builder.program.lets);
  EXPECT_EQ(symbols.at("num_tokens"), 0);
  EXPECT_EQ(symbols.at("extra_topk"), 4);
  EXPECT_EQ(symbols.at("WARPS"), 5);
  EXPECT_EQ(symbols.at("SPLITS"), 6);
  EXPECT_EQ(symbols.at("sms"), 7);
  EXPECT_EQ(symbols.at("smem_per_block"), 8);
  EXPECT_EQ(symbols.at("x"), 9);
  EXPECT_EQ(symbols.at("y"), 10);
  EXPECT_EQ(symbols.size(), 11u);
}

TEST(Plan, ExtentsLeftOutAreOne) {
  KernelSpec kernel;
  for (const auto& extents : {kernel.grid, kernel.block, kernel.cluster}) {
    for (const Expr& expr : extents) EXPECT_EQ(*expr.Eval({}), 1);
  }
}

}  // namespace
}  // namespace kvr
