// SPDX-License-Identifier: Apache-2.0
#include "registry/catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/registry/fakes.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;

TEST(Catalog, ListsTheBaselineFirstThenByName) {
  World world({AxpyVariant("zebra"), AxpyVariant("baseline", true), AxpyVariant("ant")});
  std::vector<std::string> names;
  for (const VariantPtr& variant : world.catalog.ops()[0]->variants) names.push_back(variant->name);
  EXPECT_EQ(names, (std::vector<std::string>{"baseline", "ant", "zebra"}));
}

TEST(Catalog, UnknownNamesAreAnsweredWithTheNearest) {
  World world;
  const absl::Status op = world.catalog.FindOp("axpi").status();
  EXPECT_TRUE(absl::IsNotFound(op));
  EXPECT_THAT(std::string(Fix(op)), HasSubstr("axpy"));
  const absl::Status variant = world.catalog.Find("axpy", "wibe").status();
  EXPECT_TRUE(absl::IsNotFound(variant));
  EXPECT_THAT(std::string(Fix(variant)), HasSubstr("'wide'"));
}

TEST(Catalog, TheFirstOfTwoEqualNamesStays) {
  World world;
  const VariantPtr first = *world.catalog.Find("axpy", "wide");
  EXPECT_TRUE(absl::IsAlreadyExists(world.catalog.Admit(AxpyVariant("wide"))));
  EXPECT_EQ(*world.catalog.Find("axpy", "wide"), first);
}

TEST(Catalog, RefusesASecondBaselineAndAnApproximateOne) {
  World world;
  EXPECT_TRUE(absl::IsAlreadyExists(world.catalog.Admit(AxpyVariant("other", true))));
  World empty(std::vector<std::shared_ptr<Variant>>{});
  std::shared_ptr<Variant> half = ApproximateVariant();
  half->is_baseline = true;
  EXPECT_TRUE(absl::IsInvalidArgument(empty.catalog.Admit(half)));
  EXPECT_TRUE(absl::IsFailedPrecondition(empty.catalog.Baseline("axpy").status()));
}

TEST(Catalog, RefusesAnUnknownOpAndABadKeyPolicy) {
  World world;
  std::shared_ptr<Variant> stray = AxpyVariant("stray");
  stray->op = "gemm";
  EXPECT_TRUE(absl::IsNotFound(world.catalog.Admit(stray)));
  std::shared_ptr<Variant> keyed = AxpyVariant("keyed");
  keyed->key_policy = "m:pow2";
  EXPECT_FALSE(world.catalog.Admit(keyed).ok());
}

TEST(Catalog, KeepsEveryRejectionWithItsReason) {
  World world;
  Scan scan;
  scan.variants.push_back(AxpyVariant("wide"));
  scan.variants.push_back(AxpyVariant("fresh"));
  scan.rejections.push_back({"/somewhere", absl::InvalidArgumentError("no manifest")});
  world.catalog.Add(std::move(scan));
  EXPECT_TRUE(world.catalog.Find("axpy", "fresh").ok());
  ASSERT_EQ(world.catalog.rejections().size(), 2u);
  EXPECT_EQ(world.catalog.rejections()[0].path, "/somewhere");
  EXPECT_EQ(world.catalog.rejections()[1].path, "axpy/wide");
}

TEST(Catalog, AVariantsFinerKeyPolicyIsItsOwn) {
  World world;
  std::shared_ptr<Variant> keyed = AxpyVariant("keyed");
  keyed->key_policy = "n:exact";
  ASSERT_TRUE(world.catalog.Admit(keyed).ok());
  EXPECT_EQ(world.catalog.PolicyOf(*keyed)->text(), "n:exact");
  EXPECT_EQ(world.catalog.PolicyOf(**world.catalog.Find("axpy", "wide"))->text(), "n:pow2");
}

TEST(Catalog, TwoOperationsOfOneNameAreRefused) {
  std::vector<std::unique_ptr<Operation>> operations;
  operations.push_back(std::make_unique<AxpyOp>());
  operations.push_back(std::make_unique<AxpyOp>());
  EXPECT_TRUE(absl::IsAlreadyExists(Catalog::Create(std::move(operations)).status()));
}

}  // namespace
}  // namespace kvr
