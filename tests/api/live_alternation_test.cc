// SPDX-License-Identifier: Apache-2.0
//
// A live A/B in a serving loop, over a real socket, on the null device: the loop's step times
// depend on the generation that serves, so every step tells whether it was counted for its side.
#include "api/live_alternation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "tests/api/live_fixture.h"
#include "tuner/live_ab.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;

constexpr double kUsOfA = 100, kUsOfB = 200;

class AlternationTest : public LiveTest {
 protected:
  void Begin() {
    Start();
    Publish("topk:pow2", 1);
    b_ = runtime_->generation()->digest();
    Publish("topk:exact", 2);
    a_ = runtime_->generation()->digest();
  }
  ~AlternationTest() override { Stop(); }

  // Serves until the test ends. Buckets alternate; what serves decides how long a step takes.
  void Loop(std::function<double()> noise = [] { return 1.0; }) {
    loop_ = std::thread([this, noise = std::move(noise)] {
      for (int step = 0; !stop_; ++step) {
        const std::string bucket = step % 3 == 0 ? "48" : "16";
        ASSERT_TRUE(live_->BeginStep(bucket).ok());
        const Fingerprint serving = runtime_->generation()->digest();
        if (each_step_ != nullptr) each_step_();
        live_->EndStep(bucket, (serving == b_ ? us_of_b_ : kUsOfA) * noise());
        ++steps_;
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    });
  }
  void Stop() {
    stop_ = true;
    if (loop_.joinable()) loop_.join();
  }
  LiveRequest Request() const {
    LiveRequest request;
    request.command = LiveRequest::Command::kAb;
    request.ab.a.digest = "current";
    request.ab.b.digest = b_.Hex().substr(0, 10);
    request.ab.block = 16;
    return request;
  }
  // Until `blocks` blocks have come.
  absl::StatusOr<LiveJson> Compare(const LiveRequest& request, int blocks,
                                   std::vector<LiveJson>* seen) {
    LiveCall call;
    call.each = [&](const LiveJson& event) {
      if (event["event"] == "block") seen->push_back(event);
      return static_cast<int>(seen->size()) < blocks;
    };
    call.patience = kPatience;
    return Client()->Call(request, call);
  }
  // The program as it was found, and told of once at either end.
  void ExpectAsFound() {
    EXPECT_EQ(runtime_->generation()->digest(), a_);
    std::vector<std::string> reasons;
    for (const PublicationRecord& record : runtime_->publications()) {
      if (record.trigger == "live-ab") reasons.push_back(record.reason);
    }
    ASSERT_EQ(reasons.size(), 2u);
    EXPECT_THAT(reasons[1], HasSubstr("live A/B starts"));
    EXPECT_THAT(reasons[0], HasSubstr("live A/B ended"));
    EXPECT_TRUE(Status()["live_ab"].is_null());
    EXPECT_LE(runtime_->counters().rollbacks, 2u);  // the two ends
  }
  void WaitFor(const std::function<bool()>& condition) {
    for (const absl::Time end = absl::Now() + kPatience; !condition() && absl::Now() < end;) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    EXPECT_TRUE(condition());
  }

  Fingerprint a_, b_;
  double us_of_b_ = kUsOfB;
  std::function<void()> each_step_;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> steps_{0};
  std::thread loop_;
};

TEST_F(AlternationTest, EveryStepCountsForTheGenerationThatServedIt) {
  Begin();
  Loop();
  std::vector<LiveJson> blocks;
  const absl::StatusOr<LiveJson> end = Compare(Request(), 40, &blocks);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_TRUE((*end)["restored"].get<bool>()) << end->dump();
  EXPECT_EQ((*end)["serving"], a_.Hex());
  ASSERT_GE(blocks.size(), 40u);
  std::vector<int> first;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const LiveJson& block = blocks[i];
    EXPECT_EQ(block["block"], i);
    EXPECT_EQ(block["steps"], 16);
    const bool is_b = block["side"] == "b";
    size_t steps = 0;
    for (const auto& [bucket, times] : block["us"].items()) {
      for (const LiveJson& us : times) EXPECT_EQ(us, is_b ? kUsOfB : kUsOfA);
      steps += times.size();
    }
    EXPECT_EQ(steps, 16u - 2 * 2);  // two of each bucket are warm-up
    if (i % 4 == 0) first.push_back(is_b);
    EXPECT_EQ(is_b != (first.back() != 0), i % 4 == 1 || i % 4 == 2) << i;
  }
  EXPECT_THAT(first, ::testing::Contains(0));
  EXPECT_THAT(first, ::testing::Contains(1));
  Stop();
  EXPECT_EQ(steps_, static_cast<int64_t>(Status()["steps"]["steps"].get<int64_t>()));
  ExpectAsFound();
}

