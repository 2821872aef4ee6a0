// SPDX-License-Identifier: Apache-2.0
//
// variants/null, which people clone: its op in C, and its plan function.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "tests/variants/problem.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;

TEST(Null, InputsAreAFunctionOfTheSeedAndTheReferenceCopiesThem) {
  const std::unique_ptr<Operation> op = BuiltinOperation("null");
  Problem one(*op, {{"n", 1000}}), same(*op, {{"n", 1000}}), other(*op, {{"n", 1000}});
  one.Generate(1), same.Generate(1), other.Generate(2);
  EXPECT_EQ(one.memory, same.memory);
  EXPECT_NE(one.memory, other.memory);

  const std::vector<ReferenceOutput> outputs = one.Reference();
  const absl::Span<float> x = one.Input<float>(0);
  EXPECT_EQ(outputs[0].expected, std::vector<double>(x.begin(), x.end()));
  EXPECT_THAT(outputs[0].bound, ::testing::Each(0.0));
  EXPECT_GT(std::set<float>(x.begin(), x.end()).size(), 990u);
  EXPECT_THAT(x, ::testing::Each(::testing::AllOf(::testing::Ge(-1), ::testing::Lt(1))));
  EXPECT_EQ(op->MinimumBytes(one.axes), 8000);
}

class NullPlanned : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const VariantPtr& variant : ScanBuiltins().variants) {
      if (variant->op == "null" && variant->name == "planned") variant_ = variant;
    }
    ASSERT_NE(variant_, nullptr);
  }

  absl::StatusOr<LaunchPlan> Plan(int64_t n, const Config& config, int max_threads = 1024) {
    const DeviceInfo device = {.sms = 10, .max_threads_per_block = max_threads};
    absl::StatusOr<AxisVector> axes = ResolveAxes(op_->spec(), {{"n", n}});
    LaunchPlan plan;
    absl::Status status =
        variant_->plan.Evaluate(*axes, variant_->TunableValues(config), device, &plan);
    if (!status.ok()) return status;
    return plan;
  }

  const std::unique_ptr<Operation> op_ = BuiltinOperation("null");
  VariantPtr variant_;
};

TEST_F(NullPlanned, TheGridIsAsLargeAsThePlanFunctionSays) {
  const Config config = {{"THREADS", 256}, {"WAVES", 1}};
  EXPECT_EQ(Plan(1 << 20, config)->kernels[0].grid.x, 80u);  // 10 * 2048 / 256
  EXPECT_EQ(Plan(1 << 20, {{"THREADS", 128}, {"WAVES", 2}})->kernels[0].grid.x, 320u);
  EXPECT_EQ(Plan(1000, config)->kernels[0].grid.x, 4u);
  EXPECT_EQ(Plan(0, config)->kernel_count, 0);
}

TEST_F(NullPlanned, WhatThePlanFunctionRefusesIsSaidInItsWords) {
  const absl::StatusOr<LaunchPlan> plan = Plan(1000, {{"THREADS", 256}, {"WAVES", 1}}, 128);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("THREADS is 256"));
}

}  // namespace
}  // namespace kvr
