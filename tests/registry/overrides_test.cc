// SPDX-License-Identifier: Apache-2.0
#include "registry/overrides.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/registry/fakes.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;

class OverridesTest : public ::testing::Test {
 protected:
  OverridesTest()
      : world_({AxpyVariant("baseline", true), AxpyVariant("wide"), ApproximateVariant()}),
        generation_(world_.Select({{64, "wide"}})) {}

  Overrides Environment(const std::vector<std::string>& entries) {
    absl::StatusOr<Overrides> overrides = Overrides::FromEnvironment(world_.catalog, entries);
    EXPECT_TRUE(overrides.ok()) << overrides.status();
    return overrides.ok() ? *overrides : Overrides();
  }
  absl::Status EnvironmentError(const std::string& entry) {
    return Overrides::FromEnvironment(world_.catalog, {entry}).status();
  }
  absl::StatusOr<Choice> ChooseFor(const Overrides& overrides, bool selected = true,
                                   const std::vector<ApproximateOptIn>& opt_in = {}) {
    return Choose(*world_.catalog.ops()[0], selected ? Selected() : nullptr, overrides, opt_in);
  }
  const Selection* Selected() { return Sorted(*generation_->FindOp("axpy"))[0].second; }

  World world_;
  GenerationPtr generation_;
};

TEST_F(OverridesTest, WithoutAnyTheSelectionServesElseTheBaseline) {
  const Choice selected = *ChooseFor({});
  EXPECT_EQ(selected.selection.variant->name, "wide");
  EXPECT_TRUE(selected.from_generation);
  const Choice baseline = *ChooseFor({}, /*selected=*/false);
  EXPECT_EQ(baseline.selection.variant->name, "baseline");
  EXPECT_FALSE(baseline.from_generation);
  EXPECT_FALSE(baseline.selection.overridden);
}

TEST_F(OverridesTest, SetBeatsEnvironmentBeatsSelectionBeatsDefault) {
  Selection tuned = *Selected();
  tuned.config["BLOCK"] = 128;
  const auto block = [&](const Overrides& overrides, const Selection* selected) {
    return Choose(*world_.catalog.ops()[0], selected, overrides, {})->selection.config.at("BLOCK");
  };
  Overrides none;
  EXPECT_EQ(block(none, nullptr), 64);
  EXPECT_EQ(block(none, &tuned), 128);
  Overrides environment = Environment({"KVR_AXPY_BLOCK=256"});
  EXPECT_EQ(block(environment, &tuned), 256);
  ASSERT_TRUE(environment.Set(world_.catalog, "axpy", "BLOCK", 64).ok());
  EXPECT_EQ(block(environment, &tuned), 64);
}

TEST_F(OverridesTest, ForcingBeatsTheSelectionAndTakesTheVariantsOwnDefaults) {
  Overrides overrides = Environment({"KVR_FORCE_AXPY=baseline"});
  const Choice choice = *ChooseFor(overrides);
  EXPECT_EQ(choice.selection.variant->name, "baseline");
  EXPECT_TRUE(choice.selection.overridden);
  EXPECT_THAT(choice.why, HasSubstr("KVR_FORCE_AXPY"));
  ASSERT_TRUE(overrides.Force(world_.catalog, "axpy", "wide").ok());
  EXPECT_EQ(ChooseFor(overrides)->selection.variant->name, "wide");
  EXPECT_THAT(ChooseFor(overrides)->why, HasSubstr("--variant"));
}

TEST_F(OverridesTest, ForcingASiblingOfTheSameFilesTakesItsOwnDefaults) {
  // As a variant that extends another one and changes its tunables only.
  World world({AxpyVariant("baseline", true), [] {
                 auto w8 = AxpyVariant("w8");
                 w8->tunables[0].values = {512};
                 w8->tunables[0].default_value = 512;
                 w8->fingerprint = AxpyVariant("baseline", true)->fingerprint;
                 return w8;
               }()});
  const VariantPtr w8 = *world.catalog.Find("axpy", "w8");
  Selection selected{.variant = w8, .config = DefaultConfig(w8->tunables)};
  selected.binary = FingerprintOf("cubin");
  absl::StatusOr<Overrides> overrides =
      Overrides::FromEnvironment(world.catalog, {"KVR_FORCE_AXPY=baseline"});
  ASSERT_TRUE(overrides.ok());
  const auto choose = [&] { return Choose(*world.catalog.ops()[0], &selected, *overrides, {}); };
  ASSERT_TRUE(choose().ok()) << choose().status();
  EXPECT_EQ(choose()->selection.variant->name, "baseline");
  EXPECT_EQ(choose()->selection.config.at("BLOCK"), 64);
  EXPECT_EQ(choose()->selection.binary, Fingerprint{});
  ASSERT_TRUE(overrides->Force(world.catalog, "axpy", "w8").ok());
  EXPECT_EQ(choose()->selection.config.at("BLOCK"), 512);
  EXPECT_EQ(choose()->selection.binary, selected.binary);
}

