// SPDX-License-Identifier: Apache-2.0
#include "core/config.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/core/samples.h"

namespace kvr {
namespace {

std::vector<Tunable> Tunables() {
  return {{"BLOCK_H", {16, 32}, 32, Scope::kCompile, ""},
          {"TARGET_CTAS", {128, 256, 512}, 256, Scope::kLaunch, ""},
          {"K0", {-1, 3, 4}, 4, Scope::kQuality, ""}};
}

TEST(Config, ScopesRoundTrip) {
  for (Scope scope : {Scope::kCompile, Scope::kLaunch, Scope::kQuality}) {
    EXPECT_EQ(*ParseScope(ScopeName(scope)), scope);
  }
  EXPECT_THAT(ParseScope("compiled").status(),
              IsError(kInvalid, "unknown scope", "did you mean 'compile'"));
}

TEST(Config, ParsesPartialAssignments) {
  const auto tunables = Tunables();
  EXPECT_EQ(*ParseConfig("K0=-1,BLOCK_H=16", tunables), (Config{{"BLOCK_H", 16}, {"K0", -1}}));
  EXPECT_TRUE(ParseConfig("", tunables)->empty());
  EXPECT_THAT(ParseConfig("BLOCKH=16", tunables).status(),
              IsError(kInvalid, "unknown tunable 'BLOCKH'", "did you mean 'BLOCK_H'"));
  EXPECT_THAT(ParseConfig("BLOCK_H=64", tunables).status(),
              IsError(kInvalid, "cannot be 64", "legal values: 16, 32"));
  EXPECT_THAT(ParseConfig("BLOCK_H=16,BLOCK_H=16", tunables).status(),
              IsError(kInvalid, "twice", "once"));
}

TEST(Config, CheckWantsEveryTunableAndNoOther) {
  const auto tunables = Tunables();
  Config config = DefaultConfig(tunables);
  EXPECT_TRUE(CheckConfig(config, tunables).ok());
  config["K0"] = 99;
  EXPECT_THAT(CheckConfig(config, tunables), IsError(kInvalid, "cannot be 99", "-1, 3, 4"));
  config.erase("K0");
  EXPECT_THAT(CheckConfig(config, tunables), IsError(kInvalid, "lacks tunable 'K0'", "is 4"));
  config["K1"] = 3;
  EXPECT_THAT(CheckConfig(config, tunables), IsError(kInvalid, "'K1'", "did you mean 'K0'"));
}

TEST(Config, EnumerateGivesEachSearchedConfigOnceDefaultFirst) {
  const auto tunables = Tunables();
  const std::vector<Config> all = Enumerate(tunables, {});
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[0], DefaultConfig(tunables));
  EXPECT_EQ(std::set<Config>(all.begin(), all.end()).size(), all.size());
  for (const Config& config : all) {
    EXPECT_TRUE(CheckConfig(config, tunables).ok());
    EXPECT_EQ(config.at("K0"), 4) << "quality is never searched";
  }
  std::vector<std::string> rest;
  for (size_t i = 1; i < all.size(); ++i) rest.push_back(ConfigText(all[i]));
  EXPECT_THAT(rest, testing::ElementsAre(
                        "BLOCK_H=16,K0=4,TARGET_CTAS=128", "BLOCK_H=16,K0=4,TARGET_CTAS=256",
                        "BLOCK_H=16,K0=4,TARGET_CTAS=512", "BLOCK_H=32,K0=4,TARGET_CTAS=128",
                        "BLOCK_H=32,K0=4,TARGET_CTAS=512"));
}

TEST(Config, EnumeratePinsWhatIsFixed) {
  const std::vector<Config> all = Enumerate(Tunables(), {{"K0", 3}, {"TARGET_CTAS", 512}});
  ASSERT_EQ(all.size(), 2u);
  for (const Config& config : all) {
    EXPECT_EQ(config.at("K0"), 3);
    EXPECT_EQ(config.at("TARGET_CTAS"), 512);
  }
  EXPECT_EQ(Enumerate({}, {}), std::vector<Config>{Config{}});
}

TEST(Config, CompileScopeLeavesLaunchTunablesOut) {
  const auto tunables = Tunables();
  EXPECT_EQ(CompileScope(DefaultConfig(tunables), tunables), (Config{{"BLOCK_H", 32}, {"K0", 4}}));
}

}  // namespace
}  // namespace kvr
