// SPDX-License-Identifier: Apache-2.0
//
// A running program over its socket: status, rollback, what bad clients get, on the null device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "api/live_steps.h"
#include "core/status.h"
#include "core/strings.h"
#include "tests/api/live_fixture.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;

std::string ReadAnswer(Connection& connection) {
  std::string line;
  EXPECT_EQ(connection.ReadLine(&line, kLongestAnswer, kPatience), Connection::Read::kLine);
  return line;
}

TEST_F(LiveTest, StatusTellsWhatServesAndHowItCame) {
  Start();
  Publish("topk:pow2", 7);
  ASSERT_TRUE(live_->BeginStep("48").ok());
  live_->EndStep("48", 1000);
  live_->CountError();
  const LiveJson status = Status();
  EXPECT_EQ(status["program"], "program");
  EXPECT_EQ(status["pid"], getpid());
  EXPECT_EQ(status["device"]["kind"], "null");
  EXPECT_EQ(status["generation"]["number"], 7);
  EXPECT_EQ(status["generation"]["digest"], runtime_->generation()->digest().Hex());
  EXPECT_EQ(status["steps"]["steps"], 1);
  EXPECT_EQ(status["steps"]["errors"], 1);
  EXPECT_EQ(status["steps"]["buckets"][0]["bucket"], "48");
  EXPECT_NEAR(status["steps"]["buckets"][0]["p50_us"].get<double>(), 1000, 50);
  EXPECT_EQ(status["publications"][0]["trigger"], "api");
  EXPECT_FALSE(status["plugins"]["loaded"].empty());
  EXPECT_FALSE(status["swapper"].get<bool>());
  EXPECT_TRUE(status["live_ab"].is_null());
}

TEST_F(LiveTest, TheSocketIsForItsOwnerAloneAndGoesWithTheProgram) {
  Start();
  struct stat found {};
  ASSERT_EQ(stat(socket_.c_str(), &found), 0);
  EXPECT_TRUE(S_ISSOCK(found.st_mode));
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  live_.reset();
  EXPECT_FALSE(std::filesystem::exists(socket_));
  EXPECT_TRUE(absl::IsNotFound(LiveClient::Connect(socket_).status()));
}

TEST_F(LiveTest, AStaleSocketIsReplacedALiveOneAndOtherFilesAreNot) {
  Start();
  const absl::Status second = Live::Start(*runtime_, nullptr, {.socket = socket_}).status();
  EXPECT_TRUE(absl::IsAlreadyExists(second)) << second;
  EXPECT_THAT(std::string(What(second)), HasSubstr(StrCat("pid ", getpid())));
  EXPECT_EQ(Status()["program"], "program");  // it was not disturbed
  std::filesystem::rename(socket_, socket_ + ".kept");
  live_.reset();  // leaves what is not its own at that place any more
  ASSERT_TRUE(std::filesystem::exists(socket_ + ".kept"));
  std::filesystem::rename(socket_ + ".kept", socket_);  // nobody listens on it
  Start();
  EXPECT_EQ(Status()["program"], "program");
  const std::string file = directory_ / "file";
  fclose(fopen(file.c_str(), "w"));
  const absl::Status refused = Live::Start(*runtime_, nullptr, {.socket = file}).status();
  EXPECT_THAT(std::string(What(refused)), HasSubstr("is no socket"));
  EXPECT_TRUE(std::filesystem::exists(file));
}

TEST_F(LiveTest, APathThatTheSystemDoesNotTakeIsRefusedWithItsLimit) {
  Start();
  const std::string path = (directory_ / std::string(120, 'x')).string();
  const absl::Status status = Live::Start(*runtime_, nullptr, {.socket = path}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(Fix(status)), HasSubstr("107"));
  EXPECT_TRUE(absl::IsInvalidArgument(LiveClient::Connect(path).status()));
  EXPECT_FALSE(Live::Start(*runtime_, nullptr, {.socket = "/nowhere/kvr.sock"}).ok());
}

