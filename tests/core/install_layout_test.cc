// SPDX-License-Identifier: Apache-2.0
#include "core/install_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/status.h"

namespace kvr {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr char kVariable[] = "KVR_TEST_PART";
constexpr Part kPart = {"the part", kVariable, "share/kvr/no-such-part", "inside/it", "unpack it"};

class InstallLayout : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::temp_directory_path() / ("kvr layout é " + std::to_string(getpid()));
    fs::create_directories(directory_ / "inside");
  }
  void TearDown() override {
    unsetenv(kVariable);
    fs::remove_all(directory_);
  }
  fs::path directory_;
};

TEST_F(InstallLayout, ThePrefixIsAroundTheExecutable) {
  EXPECT_EQ(OwnPath(), fs::read_symlink("/proc/self/exe"));
  EXPECT_EQ(InstallPath(""), fs::path(OwnPath()).parent_path().parent_path());
  EXPECT_EQ(InstallPath("lib/x"), InstallPath("") + "/lib/x");
}

TEST_F(InstallLayout, WhatTheEnvironmentNamesIsTheOnlyPlace) {
  setenv(kVariable, directory_.c_str(), 1);
  const absl::Status missing = FindPart(kPart).status();
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_THAT(std::string(What(missing)), HasSubstr(kVariable));
  EXPECT_THAT(std::string(What(missing)), HasSubstr((directory_ / "inside/it").string()));
  std::ofstream(directory_ / "inside/it") << "x";
  EXPECT_EQ(*FindPart(kPart), directory_);
}

TEST_F(InstallLayout, LinksAreResolved) {
  std::ofstream(directory_ / "inside/it") << "x";
  fs::create_directory_symlink(directory_, directory_ / "link");
  setenv(kVariable, (directory_ / "link").c_str(), 1);
  EXPECT_EQ(*FindPart(kPart), directory_);
}

TEST_F(InstallLayout, WhatIsNowhereIsExplained) {
  for (const char* value : {static_cast<const char*>(nullptr), ""}) {
    if (value != nullptr) setenv(kVariable, value, 1);
    const absl::Status missing = FindPart(kPart).status();
    EXPECT_TRUE(absl::IsNotFound(missing));
    EXPECT_THAT(std::string(What(missing)), HasSubstr("the part: there is no "));
    EXPECT_THAT(std::string(What(missing)), HasSubstr(InstallPath(kPart.relative)));
    EXPECT_EQ(Fix(missing), "unpack it");
  }
}

TEST_F(InstallLayout, ABuildTreeIsLaidOutLikeAnInstall) {
  EXPECT_EQ(*FindPart({"headers", nullptr, "share/kvr/sdk/device", "kvr/device.cuh", ""}),
            KVR_SOURCE_DIR "/sdk/device");
}

}  // namespace
}  // namespace kvr
