// SPDX-License-Identifier: Apache-2.0
#include "core/variant.h"

#include <gtest/gtest.h>

#include "tests/core/samples.h"

namespace kvr {
namespace {

TEST(Targets, PatternsMatchExactlyOrFromANumberUp) {
  EXPECT_TRUE(TargetMatches("sm_90a", "sm_90a"));
  EXPECT_FALSE(TargetMatches("sm_90", "sm_90a"));
  EXPECT_FALSE(TargetMatches("sm_90a", "sm_100a"));
  EXPECT_TRUE(TargetMatches("sm_80+", "sm_80"));
  EXPECT_TRUE(TargetMatches("sm_80+", "sm_120a"));
  EXPECT_TRUE(TargetMatches("sm_90a+", "sm_90a"));
  EXPECT_FALSE(TargetMatches("sm_90+", "sm_89"));
  EXPECT_FALSE(TargetMatches("sm_80+", "host"));
  EXPECT_TRUE(TargetMatches("host", "host"));
  for (const char* odd : {"+", "sm_+", "host+", "sm_a+", "sm_9999999999999999999+"}) {
    EXPECT_FALSE(TargetMatches(odd, "sm_90a")) << odd;
  }
}

TEST(Targets, ParseTakesKnownExactOnes) {
  EXPECT_THAT(*ParseTargets("sm_90a,sm_120a"), testing::ElementsAre("sm_90a", "sm_120a"));
  EXPECT_THAT(*ParseTargets("host"), testing::ElementsAre("host"));
  EXPECT_THAT(ParseTargets("sm_90").status(),
              IsError(kInvalid, "'sm_90' is not exact", "give 'sm_90a'"));
  EXPECT_THAT(ParseTargets("sm_90a,sm_90a").status(), IsError(kInvalid, "twice", "once"));
  EXPECT_THAT(ParseTargets("").status(), IsError(kInvalid, "unknown target ''", "sm_90a"));
  EXPECT_THAT(ParseTargets("sm_80,").status(), IsError(kInvalid, "unknown target ''", "sm_80"));
  EXPECT_THAT(ParseTargets("hots").status(), IsError(kInvalid, "'hots'", "did you mean 'host'"));
  for (std::string_view target : KnownTargets()) EXPECT_TRUE(ParseTargets(target).ok());
}

TEST(Variant, SupportsSaysWhyNot) {
  Variant variant;
  variant.targets = {"sm_90a", "sm_100+"};
  variant.host_skip_reason = "uses wgmma";
  std::string reason;
  EXPECT_TRUE(variant.Supports("sm_90a", &reason));
  EXPECT_TRUE(variant.Supports("sm_120a"));
  EXPECT_FALSE(variant.Supports("sm_80", &reason));
  EXPECT_EQ(reason, "needs sm_90a or sm_100+, not sm_80");
  EXPECT_FALSE(variant.Supports("host", &reason));
  EXPECT_EQ(reason, "uses wgmma");
}

TEST(Variant, TunableValuesFollowTunableOrder) {
  Variant variant;
  variant.tunables = {{"Z", {1, 2}, 1, Scope::kLaunch, ""}, {"A", {5, 6}, 6, Scope::kCompile, ""}};
  EXPECT_THAT(variant.TunableValues({{"A", 5}, {"Z", 2}}), testing::ElementsAre(2, 5));
  EXPECT_THAT(variant.TunableValues({}), testing::ElementsAre(1, 6));
}

}  // namespace
}  // namespace kvr