TEST_F(OverridesTest, AnOverriddenChoiceIsNeverStored) {
  const Choice choice = *ChooseFor(Environment({"KVR_AXPY_CTAS=2048"}));
  EXPECT_TRUE(choice.selection.overridden);
  EXPECT_FALSE(choice.from_generation);
  GenerationBuilder builder(*generation_);
  EXPECT_TRUE(absl::IsFailedPrecondition(builder.Select("axpy", {}, choice.selection)));
}

TEST_F(OverridesTest, TheMeasuredBinaryStaysWhereOnlyThePlanChanges) {
  Selection tuned = *Selected();
  tuned.binary = FingerprintOf("cubin");
  const auto binary = [&](const std::string& entry) {
    return Choose(*world_.catalog.ops()[0], &tuned, Environment({entry}), {})->selection.binary;
  };
  EXPECT_EQ(binary("KVR_AXPY_CTAS=2048"), tuned.binary);
  EXPECT_EQ(binary("KVR_AXPY_BLOCK=256"), Fingerprint{});
}

TEST_F(OverridesTest, UnknownNamesAndIllegalValuesAreErrorsThatNameTheVariable) {
  EXPECT_THAT(std::string(What(EnvironmentError("KVR_FORCE_AXPI=wide"))),
              HasSubstr("KVR_FORCE_AXPI"));
  EXPECT_THAT(std::string(Fix(EnvironmentError("KVR_FORCE_AXPI=wide"))),
              HasSubstr("KVR_FORCE_AXPY"));
  EXPECT_THAT(std::string(Fix(EnvironmentError("KVR_FORCE_AXPY=wibe"))), HasSubstr("wide"));
  EXPECT_THAT(std::string(Fix(EnvironmentError("KVR_AXPY_BLOK=64"))), HasSubstr("BLOCK"));
  EXPECT_THAT(std::string(Fix(EnvironmentError("KVR_AXPY_BLOCK=65"))), HasSubstr("64, 128, 256"));
  for (const char* bad : {"", "64x", " 64", "0x40", "99999999999999999999"}) {
    EXPECT_THAT(std::string(What(EnvironmentError(std::string("KVR_AXPY_BLOCK=") + bad))),
                HasSubstr("KVR_AXPY_BLOCK"))
        << bad;
  }
  Overrides overrides;
  EXPECT_FALSE(overrides.Set(world_.catalog, "axpy", "BLOCK", 65).ok());
  EXPECT_FALSE(overrides.Force(world_.catalog, "axpy", "none").ok());
}

TEST_F(OverridesTest, OtherVariablesAreNotItsBusiness) {
  const Overrides overrides =
      Environment({"KVR_CACHE_DIR=/x", "PATH=/bin", "KVR_AXPY=1", "KVR_", "NOEQUALS"});
  EXPECT_EQ(overrides.Find("axpy"), nullptr);
}

TEST_F(OverridesTest, AValueThatOnlyAnotherVariantAllowsIsAnErrorWhereItIsUsed) {
  World world({AxpyVariant("baseline", true), [] {
                 auto huge = AxpyVariant("huge");
                 huge->tunables[0].values.push_back(512);
                 return huge;
               }()});
  absl::StatusOr<Overrides> overrides =
      Overrides::FromEnvironment(world.catalog, {"KVR_AXPY_BLOCK=512"});
  ASSERT_TRUE(overrides.ok());
  EXPECT_FALSE(Choose(*world.catalog.ops()[0], nullptr, *overrides, {}).ok());
  ASSERT_TRUE(overrides->Force(world.catalog, "axpy", "huge").ok());
  EXPECT_TRUE(Choose(*world.catalog.ops()[0], nullptr, *overrides, {}).ok());
}

TEST_F(OverridesTest, AnApproximateVariantNeedsConsent) {
  EXPECT_TRUE(absl::IsInvalidArgument(ChooseFor(Environment({"KVR_FORCE_AXPY=half"})).status()));
  const std::vector<ApproximateOptIn> consent = {{"axpy", "half", {{"K0", 3}}}};
  const absl::StatusOr<Choice> choice =
      ChooseFor(Environment({"KVR_FORCE_AXPY=half"}), true, consent);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->selection.config.at("K0"), 3);
  // Naming variant and every quality value by hand is consent as well.
  EXPECT_EQ(
      ChooseFor(Environment({"KVR_FORCE_AXPY=half", "KVR_AXPY_K0=2"}))->selection.config.at("K0"),
      2);
}

