// SPDX-License-Identifier: Apache-2.0
#include "devices/profiles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/status.h"

namespace kvr {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;
using testing::HasSubstr;

constexpr char kGood[] = R"(name = "A GPU"
model = "a-gpu"
other_models = ["a-gpu-of-another-name"]
target = "sm_90a"
sms = 2
max_threads_per_block = 1024
max_threads_per_sm = 2048
max_blocks_per_sm = 32
max_cluster_size = 8
regs_per_sm = 65536
regs_per_block = 65536
smem_per_sm = 233472
smem_per_block = 232448
smem_reserved_per_block = 1024
l2_bytes = 1000
memory_bandwidth = 1_000_000_000
)";

std::string Replace(std::string text, std::string_view from, std::string_view to) {
  return text.replace(text.find(from), from.size(), to);
}

class OwnDirectory : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::temp_directory_path() / ("kvr-profiles-" + std::to_string(getpid()));
    fs::create_directories(directory_);
    setenv("KVR_PROFILES_DIR", directory_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("KVR_PROFILES_DIR");
    fs::remove_all(directory_);
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ / name) << text;
  }

  fs::path directory_;
};

TEST(Profiles, TheKnownOnesLoadAndMakeSense) {
  const auto names = ListProfiles();
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT(*names, testing::IsSupersetOf(
                          {"a100-sxm", "h100-sxm", "h200", "l40s", "rtx-pro-6000-blackwell"}));
  for (const std::string& name : *names) {
    const auto info = LoadProfile(name);
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(info->kind, "profile");
    EXPECT_EQ(info->smem_per_sm, info->smem_per_block + info->smem_reserved_per_block) << name;
    EXPECT_EQ(info->max_threads_per_sm % 32, 0);
    EXPECT_GT(info->memory_bandwidth, 1e11) << name;
    const auto same = LoadProfileOfModel(info->model);
    ASSERT_TRUE(same.ok()) << same.status();
    EXPECT_EQ(same->name, info->name);
  }
}

TEST(Profiles, BlackwellIsWhatTheCampaignRanOn) {
  const auto info = LoadProfile("rtx-pro-6000-blackwell");
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->target, "sm_120a");
  EXPECT_EQ(info->sms, 188);
  EXPECT_EQ(info->smem_per_block, 101376);
  EXPECT_EQ(info->max_threads_per_sm, 1536);
}

TEST(Profiles, UnknownNameListsTheKnown) {
  const auto info = LoadProfile("h20");
  EXPECT_EQ(info.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(Fix(info.status())),
              testing::AllOf(HasSubstr("h200"), HasSubstr("l40s")));
  EXPECT_EQ(LoadProfile("../profiles/h200").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(LoadProfile("").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(LoadProfileOfModel("nobody-s-gpu").status().code(), StatusCode::kNotFound);
}

TEST(Profiles, WellFormedTextIsRead) {
  const auto info = ParseProfile(kGood, "a.toml");
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->name, "A GPU");
  EXPECT_EQ(info->max_cluster_size, 8);
  EXPECT_EQ(info->memory_bandwidth, 1e9);
}

TEST(Profiles, MalformedTextIsRefusedWithPlaceAndFix) {
  const struct {
    std::string text, what;
  } cases[] = {
      {Replace(kGood, "sms = 2", "smss = 2"), "'sms' is missing"},
      {std::string(kGood) + "clusters = 2\n", "a.toml:17:"},
      {std::string(kGood) + "clusters = 2\n", "'clusters' is not a key of a profile"},
      {std::string(kGood) + "sms = 3\n", "a.toml:17:"},
      {Replace(kGood, "sms = 2", "sms = \"2\""), "a.toml:5:7: 'sms'"},
      {Replace(kGood, "sms = 2", "sms = 2.0"), "'sms' is not a number"},
      {Replace(kGood, "sms = 2", "sms = 0"), "'sms' is not a number that makes sense"},
      {Replace(kGood, "sms = 2", "sms = -2"), "'sms'"},
      {Replace(kGood, "sms = 2", "sms = 3000000000"), "'sms' is too large"},
      {Replace(kGood, "name = \"A GPU\"", "name = \"\""), "'name' is not a text"},
      {Replace(kGood, "[\"a-gpu-of-another-name\"]", "\"x\""), "'other_models' is not a list"},
      {Replace(kGood, "sms = 2", "sms = "), "a.toml:5:"},
      {"", "'name' is missing"},
  };
  for (const auto& c : cases) {
    const auto info = ParseProfile(c.text, "a.toml");
    EXPECT_EQ(info.status().code(), StatusCode::kInvalidArgument) << c.what;
    EXPECT_THAT(std::string(What(info.status())), HasSubstr(c.what));
    EXPECT_FALSE(Fix(info.status()).empty()) << c.what;
  }
}

TEST_F(OwnDirectory, ReplacesTheInstalledOne) {
  Write("mine.toml", kGood);
  Write("notes.txt", "no profile");
  EXPECT_EQ(*ListProfiles(), std::vector<std::string>{"mine"});
  EXPECT_EQ(LoadProfile("mine")->name, "A GPU");
  EXPECT_FALSE(LoadProfile("h200").ok());
}

TEST_F(OwnDirectory, ThatIsMissingIsAnError) {
  fs::remove_all(directory_);
  const auto names = ListProfiles();
  EXPECT_EQ(names.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(names.status().message()), HasSubstr("KVR_PROFILES_DIR"));
}

TEST_F(OwnDirectory, FindsAModelUnderItsOtherNamesPastABrokenFile) {
  Write("aaa.toml", "not a profile");
  Write("mine.toml", kGood);
  const auto info = LoadProfileOfModel("a-gpu-of-another-name");
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->model, "a-gpu");
  EXPECT_THAT(std::string(LoadProfile("aaa").status().message()),
              HasSubstr((directory_ / "aaa.toml").string() + ":1:"));
}

// Started by the next test, from an executable that lies in PREFIX/bin.
TEST(Profiles, DISABLED_SeenFromAnInstall) {
  EXPECT_EQ(*ListProfiles(), std::vector<std::string>{"installed"});
}

TEST(Profiles, AreFoundBesideAnInstalledExecutable) {
  const fs::path prefix =
      fs::temp_directory_path() / ("kvr-profiles-install-" + std::to_string(getpid()));
  fs::create_directories(prefix / "bin");
  fs::create_directories(prefix / "share/kvr/profiles");
  std::ofstream(prefix / "share/kvr/profiles/installed.toml") << kGood;
  fs::copy_file(fs::read_symlink("/proc/self/exe"), prefix / "bin/test");
  const std::string command = (prefix / "bin/test").string() +
                              " --gtest_also_run_disabled_tests"
                              " --gtest_filter=Profiles.DISABLED_SeenFromAnInstall >/dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0);
  fs::remove_all(prefix);
}

}  // namespace
}  // namespace kvr