TEST_F(LiveTest, GarbageIsAnsweredAndTheConnectionStays) {
  Start();
  const std::unique_ptr<Connection> raw = Raw();
  const std::string deep(100'000, '[');
  const std::pair<std::string, std::string> cases[] = {
      {"", "no JSON object"},
      {"garbage", "no JSON object"},
      {"[1]", "no JSON object"},
      {deep, "no JSON object"},
      {std::string("\0\xff\xfe", 3), "no JSON object"},
      {"{}", "command '' is unknown"},
      {R"({"command": 3})", "'command' is not a text"},
      {R"({"command": "explode"})", "'explode' is unknown"},
      {R"({"command": "status", "x": 1})", "field 'x' is unknown"},
      {R"({"command": "swap"})", "does not say what should serve"},
      {R"({"command": "swap", "op": "a", "bundle": "/b"})", "go together"},
      {R"({"command": "swap", "bundle": "b"})", "relative path"},
      {R"({"command": "swap", "op": "a", "variant": "b", "keys": [1]})", "'keys' is not"},
      {R"({"command": "ab", "b": {"digest": "current"}, "block": 0})", "'block' is not"},
      {R"({"command": "ab", "b": {"digest": "current"}, "block": 2})", "warm-up"},
      {R"({"command": "ab", "b": {"digest": "current"}, "seconds": -1})", "'seconds' is not"},
      {R"({"command": "ab"})", "does not say what should serve"},
      {R"({"command": "stop"})", "no live A/B"},
      {R"({"command": "swap", "op": "a", "variant": "b"})", "without a swapper"},
      {R"({"command": "rollback", "digest": "xyz"})", "xyz"},
  };
  for (const auto& [line, wanted] : cases) {
    ASSERT_TRUE(raw->Write(line, absl::Seconds(5)));
    const std::string answer = ReadAnswer(*raw);
    EXPECT_THAT(answer, HasSubstr("\"event\":\"error\"")) << line.substr(0, 80);
    EXPECT_THAT(answer, HasSubstr(wanted)) << line.substr(0, 80);
  }
  ASSERT_TRUE(raw->Write(R"({"command":"forget"})", absl::Seconds(5)));
  EXPECT_THAT(ReadAnswer(*raw), HasSubstr("result"));
}

TEST_F(LiveTest, AHugeLineEndsItsConnectionAndNoOther) {
  Start();
  const std::unique_ptr<Connection> raw = Raw();
  raw->Write(std::string(kLongestRequest + 100'000, 'a'), absl::Seconds(5));
  EXPECT_THAT(ReadAnswer(*raw), HasSubstr("longer than"));
  std::string line;
  EXPECT_EQ(raw->ReadLine(&line, 100, kPatience), Connection::Read::kGone);
  EXPECT_EQ(Status()["program"], "program");
}

TEST_F(LiveTest, MoreClientsThanThereAreSeatsAreToldSo) {
  Start();
  std::vector<std::unique_ptr<Connection>> seats;
  for (int i = 0; i < 16; ++i) {
    seats.push_back(Raw());
    ASSERT_TRUE(seats.back()->Write(R"({"command":"forget"})", absl::Seconds(5)));
    ReadAnswer(*seats.back());
  }
  const absl::Status status = Ask({}).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  seats.clear();
  // A seat is free again once its thread has seen the client go.
  absl::StatusOr<LiveJson> answer = Ask({});
  for (const absl::Time end = absl::Now() + kPatience; !answer.ok() && absl::Now() < end;) {
    absl::SleepFor(absl::Milliseconds(10));
    answer = Ask({});
  }
  EXPECT_TRUE(answer.ok()) << answer.status();
}

TEST_F(LiveTest, ClientsThatVanishOrDoNotReadLeaveTheProgramAlone) {
  Start();
  for (int i = 0; i < 50; ++i) {
    const std::unique_ptr<Connection> raw = Raw();
    for (int j = 0; j < 20; ++j) raw->Write(R"({"command":"status","selections":true})", {});
  }
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(live_->BeginStep("1").ok());
    live_->EndStep("1", 1);
  }
  absl::StatusOr<LiveJson> answer = Ask({});
  for (const absl::Time end = absl::Now() + kPatience; !answer.ok() && absl::Now() < end;) {
    absl::SleepFor(absl::Milliseconds(10));
    answer = Ask({});
  }
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ((*answer)["steps"]["steps"], 100);
}

TEST_F(LiveTest, RollbackNeedsNoSwapper) {
  Start();
  Publish("topk:pow2", 1);
  const std::string first = runtime_->generation()->digest().Hex();
  Publish("topk:exact", 2);
  absl::StatusOr<LiveJson> back =
      Ask({.command = LiveRequest::Command::kRollback, .target = {.digest = "previous"}});
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ((*back)["swap"]["state"], "published");
  EXPECT_EQ((*back)["swap"]["after"], first);
  EXPECT_EQ(runtime_->generation()->digest().Hex(), first);
  back = Ask({.command = LiveRequest::Command::kRollback, .target = {.digest = "baseline"}});
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(runtime_->generation()->number(), 0);
  const LiveJson status = Status();
  EXPECT_EQ(status["publications"][0]["trigger"], "rollback");
  EXPECT_EQ(status["publications"][0]["who"], StrCat("pid ", getpid(), " uid ", getuid()));
  EXPECT_EQ(status["history"].size(), 3u);
}

TEST_F(LiveTest, ABucketNeedsANameThatFits) {
  Start();
  EXPECT_TRUE(absl::IsInvalidArgument(live_->BeginStep("")));
  EXPECT_TRUE(absl::IsInvalidArgument(live_->BeginStep(std::string(32, '8'))));
  EXPECT_TRUE(live_->BeginStep(std::string(31, '8')).ok());
}

TEST_F(LiveTest, TheProgramEndsWhileClientsAreConnected) {
  Start();
  const std::unique_ptr<Connection> idle = Raw();
  const std::unique_ptr<Connection> half = Raw();
  live_.reset();
  std::string line;
  EXPECT_EQ(idle->ReadLine(&line, 100, kPatience), Connection::Read::kGone);
}

TEST(StepCounts, PercentilesAreThoseOfTheTimesToNinePercent) {
  StepCounts counts;
  for (int us = 1; us <= 10'000; ++us) counts.Count("48", us);
  ASSERT_EQ(counts.Read().size(), 1u);
  EXPECT_NEAR(counts.Read()[0].p50_us / 5'000, 1, 0.09);
  EXPECT_NEAR(counts.Read()[0].p99_us / 9'900, 1, 0.09);
  counts.Count("odd", -1);
  counts.Count("odd", std::nan(""));
  counts.Count("odd", HUGE_VAL);
  EXPECT_EQ(counts.Read()[1].steps, 3u);
}

TEST(StepCounts, BucketsBeyondSixtyFourAreOther) {
  StepCounts counts;
  for (int bucket = 0; bucket < 100; ++bucket) counts.Count(StrCat(bucket), 10);
  const std::vector<StepCounts::Bucket> read = counts.Read();
  ASSERT_EQ(read.size(), 65u);
  EXPECT_EQ(read.back().name, "other");
  EXPECT_EQ(read.back().steps, 36u);
  EXPECT_EQ(counts.steps(), 100u);
}

TEST(LiveProtocol, ARequestIsReadAsItWasWritten) {
  LiveRequest swap;
  swap.command = LiveRequest::Command::kSwap;
  swap.target = {.op = "op", .variant = "w8{BLOCK_H=16}"};
  swap.keys = {{{"topk", 512}}, {{"topk", 1}, {"num_tokens", 7}}};
  swap.canary = true;
  swap.verify = false;
  LiveRequest ab;
  ab.command = LiveRequest::Command::kAb;
  ab.ab.a.selection_file = "/a b.json";
  ab.ab.b = {.op = "op", .variant = "w8"};
  ab.ab.block = 7;
  ab.ab.seed = UINT64_MAX;
  ab.ab.seconds = 1.5;
  LiveRequest rollback;
  rollback.command = LiveRequest::Command::kRollback;
  rollback.target.digest = "baseline";
  rollback.wait = false;
  for (const LiveRequest& request : {LiveRequest(), swap, ab, rollback}) {
    const std::string line = LiveLine(LiveRequestJson(request));
    const absl::StatusOr<LiveRequest> read = ParseLiveRequest(line);
    ASSERT_TRUE(read.ok()) << line << read.status();
    EXPECT_EQ(LiveLine(LiveRequestJson(*read)), line);
  }
}

TEST(LiveProtocol, AnErrorArrivesAsItWasSent) {
  const absl::Status status = Error(absl::StatusCode::kNotFound, "what \xff", "fix");
  const absl::Status read = LiveErrorOf(LiveJson::parse(LiveLine(LiveErrorJson(status))));
  EXPECT_EQ(read.code(), status.code());
  EXPECT_EQ(Fix(read), "fix");
}

}  // namespace
}  // namespace kvr