TEST_F(AlternationTest, ASlowDownOfFivePercentIsFoundAndAAgainstAIsNot) {
  Begin();
  us_of_b_ = 1.05 * kUsOfA;
  // The loop outlives this body.
  Loop([random = std::mt19937_64(1), normal = std::normal_distribution<double>(0, 0.03)]() mutable {
    return std::exp(normal(random));
  });
  for (const bool same : {false, true}) {
    LiveRequest request = Request();
    if (same) request.ab.b.digest = "current";
    LiveComparison comparison({});
    LiveCall call;
    call.patience = kPatience;
    call.each = [&](const LiveJson& event) {
      if (event["event"] == "block") {
        comparison.Add({.number = event["block"].get<int>(),
                        .side = event["side"] == "b",
                        .us = event["us"].get<std::map<std::string, std::vector<double>>>()});
      }
      return !comparison.done();
    };
    const absl::StatusOr<LiveJson> end = Client()->Call(request, call);
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_TRUE((*end)["restored"].get<bool>());
    const stats::Verdict verdict = comparison.Judge().verdict;
    if (same) {
      EXPECT_NE(verdict, stats::Verdict::kWin);
      EXPECT_NE(verdict, stats::Verdict::kLoss);
    } else {
      EXPECT_EQ(verdict, stats::Verdict::kLoss);
    }
    EXPECT_EQ(runtime_->generation()->digest(), a_);
  }
}

TEST_F(AlternationTest, AClientThatVanishesLeavesWhatServedBefore) {
  Begin();
  Loop();
  {
    const std::unique_ptr<Connection> raw = Raw();
    ASSERT_TRUE(raw->Write(LiveLine(LiveRequestJson(Request())), absl::Seconds(5)));
    std::string line;
    for (int i = 0; i < 10; ++i) {
      ASSERT_EQ(raw->ReadLine(&line, kLongestAnswer, kPatience), Connection::Read::kLine);
    }
  }
  WaitFor([&] { return Status()["live_ab"].is_null(); });
  ExpectAsFound();
}

TEST_F(AlternationTest, ALoopThatStandsStillIsRestoredToo) {
  Begin();
  std::vector<LiveJson> blocks;
  LiveRequest request = Request();
  request.ab.seconds = 0.2;
  const absl::StatusOr<LiveJson> end = Compare(request, 1, &blocks);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_TRUE(blocks.empty());
  EXPECT_EQ((*end)["reason"], "its time is over");
  EXPECT_TRUE((*end)["restored"].get<bool>());
  ExpectAsFound();
}

TEST_F(AlternationTest, TheProgramEndsInTheMiddleOfIt) {
  Begin();
  Loop();
  const std::unique_ptr<Connection> raw = Raw();
  ASSERT_TRUE(raw->Write(LiveLine(LiveRequestJson(Request())), absl::Seconds(5)));
  std::string line;
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(raw->ReadLine(&line, kLongestAnswer, kPatience), Connection::Read::kLine);
  }
  Stop();
  live_.reset();
  EXPECT_EQ(runtime_->generation()->digest(), a_);
}

TEST_F(AlternationTest, NothingElseChangesTheGenerationMeanwhile) {
  Begin();
  Loop();
  std::vector<LiveJson> blocks;
  std::vector<absl::Status> refused;
  LiveCall call;
  call.patience = kPatience;
  call.each = [&](const LiveJson& event) {
    if (event["event"] != "block") return true;
    refused.push_back(
        Ask({.command = LiveRequest::Command::kRollback, .target = {.digest = "baseline"}})
            .status());
    refused.push_back(Ask(Request()).status());
    EXPECT_THAT(Status()["live_ab"].get<std::string>(), HasSubstr("current against"));
    return false;
  };
  ASSERT_TRUE(Client()->Call(Request(), call).ok());
  for (const absl::Status& status : refused) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(What(status)), HasSubstr("a live A/B runs: current against"));
  }
  EXPECT_GE(refused.size(), 2u);
  ExpectAsFound();
}

