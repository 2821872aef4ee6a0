// SPDX-License-Identifier: Apache-2.0
//
// The real kvr-worker loads plugins that do wrong, so that this process need not.
#include "tuner/worker/try_plugin.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/install_layout.h"
#include "core/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plugins/scan.h"
#include "plugins/scratch_directory.h"

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

TEST(TryPlugin, CrashOfAPlanFunctionIsNamed) {
  ASSERT_EQ(setenv("KVR_TEST_FAULT", "plan aborts", 1), 0);
  EXPECT_THAT(std::string(TryPlugin(Fixture("kvr_test_faulty.so")).message()),
              HasSubstr("crashes while calling the plan function of scale_rows/planned: killed by "
                        "SIGABRT"));
  ASSERT_EQ(unsetenv("KVR_TEST_FAULT"), 0);
}

TEST(ScratchDirectory, WhatDeadOwnersLeftIsRemovedAndWhatLivingOnesHoldStays) {
  std::string temporary = testing::TempDir() + "/kvr-scratch-XXXXXX";
  ASSERT_NE(mkdtemp(temporary.data()), nullptr);
  const char* before = getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  ASSERT_EQ(setenv("TMPDIR", temporary.c_str(), 1), 0);
  const auto held = ScratchDirectory::Create("plugin");
  ASSERT_TRUE(held.ok()) << held.status();
  before == nullptr ? unsetenv("TMPDIR") : setenv("TMPDIR", kept.c_str(), 1);
  const std::string dead = temporary + "/kvr-binaries-aaaaaa",
                    young = temporary + "/kvr-plugin-bbbbbb", other = temporary + "/kvr-notes";
  for (const std::string& path : {dead, young, other}) std::filesystem::create_directory(path);
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::minutes(5);
  for (const std::string& path : {dead, other, (*held)->path()}) {
    std::filesystem::last_write_time(path, old);
  }
  RemoveAbandonedScratch(temporary);
  EXPECT_FALSE(std::filesystem::exists(dead));
  for (const std::string& path : {young, other, (*held)->path()}) {
    EXPECT_TRUE(std::filesystem::exists(path)) << path;
  }
  std::filesystem::remove_all(temporary);
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
