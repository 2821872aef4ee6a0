// SPDX-License-Identifier: Apache-2.0
#include "tuner/space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/status.h"
#include "tests/tuner/fixture.h"
#include "tuner/feasibility.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;

class SpaceTest : public ::testing::Test {
 protected:
  test::DecodeOp op_;
  VariantPtr baseline_ = test::SplitVariant(op_.spec());
  DeviceInfo device_ = test::Blackwell();
  AxisVector seed_shape_ = test::Shape(op_.spec(), {});  // 96 tokens, 32 heads, topk 512
};

TEST_F(SpaceTest, DefaultCoverageIsOneConfigAVariantWithPinsApplied) {
  const auto space = BuildSpace({baseline_}, {"BLOCK_H=16"}, Coverage::kDefault);
  ASSERT_TRUE(space.ok()) << space.status();
  ASSERT_EQ(space->candidates.size(), 1u);
  EXPECT_EQ(ConfigText(space->candidates[0].config), "BLOCK_H=16,STAGES=2,TARGET_CTAS=256");
}

TEST_F(SpaceTest, AllCoversEveryUnpinnedAssignmentDefaultFirst) {
  const auto space = BuildSpace({baseline_}, {"STAGES=2"}, Coverage::kAll);
  ASSERT_TRUE(space.ok()) << space.status();
  EXPECT_EQ(space->candidates.size(), 2u * 3u);
  EXPECT_EQ(space->candidates[0].config, DefaultConfig(baseline_->tunables));
}

TEST_F(SpaceTest, AVariantThatAPinDoesNotFitIsOmittedWithTheReason) {
  auto other = test::SplitVariant(op_.spec(), "other");
  other->tunables[0].values = {32};
  auto third = test::SplitVariant(op_.spec(), "third");
  third->tunables[0].name = "HEADS";
  const auto space = BuildSpace({baseline_, other, third}, {"BLOCK_H=16"}, Coverage::kDefault);
  ASSERT_TRUE(space.ok()) << space.status();
  EXPECT_EQ(space->candidates.size(), 1u);
  ASSERT_EQ(space->omitted.size(), 2u);
  EXPECT_THAT(space->omitted[0].reason, HasSubstr("BLOCK_H=16 is not among its values 32"));
  EXPECT_THAT(space->omitted[1].reason, HasSubstr("has no tunable BLOCK_H"));
}

TEST_F(SpaceTest, AnOptInGivesQualityTunablesTheirValuesAndNothingSearchesThem) {
  auto soft = test::SplitVariant(op_.spec(), "soft");
  soft->semantics = Semantics::kApproximate;
  soft->tunables[0].scope = Scope::kQuality;  // BLOCK_H
  const std::vector<ApproximateOptIn> opt_in = {{soft->op, "soft", {{"BLOCK_H", 16}}}};
  const auto space = BuildSpace({baseline_, soft}, {}, Coverage::kAll, opt_in);
  ASSERT_TRUE(space.ok()) << space.status();
  ASSERT_EQ(space->candidates.size(), 12u + 6u);
  for (const Candidate& candidate : space->candidates) {
    if (candidate.variant == baseline_) continue;
    EXPECT_EQ(candidate.config.at("BLOCK_H"), 16);
  }
  EXPECT_TRUE(IsDefault(space->candidates[12]));
  EXPECT_FALSE(IsDefault(space->candidates[13]));
  const auto other = BuildSpace({baseline_, soft}, {"BLOCK_H=32"}, Coverage::kDefault, opt_in);
  ASSERT_TRUE(other.ok()) << other.status();
  ASSERT_EQ(other->omitted.size(), 1u);
  EXPECT_THAT(other->omitted[0].reason, HasSubstr("BLOCK_H=32 is set, and the opt-in is to"));
}

