// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/status.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;

TEST(ProtocolTest, RequestsRoundTrip) {
  Request request;
  request.id = 7;
  request.job = Job::kOpen;
  request.op = "decode";
  request.axes = {{"topk", 512}};
  request.seeds = {1, 0xffffffffffffffffu};
  WorkItem item;
  item.variant = "w8";
  item.fingerprint = FingerprintOf("w8");
  item.config = {{"WARPS", 8}};
  item.binary_path = "/tmp/a b";
  request.items = {item};
  request.subjects = {0};
  request.rounds = 3;
  request.session = {{LaunchMode::kEager, CacheMode::kHot}, 100, "/tmp/s"};
  const std::string line = EncodeRequest(request);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const absl::StatusOr<Request> back = DecodeRequest(line);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->id, 7);
  EXPECT_EQ(back->job, Job::kOpen);
  EXPECT_EQ(back->seeds, request.seeds);
  EXPECT_EQ(back->axes, request.axes);
  ASSERT_EQ(back->items.size(), 1u);
  EXPECT_EQ(back->items[0].fingerprint, item.fingerprint);
  EXPECT_EQ(back->items[0].config, item.config);
  EXPECT_EQ(back->items[0].binary_path, "/tmp/a b");
  EXPECT_EQ(back->subjects, request.subjects);
  EXPECT_EQ(back->session.mode, request.session.mode);
  EXPECT_EQ(back->session.epoch_us, 100);
  EXPECT_EQ(back->session.sentinel_path, "/tmp/s");
}

TEST(ProtocolTest, RepliesRoundTripWithSamplesThatAreNoNumbers) {
  Message message;
  message.id = 3;
  message.unusable = true;
  message.fault_subject = 1;
  Finding finding;
  finding.subject = 1;
  finding.status = TrialStatus::kRuntimeError;
  finding.reason = "said \"x\"\n and \xff bytes";
  message.findings = {finding};
  message.samples = {{1.5, std::numeric_limits<double>::quiet_NaN()}};
  message.session = {{LaunchMode::kEager, CacheMode::kCold},
                     2,
                     5,
                     true,
                     3,
                     7,
                     101.5,
                     0.25,
                     {20.5, 21},
                     {22, 23},
                     1980,
                     0x44};
  const absl::StatusOr<Message> back = DecodeMessage(EncodeMessage(message));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->kind, Message::Kind::kReply);
  EXPECT_TRUE(back->unusable);
  EXPECT_EQ(back->fault_subject, 1);
  EXPECT_EQ(back->findings[0].status, TrialStatus::kRuntimeError);
  EXPECT_THAT(back->findings[0].reason, HasSubstr("said \"x\"\n and"));
  EXPECT_EQ(back->samples[0][0], 1.5);
  EXPECT_TRUE(std::isnan(back->samples[0][1]));
  EXPECT_EQ(back->session.buffer_sets, 5);
  EXPECT_TRUE(back->session.cold);
  EXPECT_EQ(back->session.launches_least, 3);
  EXPECT_EQ(back->session.launches_most, 7);
  EXPECT_EQ(ModeText(back->session.mode), "eager cold");
  EXPECT_EQ(back->session.least_epoch_us, 101.5);
  EXPECT_EQ(back->session.plan_us, 0.25);
  EXPECT_EQ(back->session.sentinel_us, message.session.sentinel_us);
  EXPECT_EQ(back->session.lead_us, message.session.lead_us);
  EXPECT_EQ(back->session.clock_mhz, 1980);
  EXPECT_EQ(back->session.throttle_bits, 0x44u);
}

