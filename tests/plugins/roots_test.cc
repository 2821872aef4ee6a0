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
  EXPECT_THAT(PluginRoots({std::string("/extra")}),
              ElementsAre(BuiltinPluginsDirectory(), "/env", "/extra"));
  ASSERT_EQ(unsetenv("KVR_PLUGIN_PATH"), 0);
  EXPECT_THAT(PluginRoots({}), ElementsAre(BuiltinPluginsDirectory()));
}

TEST(Roots, BuildTreeIsLaidOutAsAnInstall) {
  EXPECT_EQ(BuiltinPluginsDirectory(),
            std::filesystem::path(KVR_BIN_DIR).parent_path() / "lib/kvr/plugins");
}

}  // namespace
}  // namespace kvr