TEST_F(OverridesTest, AValueByHandMustAgreeWithTheOptIn) {
  const std::vector<ApproximateOptIn> consent = {{"axpy", "half", {{"K0", 3}}}};
  Overrides environment = Environment({"KVR_FORCE_AXPY=half", "KVR_AXPY_K0=2"});
  const absl::Status status = ChooseFor(environment, true, consent).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(What(status)),
              HasSubstr("KVR_AXPY_K0 sets K0=2 of 'half', and the opt-in is to 'axpy/half{K0=3}'"));
  ASSERT_TRUE(environment.Set(world_.catalog, "axpy", "K0", 1).ok());
  EXPECT_THAT(std::string(What(ChooseFor(environment, true, consent).status())),
              HasSubstr("--set sets K0=1"));
  ASSERT_TRUE(environment.Set(world_.catalog, "axpy", "K0", 3).ok());
  EXPECT_EQ(ChooseFor(environment, true, consent)->selection.config.at("K0"), 3);
}

TEST_F(OverridesTest, ASelectionGivesWayWhereAValueByHandContradictsTheOptIn) {
  const VariantPtr half = *world_.catalog.Find("axpy", "half");
  Selection selected{.variant = half, .config = DefaultConfig(half->tunables)};
  for (const int64_t selected_k0 : {1, 3}) {
    selected.config["K0"] = selected_k0;
    const Choice choice = *Choose(*world_.catalog.ops()[0], &selected,
                                  Environment({"KVR_AXPY_K0=1"}), {{"axpy", "half", {{"K0", 3}}}});
    EXPECT_EQ(choice.selection.variant->name, "baseline");
    EXPECT_TRUE(absl::IsInvalidArgument(choice.refused));
    EXPECT_THAT(choice.why, HasSubstr("KVR_AXPY_K0 sets K0=1"));
    EXPECT_THAT(choice.why, HasSubstr("axpy/half{K0=3}"));
  }
  selected.config["K0"] = 3;
  const Choice agrees = *Choose(*world_.catalog.ops()[0], &selected, Environment({"KVR_AXPY_K0=3"}),
                                {{"axpy", "half", {{"K0", 3}}}});
  EXPECT_EQ(agrees.selection.variant->name, "half");
}

TEST_F(OverridesTest, TheAdviceHasTheValuesThatWereSetByHand) {
  World world({AxpyVariant("baseline", true), [] {
                 auto two = ApproximateVariant();
                 two->tunables.push_back(two->tunables.back());
                 two->tunables.back().name = "K1";
                 return two;
               }()});
  absl::StatusOr<Overrides> overrides =
      Overrides::FromEnvironment(world.catalog, {"KVR_FORCE_AXPY=half", "KVR_AXPY_K0=2"});
  ASSERT_TRUE(overrides.ok()) << overrides.status();
  const absl::Status status = Choose(*world.catalog.ops()[0], nullptr, *overrides, {}).status();
  EXPECT_THAT(std::string(Fix(status)), HasSubstr("--approximate 'axpy/half{K0=2,K1=1}'"));
}

TEST_F(OverridesTest, AnApproximateSelectionServesWithTheOptInsVeryValuesOnly) {
  const VariantPtr half = *world_.catalog.Find("axpy", "half");
  Selection selected{.variant = half, .config = DefaultConfig(half->tunables)};
  selected.config["K0"] = 2;
  selected.config["BLOCK"] = 128;
  const auto choose = [&](const std::vector<ApproximateOptIn>& opt_in,
                          const Overrides& overrides = {}) {
    return *Choose(*world_.catalog.ops()[0], &selected, overrides, opt_in);
  };
  const Choice consented = choose({{"axpy", "half", {{"K0", 2}}}});
  EXPECT_EQ(consented.selection.variant->name, "half");
  EXPECT_EQ(consented.selection.config, selected.config);
  EXPECT_TRUE(consented.from_generation);
  EXPECT_TRUE(consented.refused.ok());

  const Choice other = choose({{"axpy", "half", {{"K0", 3}}}});
  EXPECT_EQ(other.selection.variant->name, "baseline");
  EXPECT_FALSE(other.from_generation);
  EXPECT_THAT(other.why, HasSubstr("the opt-in is to K0=3, not to K0=2"));
  const Choice none = choose({});
  EXPECT_EQ(none.selection.variant->name, "baseline");
  EXPECT_THAT(none.why, HasSubstr("baseline: 'half' of axpy is approximate, and nobody opted in"));
  EXPECT_THAT(std::string(none.refused.message()), HasSubstr("--approximate 'axpy/half{K0=2}'"));
  // One by hand is not the variant's name by hand.
  EXPECT_EQ(choose({}, Environment({"KVR_AXPY_K0=2"})).selection.variant->name, "baseline");
}