TEST_F(SpaceTest, WrongPinsAreErrors) {
  EXPECT_THAT(BuildSpace({baseline_}, {"BLOCK=16"}, Coverage::kDefault).status().message(),
              HasSubstr("BLOCK_H"));  // names what there is
  EXPECT_FALSE(BuildSpace({baseline_}, {"BLOCK_H"}, Coverage::kDefault).ok());
  EXPECT_FALSE(BuildSpace({baseline_}, {"BLOCK_H="}, Coverage::kDefault).ok());
  EXPECT_FALSE(BuildSpace({baseline_}, {"BLOCK_H=x"}, Coverage::kDefault).ok());
  EXPECT_FALSE(BuildSpace({baseline_}, {"BLOCK_H=16", "BLOCK_H=32"}, Coverage::kDefault).ok());
  EXPECT_FALSE(BuildSpace({baseline_}, {"BLOCK_H=16,"}, Coverage::kDefault).ok());
}

TEST_F(SpaceTest, SharedMemoryOverTheDeviceIsPrunedWithTheNumbers) {
  DeviceInfo small = device_;
  small.smem_per_block = 65536;  // two stages fit, three do not
  const auto space = BuildSpace({baseline_}, {"TARGET_CTAS=256"}, Coverage::kAll);
  const Feasible feasible = PruneStatically(space->candidates, seed_shape_, small);
  EXPECT_EQ(feasible.candidates.size(), 2u);
  ASSERT_EQ(feasible.pruned.size(), 2u);
  for (const Pruned& pruned : feasible.pruned) {
    EXPECT_EQ(pruned.candidate.config.at("STAGES"), 3);
    EXPECT_THAT(pruned.reason, HasSubstr("90000"));
  }
}

TEST_F(SpaceTest, AConstraintThatIsNotMetIsTheReason) {
  const auto space = BuildSpace({baseline_}, {}, Coverage::kDefault);
  const AxisVector shape = test::Shape(op_.spec(), {{"topk", 5000}});
  const Feasible feasible = PruneStatically(space->candidates, shape, device_);
  EXPECT_TRUE(feasible.candidates.empty());
  ASSERT_EQ(feasible.pruned.size(), 1u);
  EXPECT_THAT(feasible.pruned[0].reason, HasSubstr("topk <= 4096"));
}

TEST_F(SpaceTest, APlanThatCannotBeEvaluatedIsAFaultAndAConstraintIsNone) {
  auto variant = test::SplitVariant(op_.spec());
  variant->plan.kernels[0].block[0] = Expr::Constant(2048);
  auto space = BuildSpace({variant}, {}, Coverage::kDefault);
  Feasible feasible = PruneStatically(space->candidates, seed_shape_, device_);
  ASSERT_EQ(feasible.pruned.size(), 1u);
  EXPECT_FALSE(feasible.pruned[0].fault);
  EXPECT_THAT(feasible.pruned[0].reason, HasSubstr("1...1024"));  // the fix names the limit

  class Failing final : public PlanFunction {
    absl::Status Values(absl::Span<const int64_t>, absl::Span<const int64_t>, const DeviceInfo&,
                        absl::Span<int64_t>) const override {
      return Error(absl::StatusCode::kInvalidArgument, "its own fault", "mend it");
    }
  };
  variant = test::SplitVariant(op_.spec());
  variant->plan.function = std::make_shared<Failing>();
  space = BuildSpace({variant}, {}, Coverage::kDefault);
  feasible = PruneStatically(space->candidates, seed_shape_, device_);
  ASSERT_EQ(feasible.pruned.size(), 1u);
  EXPECT_TRUE(feasible.pruned[0].fault);
  EXPECT_EQ(feasible.pruned[0].reason, "its own fault; mend it");
}

TEST(ReasonTest, ReasonsThatDifferInNumbersAloneAreOfOneKind) {
  EXPECT_EQ(ReasonKind("smem = 90000 bytes"), ReasonKind("smem = 7 bytes"));
  EXPECT_NE(ReasonKind("smem = 90000 bytes"), ReasonKind("smem = 90000 threads"));
}

