// SPDX-License-Identifier: Apache-2.0
//
// The composition root on any machine: no GPU, no compiler needed; what is missing is explained.
#include "api/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "api/platform.h"
#include "core/status.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;

class ApiTest : public ::testing::Test {
 protected:
  ApiTest() {
    directory_ = std::filesystem::temp_directory_path() / ("kvr-api-" + std::to_string(getpid()));
    std::filesystem::create_directory(directory_);
    setenv("KVR_CACHE_DIR", (directory_ / "cache").c_str(), 1);
  }
  ~ApiTest() override {
    for (const char* name : {"KVR_CACHE_DIR", "KVR_HOST_MODULE", "KVR_NO_CUDA", "KVR_SDK_DIR",
                             "KVR_FORCE_MLA_SPARSE_DECODE"}) {
      unsetenv(name);
    }
    std::filesystem::remove_all(directory_);
  }
  static const Component* Find(const Platform& platform, const std::string& name) {
    for (const Component& component : platform.components()) {
      if (component.name == name) return &component;
    }
    return nullptr;
  }
  static RuntimeOptions OnNull() { return {.device = "null", .compilers = false}; }

  std::filesystem::path directory_;
};

TEST_F(ApiTest, TheBuiltInVariantsAreFoundAndTheBaselineIsThere) {
  const absl::StatusOr<std::unique_ptr<Platform>> platform = Platform::Open({.compilers = false});
  ASSERT_TRUE(platform.ok()) << platform.status();
  EXPECT_TRUE((*platform)->catalog().Baseline("mla_sparse_decode").ok());
  EXPECT_TRUE((*platform)->catalog().rejections().empty());
  EXPECT_FALSE((*platform)->sdk_dir().empty());
  EXPECT_EQ(Find(**platform, "variants")->state, Component::State::kReady);
}

TEST_F(ApiTest, WhatIsMissingIsExplainedAndNothingFails) {
  setenv("KVR_NO_CUDA", "1", 1);
  setenv("KVR_HOST_MODULE", "/nonexistent/libkvr_host.so", 1);
  setenv("KVR_SDK_DIR", "/nonexistent", 1);
  const absl::StatusOr<std::unique_ptr<Platform>> platform =
      Platform::Open({.plugin_roots = {"/nonexistent/plugins"}});
  ASSERT_TRUE(platform.ok()) << platform.status();
  for (const char* name : {"cuda", "host module", "nvrtc", "device headers", "bundle"}) {
    const Component* component = Find(**platform, name);
    ASSERT_NE(component, nullptr) << name;
    EXPECT_NE(component->state, Component::State::kReady) << name;
    EXPECT_FALSE(component->explanation.empty()) << name;
  }
  EXPECT_EQ((*platform)->DeviceNames(), std::vector<std::string>{"null"});
  EXPECT_TRUE((*platform)->OpenDevice("null").ok());
  const absl::Status none = (*platform)->OpenDevice("auto").status();
  EXPECT_THAT(std::string(What(none)), HasSubstr("KVR_NO_CUDA"));
  EXPECT_THAT(std::string(What(none)), HasSubstr("libkvr_host.so"));
}

TEST_F(ApiTest, AFileThatIsNoHostModuleIsRefusedByName) {
  const std::string path = directory_ / "libkvr_host.so";
  std::ofstream(path) << "not a library";
  setenv("KVR_HOST_MODULE", path.c_str(), 1);
  const absl::StatusOr<std::unique_ptr<Platform>> platform = Platform::Open({});
  const absl::Status status = (*platform)->OpenDevice("host").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(What(status)), HasSubstr("libkvr_host.so"));
}

TEST_F(ApiTest, UnknownDevicesAreAnsweredWithTheKnownOnes) {
  const absl::StatusOr<std::unique_ptr<Platform>> platform = Platform::Open({.compilers = false});
  EXPECT_THAT(std::string(Fix((*platform)->OpenDevice("cudda").status())), HasSubstr("cuda"));
  for (const char* name : {"cuda:", "cuda:x", "cuda:-1", "cuda:99999"}) {
    EXPECT_FALSE((*platform)->OpenDevice(name).ok()) << name;
  }
}

