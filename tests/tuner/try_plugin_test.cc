// SPDX-License-Identifier: Apache-2.0
//
// The real kvr-worker loads plugins that do wrong, so that this process need not.
#include "tuner/worker/try_plugin.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/install_layout.h"
#include "core/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plugins/scan.h"

namespace kvr {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Fixture(const char* name) {
  return InstallPath(std::string("tests/fixtures/plugins/") + name);
}

TEST(TryPlugin, GoodOneIsAccepted) {
  EXPECT_TRUE(TryPlugin(Fixture("kvr_test_demo.so")).ok());
  EXPECT_TRUE(TryPlugin(Fixture("kvr_test_data.so")).ok());
}

TEST(TryPlugin, CrashIsNamed) {
  const std::string path = Fixture("kvr_test_faulty.so");
  ASSERT_EQ(setenv("KVR_TEST_FAULT", "abort", 1), 0);
  EXPECT_THAT(std::string(TryPlugin(path).message()),
              AllOf(HasSubstr(path), HasSubstr("crashes when it is loaded: killed by SIGABRT")));
  ASSERT_EQ(setenv("KVR_TEST_FAULT", "exit", 1), 0);
  EXPECT_THAT(std::string(TryPlugin(path).message()), HasSubstr("exited with status 0"));
  ASSERT_EQ(setenv("KVR_TEST_FAULT", "small", 1), 0);
  EXPECT_THAT(std::string(TryPlugin(path).message()),
              AllOf(HasSubstr(path), HasSubstr("size 12 is too small")));
  ASSERT_EQ(unsetenv("KVR_TEST_FAULT"), 0);
}

TEST(TryPlugin, CrashLeavesNoFiles) {
  std::string directory = testing::TempDir() + "/kvr-try-XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  ASSERT_EQ(setenv("TMPDIR", directory.c_str(), 1), 0);
  ASSERT_EQ(setenv("KVR_TEST_FAULT", "abort", 1), 0);
  EXPECT_FALSE(TryPlugin(Fixture("kvr_test_faulty.so")).ok());
  ASSERT_EQ(unsetenv("KVR_TEST_FAULT"), 0);
  ASSERT_EQ(unsetenv("TMPDIR"), 0);
  EXPECT_TRUE(std::filesystem::is_empty(directory));
  std::filesystem::remove(directory);
}

TEST(TryPlugin, NoPluginIsSaidAsAScanSaysIt) {
  EXPECT_THAT(std::string(TryPlugin(Fixture("kvr_test_bare.so")).message()),
              HasSubstr("is no KVR plugin"));
}

TEST(TryPlugin, WhatCrashesIsListedButItsCodeNeverLoadedHere) {
  const std::string path = Fixture("kvr_test_faulty.so");
  ASSERT_EQ(setenv("KVR_TEST_FAULT", "abort", 1), 0);
  const Scan scan = ScanPlugins({&path, 1}, {.check_load = TryPlugin});
  ASSERT_EQ(scan.operations.size(), 1u);
  EXPECT_EQ(scan.variants.size(), 3u);
  EXPECT_THAT(std::string(scan.operations[0]->Reference({1, 1}, {}, 1).status().message()),
              HasSubstr("killed by SIGABRT"));
  ASSERT_EQ(unsetenv("KVR_TEST_FAULT"), 0);
}

}  // namespace
}  // namespace kvr
