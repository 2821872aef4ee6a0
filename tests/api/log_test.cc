// SPDX-License-Identifier: Apache-2.0
//
// One JSON object an event, off unless asked for, and a launch never waits for it.
#include "api/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "api/runtime.h"
#include "core/status.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Json = nlohmann::json;

class LogTest : public ::testing::Test {
 protected:
  LogTest()
      : file_(std::filesystem::temp_directory_path() / ("kvr-log-" + std::to_string(getpid()))) {}
  ~LogTest() override {
    unsetenv("KVR_LOG");
    unsetenv("KVR_LOG_FILE");
    std::filesystem::remove(file_);
  }
  std::unique_ptr<Log> Open(std::string_view level) const {
    absl::StatusOr<std::unique_ptr<Log>> log = Log::Open(level, file_);
    EXPECT_TRUE(log.ok()) << log.status();
    return *std::move(log);
  }
  // What was logged, of `event` alone if one is given.
  std::vector<Json> Lines(const std::string& event = "") const {
    std::vector<Json> lines;
    std::ifstream file(file_);
    for (std::string line; std::getline(file, line);) {
      Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
      EXPECT_TRUE(json.is_object()) << line;
      if (event.empty() || json["event"] == event) lines.push_back(std::move(json));
    }
    return lines;
  }

  const std::filesystem::path file_;
};

TEST_F(LogTest, EveryLineHasTimeLevelAndEvent) {
  const auto log = Open("debug");
  log->Boot("NVIDIA H200", "h200.json", "00ff");
  log->Load("op", {}, 1.5);
  log->Publish({.trigger = "bundle", .outcome = "published", .prepare_ms = 2});
  log->Apply({.outcome = Applied::kApplied, .nodes = 8, .microseconds = 6.6});
  const std::vector<Json> lines = Lines();
  ASSERT_THAT(lines, SizeIs(4));
  for (const Json& line : lines) {
    EXPECT_THAT(line["time"].get<std::string>(),
                ::testing::MatchesRegex("....-..-..T..:..:..\\....Z"));
    EXPECT_TRUE(line["level"].is_string());
  }
  EXPECT_EQ(lines[0]["device"], "NVIDIA H200");
  EXPECT_EQ(lines[1]["op"], "op");
  EXPECT_EQ(lines[2]["trigger"], "bundle");
  EXPECT_EQ(lines[3]["nodes"], 8);
  EXPECT_EQ(lines[3]["way"], "node");
}

TEST_F(LogTest, InfoLeavesEveryApplyOutAndTellsRecaptures) {
  const auto log = Open("info");
  log->Apply({.outcome = Applied::kApplied, .nodes = 8});
  log->Apply({.outcome = Applied::kUnchanged});
  log->Apply({.outcome = Applied::kNeedsRecapture, .reason = "launch 3: another kind of edge"});
  const std::vector<Json> lines = Lines();
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_EQ(lines[0]["event"], "recapture");
  EXPECT_EQ(lines[0]["level"], "warning");
  EXPECT_EQ(lines[0]["reason"], "launch 3: another kind of edge");
}

TEST_F(LogTest, AFailureIsAWarningWithItsReason) {
  Open("info")->Publish(
      {.trigger = "selection-file", .outcome = "failed", .reason = "no such variant"});
  ASSERT_THAT(Lines(), SizeIs(1));
  EXPECT_EQ(Lines()[0]["level"], "warning");
  EXPECT_EQ(Lines()[0]["reason"], "no such variant");
}

TEST_F(LogTest, WhatOthersWroteStaysOneLineOfJson) {
  const std::string hostile = "a\nb\"c\\d\x01\xff{}%v{0}";
  Open("info")->Publish(
      {.trigger = hostile, .who = hostile, .changes = {hostile}, .reason = hostile});
  const std::vector<Json> lines = Lines();
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_THAT(lines[0]["trigger"].get<std::string>(), HasSubstr("a\nb\"c\\d"));
}

TEST_F(LogTest, AppendsToWhatIsThere) {
  Open("info")->Boot("first", "", "");
  Open("info")->Boot("second", "", "");
  EXPECT_THAT(Lines(), SizeIs(2));
}

TEST_F(LogTest, IsOffUnlessAskedFor) {
  const absl::StatusOr<std::unique_ptr<Log>> unset = Log::FromEnvironment();
  ASSERT_TRUE(unset.ok()) << unset.status();
  EXPECT_EQ(*unset, nullptr);
  setenv("KVR_LOG", "", 1);
  EXPECT_EQ(Log::FromEnvironment().value(), nullptr);
}

TEST_F(LogTest, AnUnknownLevelAndAnUnwritableFileAreErrorsThatSayWhatIsRight) {
  setenv("KVR_LOG", "verbose", 1);
  const absl::Status level = Log::FromEnvironment().status();
  EXPECT_EQ(level.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Fix(level)), HasSubstr("debug"));
  EXPECT_FALSE(Runtime::Open({.device = "null", .compilers = false}).ok());
  setenv("KVR_LOG", "info", 1);
  setenv("KVR_LOG_FILE", "/proc/nowhere/kvr.log", 1);
  const absl::Status file = Log::FromEnvironment().status();
  EXPECT_EQ(file.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(What(file)), HasSubstr("/proc/nowhere/kvr.log"));
}

TEST_F(LogTest, EachMissedKeyIsToldOnceHoweverOftenItIsMissed) {
  const auto log = Open("info");
  const std::vector<Miss> misses = {
      {.op = "op", .key = {{"n", 8}}, .reason = MissReason::kNotLoaded, .count = 7},
      {.op = "op", .key = {{"n", 16}}, .reason = MissReason::kNotSelected, .count = 1}};
  ASSERT_TRUE(log->WatchMisses([&] { return misses; }).ok());
  log->StopWatching();
  ASSERT_TRUE(log->WatchMisses([&] { return misses; }).ok());
  log->StopWatching();
  const std::vector<Json> told = Lines("miss");
  ASSERT_THAT(told, SizeIs(2));
  EXPECT_EQ(told[0]["key"], "n=8");
  EXPECT_EQ(told[0]["reason"], "not loaded");
  EXPECT_EQ(told[0]["count"], 7);
}

TEST_F(LogTest, ARuntimeTellsOfItsBootAndItsPublications) {
  setenv("KVR_LOG", "info", 1);
  setenv("KVR_LOG_FILE", file_.c_str(), 1);
  const auto runtime = Runtime::Open({.device = "null", .compilers = false}).value();
  ASSERT_THAT(Lines("boot"), SizeIs(1));
  runtime->SetJournal(nullptr);
  const DeviceInfo& device = runtime->device().info();
  ASSERT_TRUE(runtime->Publish(GenerationBuilder(device.model, device.target).Build(1)).ok());
  runtime->dispatcher().RecordFailure({.trigger = "bundle", .reason = "it does not compile"});
  const std::vector<Json> told = Lines("publish");
  ASSERT_THAT(told, SizeIs(2));
  EXPECT_EQ(told[1]["reason"], "it does not compile");
}

}  // namespace
}  // namespace kvr
