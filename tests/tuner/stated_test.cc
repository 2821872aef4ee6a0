// SPDX-License-Identifier: Apache-2.0
#include "tuner/stated.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/status.h"
#include "tests/tuner/fixture.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class StatedTest : public ::testing::Test {
 protected:
  StatedTest() {
    op_.name = "op";
    op_.axes = {test::Axis("n", 4), test::Axis("width", 64)};
    variant_.name = "variant";
    variant_.tunables = {Of("K"), Of("L"), Of("WARPS")};
  }
  static Tunable Of(const std::string& name) {
    Tunable tunable;
    tunable.name = name;
    tunable.values = {1, 2, 4, 8};
    tunable.default_value = 1;
    return tunable;
  }
  void Require(const std::string& text) {
    absl::StatusOr<Expr> constraint =
        Expr::Parse(text, PlanProgram::Symbols(op_, variant_.tunables, {}, {}));
    ASSERT_TRUE(constraint.ok()) << constraint.status();
    variant_.plan.constraints.push_back(*std::move(constraint));
  }
  absl::Status Check(const Config& stated, const std::vector<Axes>& shapes) {
    std::vector<AxisVector> resolved;
    for (const Axes& axes : shapes) resolved.push_back(*ResolveAxes(op_, axes));
    return CheckStated(op_, variant_, stated, resolved);
  }
  OpSpec op_;
  Variant variant_;
};

TEST_F(StatedTest, OneShapeThatMeetsItIsEnough) {
  Require("K <= n");
  EXPECT_TRUE(Check({{"K", 4}}, {{{"n", 4}}}).ok());
  EXPECT_TRUE(Check({{"K", 4}}, {{{"n", 2}}, {{"n", 8}}}).ok());
  const absl::Status none = Check({{"K", 8}}, {{{"n", 2}}, {{"n", 4}}});
  EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(What(none), HasSubstr("op/variant with K=8 requires K <= n, not met by n=2"));
  EXPECT_THAT(What(none), Not(HasSubstr("width")));
}

TEST_F(StatedTest, WhereNothingIsStatedNothingIsWrong) {
  Require("n > 16");
  EXPECT_TRUE(Check({}, {{{"n", 4}}}).ok());
  EXPECT_FALSE(Check({{"K", 1}}, {{{"n", 4}}}).ok());
}

TEST_F(StatedTest, EveryConstraintCountsAtOneShape) {
  Require("K <= n");
  Require("K * 16 <= width");
  // The first shape breaks one, the second the other.
  EXPECT_FALSE(Check({{"K", 8}}, {{{"n", 4}, {"width", 512}}, {{"n", 8}, {"width", 64}}}).ok());
  EXPECT_TRUE(Check({{"K", 8}}, {{{"n", 8}, {"width", 512}}}).ok());
}

TEST_F(StatedTest, WhatOtherTunablesOrTheDeviceMayMeetIsNotAsked) {
  Require("K * WARPS <= n");
  Require("K <= sms");
  EXPECT_TRUE(Check({{"K", 8}}, {{{"n", 1}}}).ok());
  EXPECT_FALSE(Check({{"K", 8}, {"WARPS", 1}}, {{{"n", 1}}}).ok());
  EXPECT_TRUE(Check({{"K", 8}, {"WARPS", 1}}, {}).ok());
}

TEST_F(StatedTest, AConstraintOfStatedValuesAloneHoldsAtNoShape) {
  Require("K <= L");
  EXPECT_THAT(What(Check({{"K", 2}, {"L", 1}}, {{}})), HasSubstr("not met at any shape"));
}

}  // namespace
}  // namespace kvr
