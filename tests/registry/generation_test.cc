// SPDX-License-Identifier: Apache-2.0
#include "registry/generation.h"

#include <gtest/gtest.h>

#include "tests/registry/fakes.h"

namespace kvr {
namespace {

TEST(Generation, SaysNothingAboutOpsItWasNotTold) {
  const GenerationPtr empty = GenerationBuilder("model", "null").Build(0);
  EXPECT_EQ(empty->number(), 0);
  EXPECT_EQ(empty->FindOp("axpy"), nullptr);
  EXPECT_EQ(empty->Find("axpy", BucketedKey{}), nullptr);
}

TEST(Generation, DigestDependsOnWhatIsSelectedAlone) {
  World world;
  const GenerationPtr one = world.Select({{64, "wide"}, {128, "baseline"}}, 1);
  const GenerationPtr two = world.Select({{128, "baseline"}, {64, "wide"}}, 7);
  EXPECT_EQ(one->digest(), two->digest());
  EXPECT_NE(one->digest(), world.Select({{64, "wide"}})->digest());
  EXPECT_NE(one->digest(), world.Select({{64, "wide"}, {128, "wide"}})->digest());
  EXPECT_NE(one->digest(), world.Select({{64, "wide"}, {256, "baseline"}})->digest());
  EXPECT_NE(one->digest(), world.Select({{64, "wide"}, {128, "baseline"}}, 1, "n:exact")->digest());
}

TEST(Generation, DigestIgnoresEvidenceAndSeesConfigAndBinary) {
  World world;
  const GenerationPtr base = world.Select({{64, "wide"}});
  const BucketedKey key = base->FindOp("axpy")->selections.begin()->first;
  const auto digest_with = [&](auto&& change) {
    GenerationBuilder builder(*base);
    Selection selection = *base->Find("axpy", key);
    change(selection);
    EXPECT_TRUE(builder.Select("axpy", key, selection).ok());
    return builder.Build(1)->digest();
  };
  EXPECT_EQ(base->digest(), digest_with([](Selection& s) {
              s.evidence = {.median_us = 3, .tried = 4, .device = "d", .date = "today"};
            }));
  EXPECT_NE(base->digest(), digest_with([](Selection& s) { s.config["BLOCK"] = 128; }));
  EXPECT_NE(base->digest(), digest_with([](Selection& s) { s.binary = FingerprintOf("b"); }));
}

TEST(Generation, DigestSeesTheVariantsVersionAndContent) {
  World one;
  World two({AxpyVariant("baseline", true), [] {
               auto wide = AxpyVariant("wide");
               wide->fingerprint = FingerprintOf("edited");
               return wide;
             }()});
  EXPECT_NE(one.Select({{64, "wide"}})->digest(), two.Select({{64, "wide"}})->digest());
}

TEST(Generation, BuildingOnAnotherLeavesItAsItWas) {
  World world;
  const GenerationPtr base = world.Select({{64, "wide"}});
  const Fingerprint digest = base->digest();
  const BucketedKey key = base->FindOp("axpy")->selections.begin()->first;
  GenerationBuilder builder(*base);
  builder.Remove("axpy", key);
  const GenerationPtr next = builder.Build(2);
  EXPECT_EQ(next->Find("axpy", key), nullptr);
  EXPECT_NE(base->Find("axpy", key), nullptr);
  EXPECT_EQ(base->digest(), digest);
}

TEST(Generation, AnotherKeyPolicyDropsWhatTheOldOneKeyed) {
  World world;
  const GenerationPtr base = world.Select({{64, "wide"}});
  const OpSpec& spec = world.catalog.ops()[0]->spec();
  GenerationBuilder same(*base);
  same.SetPolicy("axpy", *KeyPolicy::Parse("n:pow2", spec));
  EXPECT_EQ(same.Build(2)->FindOp("axpy")->selections.size(), 1u);
  GenerationBuilder other(*base);
  other.SetPolicy("axpy", *KeyPolicy::Parse("n:exact", spec));
  EXPECT_EQ(other.Build(2)->FindOp("axpy")->selections.size(), 0u);
}

TEST(Generation, RefusesWhatMayNotBeSelected) {
  World world;
  const KeyPolicy policy = world.catalog.ops()[0]->policy;
  const VariantPtr wide = *world.catalog.Find("axpy", "wide");
  const Selection good{.variant = wide, .config = DefaultConfig(wide->tunables)};

  GenerationBuilder builder("model", "null");
  EXPECT_TRUE(absl::IsFailedPrecondition(builder.Select("axpy", {}, good)));  // no policy
  builder.SetPolicy("axpy", policy);
  EXPECT_TRUE(builder.Select("axpy", {}, good).ok());

  Selection overridden = good;
  overridden.overridden = true;
  EXPECT_TRUE(absl::IsFailedPrecondition(builder.Select("axpy", {}, overridden)));
  Selection illegal = good;
  illegal.config["BLOCK"] = 65;
  EXPECT_FALSE(builder.Select("axpy", {}, illegal).ok());
  Selection partial = good;
  partial.config.erase("CTAS");
  EXPECT_FALSE(builder.Select("axpy", {}, partial).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(builder.Select("axpy", {}, Selection{})));

  GenerationBuilder elsewhere("model", "sm_90a");
  elsewhere.SetPolicy("axpy", policy);
  EXPECT_TRUE(absl::IsInvalidArgument(elsewhere.Select("axpy", {}, good)));
}

}  // namespace
}  // namespace kvr