TEST_F(AlternationTest, SomebodyElsesPublicationEndsItAndStays) {
  Begin();
  Loop();
  LiveCall call;
  bool published = false;
  call.patience = kPatience;
  call.each = [&](const LiveJson& event) {
    if (event["event"] == "block" && !std::exchange(published, true)) Publish("num_tokens:pow2", 9);
    return true;
  };
  const absl::StatusOr<LiveJson> end = Client()->Call(Request(), call);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_FALSE((*end)["restored"].get<bool>());
  EXPECT_THAT((*end)["reason"].get<std::string>(), HasSubstr("somebody else"));
  EXPECT_THAT((*end)["error"]["what"].get<std::string>(), HasSubstr("published meanwhile"));
  EXPECT_EQ(runtime_->generation()->number(), 9);
}

TEST_F(AlternationTest, TheOneBeforeIsWhatServedBeforeAndNoContestant) {
  Begin();
  Publish("num_tokens:pow2", 9);
  const std::vector<GenerationPtr> before = runtime_->history();
  ASSERT_EQ(before.size(), 3u);
  ASSERT_EQ(before[1]->digest(), b_);
  Loop();
  std::vector<LiveJson> blocks;
  ASSERT_TRUE(Compare(Request(), 8, &blocks).ok());
  const std::vector<GenerationPtr> after = runtime_->history();
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i]->digest(), before[i]->digest());
  ASSERT_TRUE(runtime_->Rollback("").ok());
  EXPECT_EQ(runtime_->generation()->digest(), a_);
}

TEST_F(AlternationTest, StepsWhoseGraphsCouldNotFollowDoNotCount) {
  Begin();
  each_step_ = [this] {
    Applied applied;
    applied.digest = a_;
    const bool is_b = runtime_->generation()->digest() == b_;
    applied.outcome = is_b ? Applied::kNeedsRecapture : Applied::kUnchanged;
    live_->CountApplied(applied);
  };
  Loop();
  std::vector<LiveJson> blocks;
  ASSERT_TRUE(Compare(Request(), 8, &blocks).ok());
  for (const LiveJson& block : blocks) {
    EXPECT_EQ(block["not_applied"], block["side"] == "b" ? 12 : 0);
    EXPECT_EQ(block["us"].empty(), block["side"] == "b");
  }
}

TEST_F(AlternationTest, ADigestThatIsNotKeptIsRefusedAndNothingChanges) {
  Begin();
  LiveRequest request = Request();
  for (const char* name : {"0123456789ab", "0", "nonsense"}) {
    request.ab.b.digest = name;
    const absl::Status status = Ask(request).status();
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
  }
  request.ab.b = {.op = "mla_sparse_decode", .variant = "w8"};
  EXPECT_TRUE(absl::IsUnimplemented(Ask(request).status()));  // there is no swapper
  EXPECT_EQ(runtime_->generation()->digest(), a_);
  EXPECT_TRUE(Status()["live_ab"].is_null());
}

TEST_F(AlternationTest, WhatWasPublishedWhileItWasPreparedStays) {
  Begin();
  Publish("num_tokens:pow2", 9);
  Alternation alternation(*runtime_);
  const absl::Status started = alternation.Start({.sides = {a_, b_}}, /*found=*/a_);
  EXPECT_TRUE(absl::IsAborted(started)) << started;
  EXPECT_TRUE(alternation.ended());
  EXPECT_EQ(runtime_->generation()->number(), 9);
}

TEST_F(AlternationTest, AStepThatEndsWhileItIsLeftCountsForNothing) {
  // Ends the step from the serving loop's thread, which finds the alternation at its end.
  struct EndsStep : PublicationSink {
    void Record(const PublicationRecord& record) override {
      if (record.reason.find("ended") == std::string::npos) return;
      loop = std::thread([this] { alternation->EndStep("48", kUsOfA); });
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    uint64_t lost() const override { return 0; }
    Alternation* alternation = nullptr;
    std::thread loop;
  };
  Begin();
  Alternation alternation(*runtime_);
  const auto journal = std::make_shared<EndsStep>();
  journal->alternation = &alternation;
  runtime_->SetJournal(journal);
  ASSERT_TRUE(alternation.Start({.sides = {b_, b_}, .warmup = 0}, /*found=*/a_).ok());
  alternation.BeginStep();
  // The step is longer than Finish waits.
  EXPECT_TRUE(alternation.Finish("the client ended it").restored);
  journal->loop.join();
  runtime_->SetJournal(nullptr);
  EXPECT_EQ(alternation.steps(), 0);
  EXPECT_TRUE(alternation.Take().empty());
}

}  // namespace
}  // namespace kvr