TEST(ProtocolTest, MergedSessionsPromiseOnlyWhatBothDo) {
  SessionInfo a = {{}, 2, 200, true, 4, 9, 100, 0.2, {20}, {21}, 1980, 0x4};
  SessionInfo b = {{}, 2, 64, false, 7, 12, 90, 0.3, {22, 23}, {24, 25}, 1755, 0x40};
  const SessionInfo merged = Merge(a, b);
  EXPECT_EQ(merged.buffer_sets, 64);
  EXPECT_FALSE(merged.cold);
  EXPECT_EQ(merged.launches_least, 4);
  EXPECT_EQ(merged.launches_most, 12);
  EXPECT_EQ(merged.least_epoch_us, 90);
  EXPECT_EQ(merged.plan_us, 0.3);
  EXPECT_EQ(merged.sentinel_us, (std::vector<double>{20, 22, 23}));
  EXPECT_EQ(merged.lead_us, (std::vector<double>{21, 24, 25}));
  EXPECT_EQ(merged.clock_mhz, 1755);
  EXPECT_EQ(merged.throttle_bits, 0x44u);
  EXPECT_TRUE(Merge({}, a).cold);
  b.launches_least = b.clock_mhz = 0;
  b.least_epoch_us = 0;
  EXPECT_EQ(Merge(a, b).launches_least, 4);
  EXPECT_EQ(Merge(a, b).least_epoch_us, 100);
  EXPECT_EQ(Merge(a, b).clock_mhz, 1980);
}

TEST(ProtocolTest, ModesAreReadAsTheyArePrinted) {
  for (LaunchMode launch : {LaunchMode::kGraph, LaunchMode::kEager}) {
    for (CacheMode cache : {CacheMode::kCold, CacheMode::kHot}) {
      const MeasureMode mode{launch, cache};
      const absl::StatusOr<MeasureMode> back = ParseMode(ModeText(mode));
      ASSERT_TRUE(back.ok()) << back.status();
      EXPECT_EQ(*back, mode);
    }
  }
  EXPECT_EQ(ModeText({}), "graph cold");
  EXPECT_EQ(ModeText(*ParseMode("hot,eager")), "eager hot");
  EXPECT_EQ(ModeText(*ParseMode("hot")), "graph hot");
  for (const char* text :
       {"", " ", "warm", "graph graph", "graph eager", "graph cold x", "Graph"}) {
    EXPECT_FALSE(ParseMode(text).ok()) << text;
  }
}

TEST(ProtocolTest, ErrorsKeepCodeWhatAndFix) {
  Message message;
  message.error = Error(absl::StatusCode::kResourceExhausted, "insufficient memory", "use less");
  const absl::StatusOr<Message> back = DecodeMessage(EncodeMessage(message));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->error, message.error);
  EXPECT_EQ(Fix(back->error), "use less");
}

TEST(ProtocolTest, HelloAndStagesRoundTrip) {
  Message hello;
  hello.kind = Message::Kind::kHello;
  hello.protocol = kProtocol;
  hello.device.name = "NVIDIA H200";
  hello.device.l2_bytes = 60 << 20;
  const absl::StatusOr<Message> back = DecodeMessage(EncodeMessage(hello));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->kind, Message::Kind::kHello);
  EXPECT_EQ(back->device.name, "NVIDIA H200");
  EXPECT_EQ(back->device.l2_bytes, 60 << 20);

  Message stage;
  stage.kind = Message::Kind::kStage;
  stage.stage = Stage::kLaunch;
  stage.subject = 4;
  const absl::StatusOr<Message> again = DecodeMessage(EncodeMessage(stage));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->kind, Message::Kind::kStage);
  EXPECT_EQ(again->stage, Stage::kLaunch);
  EXPECT_EQ(again->subject, 4);
}

TEST(ProtocolTest, QualityRoundTripsWithWhatIsNoNumber) {
  Message message;
  message.findings.emplace_back().quality = {{"y.relative_error", 0.1}, {"kept", std::nan("")}};
  const absl::StatusOr<Message> back = DecodeMessage(EncodeMessage(message));
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_EQ(back->findings.at(0).quality.size(), 2u);
  EXPECT_EQ(back->findings[0].quality[0].name, "y.relative_error");
  EXPECT_EQ(back->findings[0].quality[0].value, 0.1);
  EXPECT_TRUE(std::isnan(back->findings[0].quality[1].value));
}

TEST(ProtocolTest, NonsenseIsAnErrorNeverAnException) {
  for (const char* line : {"", "{", "[]", "null", "{}", R"({"id":"x"})", R"({"id":1,"job":"fly"})",
                           R"({"id":1,"stage":7})", "\xff\xfe"}) {
    EXPECT_FALSE(DecodeRequest(line).ok()) << line;
    EXPECT_FALSE(DecodeMessage(line).ok()) << line;
  }
}

}  // namespace
}  // namespace kvr