TEST_F(ApiTest, ARuntimeWithoutBinariesSaysWhyNothingIsReady) {
  const absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Open(OnNull());
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  EXPECT_EQ((*runtime)->generation()->number(), 0);
  const absl::StatusOr<LoadReport> report = (*runtime)->Load("mla_sparse_decode", {{}});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->ready());
  EXPECT_THAT(report->Text(), HasSubstr("not ready"));
  EXPECT_FALSE(report->fallback.ok());
  EXPECT_TRUE(absl::IsNotFound((*runtime)->Load("mla_sparse_decod", {{}}).status()));
}

TEST_F(ApiTest, ForcedChoicesAreCheckedAtOpen) {
  RuntimeOptions options = OnNull();
  options.forced = {.op = "mla_sparse_decode", .variant = "bassline", .tunables = {}};
  EXPECT_THAT(std::string(Fix(Runtime::Open(options).status())), HasSubstr("baseline"));
  options.forced = {.op = "mla_sparse_decode", .variant = "", .tunables = {"BLOCK_H=17"}};
  EXPECT_THAT(std::string(What(Runtime::Open(options).status())), HasSubstr("17"));
  options.forced = {};
  setenv("KVR_FORCE_MLA_SPARSE_DECODE", "nobody", 1);
  EXPECT_THAT(std::string(What(Runtime::Open(options).status())),
              HasSubstr("KVR_FORCE_MLA_SPARSE_DECODE"));
  options.environment = false;
  EXPECT_TRUE(Runtime::Open(options).ok());
}

TEST_F(ApiTest, ABadSelectionFileIsRefusedAtOpen) {
  RuntimeOptions options = OnNull();
  options.selection_file = directory_ / "none.json";
  EXPECT_TRUE(absl::IsNotFound(Runtime::Open(options).status()));
  std::ofstream(options.selection_file) << "{}";
  EXPECT_TRUE(absl::IsInvalidArgument(Runtime::Open(options).status()));
}

TEST_F(ApiTest, AWrittenSelectionFileIsWhatTheNextProcessServes) {
  const absl::StatusOr<std::unique_ptr<Runtime>> first = Runtime::Open(OnNull());
  ASSERT_TRUE(first.ok());
  const DeviceInfo& info = (*first)->device().info();
  const GenerationPtr generation = GenerationBuilder(info.model, info.target).Build(4);
  RuntimeOptions options = OnNull();
  options.selection_file = directory_ / "selections.json";
  ASSERT_TRUE(WriteSelectionFile(*generation, options.selection_file).ok());
  const absl::StatusOr<std::unique_ptr<Runtime>> second = Runtime::Open(options);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->generation()->digest(), generation->digest());
  EXPECT_TRUE((*second)->dropped().empty());
}

TEST_F(ApiTest, PublicationsGoBesideTheSelectionFileUnlessToldOtherwise) {
  const absl::StatusOr<std::unique_ptr<Runtime>> first = Runtime::Open(OnNull());
  ASSERT_TRUE(first.ok());
  const DeviceInfo& info = (*first)->device().info();
  RuntimeOptions options = OnNull();
  options.selection_file = directory_ / "selections.json";
  ASSERT_TRUE(WriteSelectionFile(*GenerationBuilder(info.model, info.target).Build(1),
                                 options.selection_file)
                  .ok());
  const auto lines = [](const std::string& path) {
    std::ifstream file(path);
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  };
  ASSERT_TRUE(Runtime::Open(options).ok());
  EXPECT_EQ(lines(options.selection_file + ".journal"), 1);  // the boot
  options.journal = "none";
  ASSERT_TRUE(Runtime::Open(options).ok());
  EXPECT_EQ(lines(options.selection_file + ".journal"), 1);
  options.journal = directory_ / "own";
  ASSERT_TRUE(Runtime::Open(options).ok());
  EXPECT_EQ(lines(options.journal), 1);
  options.journal = directory_ / "nowhere" / "own";  // asked for, so it must be there
  EXPECT_TRUE(absl::IsNotFound(Runtime::Open(options).status()));
}

}  // namespace
}  // namespace kvr
