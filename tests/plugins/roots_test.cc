// SPDX-License-Identifier: Apache-2.0
#include "plugins/roots.h"

#include <cstdlib>
#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvr {
namespace {

using testing::ElementsAre;

TEST(Roots, PathIsSplitAtColonsAndEmptyElementsAreLeftOut) {
  EXPECT_THAT(SplitPluginPath("/a:b/c::"), ElementsAre("/a", "b/c"));
  EXPECT_TRUE(SplitPluginPath("").empty());
}

TEST(Roots, BuiltinComesFirstThenEnvironmentThenCaller) {
  ASSERT_EQ(setenv("KVR_PLUGIN_PATH", "/env", 1), 0);
  EXPECT_THAT(BundleRoots({std::string("/extra")}),
              ElementsAre(BuiltinVariantsDirectory(), "/env", "/extra"));
  ASSERT_EQ(unsetenv("KVR_PLUGIN_PATH"), 0);
  EXPECT_THAT(BundleRoots({}), ElementsAre(BuiltinVariantsDirectory()));
}

TEST(Roots, BuildTreeFindsTheSourceTreesVariants) {
  EXPECT_EQ(BuiltinVariantsDirectory(), std::string(KVR_SOURCE_DIR) + "/variants");
  EXPECT_TRUE(std::filesystem::is_directory(BuiltinVariantsDirectory()));
}

}  // namespace
}  // namespace kvr