TEST_F(OverridesTest, OfAForcedApproximateVariantTheSelectionsValuesHaveNoSay) {
  const VariantPtr half = *world_.catalog.Find("axpy", "half");
  Selection selected{.variant = half, .config = DefaultConfig(half->tunables)};
  selected.config["K0"] = 2;
  const Choice choice =
      *Choose(*world_.catalog.ops()[0], &selected, Environment({"KVR_FORCE_AXPY=half"}),
              {{"axpy", "half", {{"K0", 3}}}});
  EXPECT_EQ(choice.selection.variant->name, "half");
  EXPECT_EQ(choice.selection.config.at("K0"), 3);
  EXPECT_FALSE(choice.from_generation);
}

class OptInTest : public OverridesTest {
 protected:
  std::string ErrorOf(const std::string& text, std::string_view op = "") {
    absl::StatusOr<ApproximateOptIn> opt_in = ParseOptIn(text, op);
    if (!opt_in.ok()) return std::string(opt_in.status().message());
    const absl::Status status = CheckOptIns(world_.catalog, {*opt_in});
    EXPECT_FALSE(status.ok()) << text;
    return std::string(status.message());
  }
};

TEST_F(OptInTest, NamesOpVariantAndEveryQualityTunable) {
  const ApproximateOptIn opt_in = *ParseOptIn("axpy/half{K0=3}");
  EXPECT_EQ(opt_in.op, "axpy");
  EXPECT_EQ(opt_in.variant, "half");
  EXPECT_EQ(opt_in.quality, (Config{{"K0", 3}}));
  EXPECT_EQ(OptInText(opt_in), "axpy/half{K0=3}");
  EXPECT_TRUE(CheckOptIns(world_.catalog, {opt_in}).ok());
  EXPECT_EQ(ParseOptIn("half{K0=3}", "axpy")->op, "axpy");
  EXPECT_EQ(ParseOptIn("axpy/half{}")->quality, Config());
}

TEST_F(OptInTest, ThatSaysTooLittleOrNonsenseIsAnErrorWithTheTextToSay) {
  EXPECT_THAT(ErrorOf("half{K0=3}"), HasSubstr("names no variant"));
  EXPECT_THAT(ErrorOf("/half"), HasSubstr("names no variant"));
  EXPECT_THAT(ErrorOf("axpy/"), HasSubstr("names no variant"));
  EXPECT_THAT(ErrorOf("axpy/half{K0=3"), HasSubstr("op/variant{TUNABLE=value,...}"));
  EXPECT_THAT(ErrorOf("axpy/half{K0}"), HasSubstr("K0"));
  EXPECT_THAT(ErrorOf("gemm/half{K0=3}", "axpy"), HasSubstr("is not about axpy"));
  EXPECT_THAT(ErrorOf("axpy/hal{K0=3}"), HasSubstr("half"));
  EXPECT_THAT(ErrorOf("axpy/half"), HasSubstr("say 'axpy/half{K0=1}', or other values"));
  EXPECT_THAT(ErrorOf("axpy/half{K0=7}"), HasSubstr("1, 2, 3"));
  EXPECT_THAT(ErrorOf("axpy/half{K0=3,BLOCK=64}"), HasSubstr("BLOCK is no quality tunable"));
  EXPECT_THAT(ErrorOf("axpy/half{KO=3}"), HasSubstr("KO is no quality tunable of 'half'"));
  EXPECT_THAT(ErrorOf("axpy/wide"), HasSubstr("is exact"));
  EXPECT_FALSE(
      CheckOptIns(world_.catalog, {{"axpy", "half", {{"K0", 1}}}, {"axpy", "half", {{"K0", 2}}}})
          .ok());
}

TEST_F(OverridesTest, TheLongestOpNameOwnsAVariable) {
  EXPECT_EQ(EnvironmentName("mla_sparse_decode"), "MLA_SPARSE_DECODE");
  EXPECT_EQ(EnvironmentName("a-b.c"), "A_B_C");
}

}  // namespace
}  // namespace kvr