TEST_F(SpaceTest, LaunchScopeConfigsWithTheSamePlanAreTheSameWork) {
  // topk 32 allows one split only, so TARGET_CTAS changes nothing.
  const auto space = BuildSpace({baseline_}, {"BLOCK_H=16", "STAGES=2"}, Coverage::kAll);
  const AxisVector shape = test::Shape(op_.spec(), {{"topk", 32}});
  const Feasible feasible = PruneStatically(space->candidates, shape, device_);
  ASSERT_EQ(feasible.candidates.size(), 1u);
  ASSERT_EQ(feasible.pruned.size(), 2u);
  EXPECT_THAT(feasible.pruned[0].reason, HasSubstr("same plan at these axes as {BLOCK_H=16"));
}

TEST_F(SpaceTest, CompileScopeConfigsAreNeverDuplicates) {
  auto variant = test::SplitVariant(op_.spec());
  variant->plan.kernels[0].smem = Expr::Constant(1024);  // STAGES no longer shows in the plan
  const auto space = BuildSpace({variant}, {"BLOCK_H=16", "TARGET_CTAS=256"}, Coverage::kAll);
  const Feasible feasible = PruneStatically(space->candidates, seed_shape_, device_);
  EXPECT_EQ(feasible.candidates.size(), 2u);
}

TEST_F(SpaceTest, ConfigsOfALaunchFunctionAreNeverDuplicates) {
  auto variant = test::SplitVariant(op_.spec());
  variant->plan.kernels.clear();
  variant->has_launch_function = true;
  const auto space = BuildSpace({variant}, {}, Coverage::kAll);
  const Feasible feasible = PruneStatically(space->candidates, seed_shape_, device_);
  EXPECT_EQ(feasible.candidates.size(), 12u);
  EXPECT_TRUE(feasible.pruned.empty());
}

TEST_F(SpaceTest, PlansWithOtherViewsAreOtherWork) {
  auto variant = test::SplitVariant(op_.spec());
  const SymbolTable symbols = PlanProgram::Symbols(op_.spec(), variant->tunables, {}, {});
  TensorMapSpec map;
  map.shape = {Expr::Constant(512)};
  map.box = {*Expr::Parse("floordiv(TARGET_CTAS, 8)", symbols)};
  const AxisVector shape = test::Shape(op_.spec(), {{"topk", 32}});  // one split, whatever CTAs
  variant->plan.tensor_maps = {map};
  const auto space = BuildSpace({variant}, {"BLOCK_H=16", "STAGES=2"}, Coverage::kAll);
  EXPECT_EQ(PruneStatically(space->candidates, shape, device_).candidates.size(), 3u);
}

class ResourcesTest : public SpaceTest {
 protected:
  ResourcesTest() {
    binary_.kernels = {{"split<BLOCK_H>", "split", {}}, {"merge", "merge", {}}};
    EXPECT_TRUE(
        CheckPlan(*baseline_, DefaultConfig(baseline_->tunables), seed_shape_, device_, &plan_)
            .ok());
  }
  absl::Status Check() { return CheckResources(*baseline_, plan_, binary_, device_); }
  Binary binary_;
  LaunchPlan plan_;
};

TEST_F(ResourcesTest, AModestKernelFits) {
  binary_.kernels[0].resources.registers = 128;
  EXPECT_TRUE(Check().ok()) << Check();
}

TEST_F(ResourcesTest, LaunchBoundsHold) {
  binary_.kernels[0].resources.max_threads = 64;
  EXPECT_THAT(Check().message(), HasSubstr("128 over the kernel's launch bound 64"));
}

TEST_F(ResourcesTest, StaticAndDynamicSharedMemoryAddUp) {
  binary_.kernels[0].resources.smem_static = 50000;  // beside 60000 dynamic
  EXPECT_THAT(Check().message(), HasSubstr("110000"));
}

TEST_F(ResourcesTest, ABlockThatFitsNoMultiprocessorSaysWhatLimitsIt) {
  device_.regs_per_sm = 16384;
  binary_.kernels[0].resources.registers = 255;  // 128 threads: 32768
  EXPECT_THAT(Check().message(), HasSubstr("limited by registers"));
}

TEST_F(ResourcesTest, AMissingKernelIsAnError) {
  binary_.kernels.pop_back();
  const absl::Status status = Check();
  // The plan launches merge only when it splits: at 96 tokens and one head group it does.
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
}

}  // namespace
}  // namespace kvr
