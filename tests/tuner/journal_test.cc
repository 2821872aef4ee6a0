// SPDX-License-Identifier: Apache-2.0
#include "tuner/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/tuner/fixture.h"
#include "tuner/budget.h"
#include "tuner/compare.h"
#include "tuner/ledger/check.h"
#include "tuner/ledger/database.h"
#include "tuner/rejections.h"
#include "tuner/worker/protocol.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

struct Notes : Progress {
  void Update(const ProgressUpdate&) override {}
  void Note(std::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

ledger::Environment Here() {
  return {.device_kind = "cuda",
          .device_name = "NVIDIA H200",
          .device_model = "nvidia-h200",
          .device_uuid = "GPU-1",
          .target = "sm_90a",
          .driver = "580.1",
          .compiler = "nvrtc 13.0",
          .kvr_version = "0.1.0",
          .host = "a"};
}

class JournalTest : public ::testing::Test {
 protected:
  JournalTest() {
    std::string pattern = ::testing::TempDir() + "/kvr-journal-XXXXXX";
    directory_ = mkdtemp(pattern.data());
    auto ledger = ledger::Ledger::Open(directory_);
    if (ledger.ok()) ledger_ = *std::move(ledger);
  }
  ~JournalTest() override { std::filesystem::remove_all(directory_); }
  void SetUp() override { ASSERT_NE(ledger_, nullptr); }
  void Execute(const std::string& sql) {
    SQLite::Database(ledger_->path(), SQLite::OPEN_READWRITE).exec(sql);
  }

  std::string directory_;
  std::unique_ptr<ledger::Ledger> ledger_;
  Notes notes_;
};

TEST_F(JournalTest, RecordsCarryTheirEnvironmentAndTheSessionOfTheirTime) {
  Journal journal(ledger_.get(), {}, &notes_);
  journal.SetEnvironment(Here());
  const std::string first = journal.BeginSession();
  journal.Add(ledger::Trial{.op = "x"});
  const std::string second = journal.BeginSession();
  EXPECT_NE(first, second);
  journal.Add(ledger::Trial{.op = "x"});
  journal.Add(ledger::Verdict{.session = "mine", .op = "x"});
  const auto trials = ledger_->Find<ledger::Trial>({});
  ASSERT_TRUE(trials.ok()) << trials.status();
  ASSERT_THAT(*trials, SizeIs(2));
  EXPECT_EQ((*trials)[0].session, first);
  EXPECT_EQ((*trials)[1].session, second);
  EXPECT_EQ(ledger_->EnvironmentOf((*trials)[1])->device_uuid, "GPU-1");
  EXPECT_EQ(ledger_->Find<ledger::Verdict>({})->front().session, "mine");
  EXPECT_FALSE(journal.trouble());
  EXPECT_EQ(journal.why(), "");
}

TEST_F(JournalTest, ALedgerInTroubleIsOneNoteAndNeverAFailure) {
  Journal journal(ledger_.get(), Here(), &notes_);
  Execute("DROP TABLE builds");
  journal.Add(ledger::Build{.op = "x"});
  journal.Add(ledger::Build{.op = "x"});
  EXPECT_TRUE(journal.trouble());
  ASSERT_THAT(notes_.lines, SizeIs(1));
  EXPECT_THAT(notes_.lines[0], HasSubstr("builds"));
  EXPECT_THAT(journal.why(), HasSubstr("and 1 more error"));
  journal.Add(ledger::Trial{.op = "x"});  // what can be written is
  EXPECT_THAT(*ledger_->Find<ledger::Trial>({}), SizeIs(1));
  for (int i = 0; i < 4; ++i) journal.Add(ledger::Build{.op = "x"});
  journal.Add(ledger::Trial{.op = "x"});  // after three errors in a row, nothing is tried
  EXPECT_THAT(*ledger_->Find<ledger::Trial>({}), SizeIs(1));
  EXPECT_THAT(notes_.lines, SizeIs(1));
}

TEST_F(JournalTest, WithoutALedgerNothingHappens) {
  Journal journal(nullptr, Here(), nullptr);
  journal.Add(ledger::Trial{.op = "x"});
  EXPECT_FALSE(journal.trouble());
  journal.Report(absl::UnavailableError("no such directory"));
  EXPECT_THAT(journal.why(), HasSubstr("no such directory"));
}

class RejectionsTest : public JournalTest {
 protected:
  void Add(const ledger::Environment& where, std::string stage, std::string status,
           std::string outcome, const std::string& axes, std::string session = "s",
           const std::string& mode = "graph cold", double median_us = 10) {
    Journal journal(ledger_.get(), where, nullptr);
    journal.Add(ledger::Trial{.session = std::move(session),
                              .op = "decode",
                              .variant = candidate_.variant->name,
                              .fingerprint = candidate_.variant->fingerprint.Hex(),
                              .config = ConfigText(candidate_.config),
                              .axes = axes,
                              .mode = mode,
                              .stage = std::move(stage),
                              .outcome = std::move(outcome),
                              .status = std::move(status),
                              .reason = "because",
                              .median_us = median_us});
  }
  // "": not rejected.
  std::string Find(std::vector<Axes> measured = {{{"n", 8}}}, std::vector<Axes> proofs = {},
                   const std::string& mode = "graph cold") {
    const Rejections rejections(*ledger_, Here(), "decode", mode);
    const auto found = rejections.Find(candidate_, measured, proofs);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() && found->has_value() ? (*found)->status : "";
  }

  test::DecodeOp op_;
  VariantPtr variant_ = test::SplitVariant(op_.spec());
  Candidate candidate_{variant_, DefaultConfig(variant_->tunables)};
};

TEST_F(RejectionsTest, WhatWasNeverTriedIsNotRejected) { EXPECT_EQ(Find(), ""); }

TEST_F(RejectionsTest, TheLastTrialCounts) {
  Add(Here(), "screen", "PASSED", "dropped", "n=8");
  EXPECT_EQ(Find(), "PASSED");
  Add(Here(), "final", "PASSED", "kept", "n=8");
  EXPECT_EQ(Find(), "");
  Add(Here(), "verify", "INCORRECT_NUMERICAL", "dropped", "n=8");
  EXPECT_EQ(Find(), "INCORRECT_NUMERICAL");
}

// A budget that ends before the first round drops everybody, unseen.
TEST_F(RejectionsTest, WhoeverWasNeverMeasuredWasNotSlow) {
  Add(Here(), "screen", "PASSED", "dropped", "n=8", "s", "graph cold", std::nan(""));
  EXPECT_EQ(Find(), "");
  Add(Here(), "screen", "PASSED", "dropped", "n=8");
  Add(Here(), "ab", "PASSED", "", "n=8");  // later, and in no race
  EXPECT_EQ(Find(), "PASSED");
}

TEST_F(RejectionsTest, SlowIsSlowInItsModeAndWrongIsWrongInAll) {
  Add(Here(), "screen", "PASSED", "dropped", "n=8");
  EXPECT_EQ(Find({{{"n", 8}}}, {}, "eager hot"), "");
  Add(Here(), "screen", "TIMEOUT", "dropped", "n=8");
  EXPECT_EQ(Find({{{"n", 8}}}, {}, "eager hot"), "TIMEOUT");
}

TEST_F(RejectionsTest, OnlyTheSameConditionsCount) {
  ledger::Environment other = Here();
  for (std::string ledger::Environment::*part :
       {&ledger::Environment::device_uuid, &ledger::Environment::driver,
        &ledger::Environment::compiler, &ledger::Environment::kvr_version}) {
    other = Here();
    other.*part = "another";
    Add(other, "verify", "RUNTIME_ERROR", "dropped", "n=8");
  }
  EXPECT_EQ(Find(), "");
  other = Here();
  other.host = "renamed";
  Add(other, "verify", "RUNTIME_ERROR", "dropped", "n=8");
  EXPECT_EQ(Find(), "RUNTIME_ERROR");
}

TEST_F(RejectionsTest, ADeviceWithoutAUuidIsThatOfItsHost) {
  ledger::Environment here = Here(), there = Here();
  here.device_uuid = there.device_uuid = "";
  EXPECT_TRUE(SameConditions(here, there));
  there.host = "b";
  EXPECT_FALSE(SameConditions(here, there));
}

TEST_F(RejectionsTest, AnImportedLedgerOfAnotherDeviceRejectsNothing) {
  std::stringstream exported;
  {
    std::filesystem::create_directories(directory_ + "/theirs");
    auto theirs = ledger::Ledger::Open(directory_ + "/theirs");
    ASSERT_TRUE(theirs.ok());
    std::swap(ledger_, *theirs);
    ledger::Environment there = Here();
    there.device_uuid = "GPU-2";
    Add(there, "screen", "PASSED", "dropped", "n=8");
    Add(Here(), "verify", "TIMEOUT", "dropped", "n=16");
    ASSERT_TRUE(ledger_->Export(exported).ok());
    std::swap(ledger_, *theirs);
  }
  ASSERT_TRUE(ledger_->Import(exported).ok());
  EXPECT_EQ(Find(), "");
  EXPECT_EQ(Find({{{"n", 16}}}), "TIMEOUT");  // this very device's, from a copy
}

TEST_F(RejectionsTest, ARaceInTroubleHasDroppedNobody) {
  Add(Here(), "screen", "PASSED", "dropped", "n=8", "calm");
  Add(Here(), "screen", "PASSED", "dropped", "n=8", "stormy");
  Journal journal(ledger_.get(), Here(), nullptr);
  journal.Add(
      ledger::Verdict{.session = "stormy", .op = "decode", .kind = "race", .verdict = "INVALID"});
  EXPECT_EQ(Find(), "PASSED");  // of the calm one
  journal.Add(
      ledger::Verdict{.session = "calm", .op = "decode", .kind = "race", .verdict = "INVALID"});
  EXPECT_EQ(Find(), "");
}

TEST_F(RejectionsTest, OverSeveralShapesSlowMeansEverywhereAndWrongAnywhere) {
  const std::vector<Axes> shapes = {{{"n", 8}}, {{"n", 16}}};
  Add(Here(), "screen", "PASSED", "dropped", "n=8");
  EXPECT_EQ(Find(shapes), "");
  Add(Here(), "screen", "PASSED", "dropped", "n=16");
  EXPECT_EQ(Find(shapes), "PASSED");
  EXPECT_EQ(Find({{{"n", 8}}}, {{{"n", 16}}}), "PASSED");
  EXPECT_EQ(Find({{{"n", 32}}}, {{{"n", 16}}}), "");  // a proof is not raced
  Add(Here(), "verify", "TIMEOUT", "dropped", "n=16");
  EXPECT_EQ(Find({{{"n", 32}}}, {{{"n", 16}}}), "TIMEOUT");
}

TEST_F(RejectionsTest, WhatDidNotBuildIsRejectedUntilItBuilds) {
  Journal journal(ledger_.get(), Here(), nullptr);
  ledger::Build build{.op = "decode",
                      .fingerprint = variant_->fingerprint.Hex(),
                      .config = ConfigText(CompileScope(candidate_.config, variant_->tunables)),
                      .target = "sm_90a",
                      .status = "failed"};
  journal.Add(build);
  EXPECT_EQ(Find(), "COMPILE_ERROR");
  build.status = "built";
  journal.Add(build);
  EXPECT_EQ(Find(), "");
}

// What a ledger takes over knows every status and mode that the tuner writes.
TEST(LedgerWordsTest, AreThoseOfTheTuner) {
  ledger::Trial trial{.uid = "a",
                      .time = ledger::Now(),
                      .op = "scale",
                      .variant = "wide",
                      .mode = "graph cold",
                      .stage = "ab"};
  for (int i = 0; i <= static_cast<int>(TrialStatus::kTimeout); ++i) {
    trial.status = std::string(TrialStatusName(static_cast<TrialStatus>(i)));
    EXPECT_TRUE(ledger::Check(trial).ok()) << ledger::Check(trial);
  }
  for (const LaunchMode launch : {LaunchMode::kGraph, LaunchMode::kEager}) {
    for (const CacheMode cache : {CacheMode::kCold, CacheMode::kHot}) {
      trial.mode = ModeText({launch, cache});
      EXPECT_TRUE(ledger::Check(trial).ok()) << ledger::Check(trial);
    }
  }
}

TEST(BudgetTest, DividesTheTimeThatIsLeft) {
  const absl::Time start = absl::UnixEpoch();
  const Budget budget(absl::Seconds(100), start);
  EXPECT_EQ(budget.build_until(), start + absl::Seconds(40));
  const absl::Time now = start + absl::Seconds(30);
  const KeyShare share = budget.ShareOf(2, now);
  EXPECT_EQ(share.end, now + absl::Seconds(35));
  EXPECT_LT(share.verify_until, share.race_until);
  EXPECT_LT(share.race_until, share.end);
  // What the first did not use, the next one has.
  EXPECT_EQ(budget.ShareOf(1, start + absl::Seconds(40)).end, start + absl::Seconds(100));
  EXPECT_EQ(budget.ShareOf(1, start + absl::Seconds(200)).end, start + absl::Seconds(200));
}

TEST(BudgetTest, WithoutOneEverythingTakesAsLongAsItTakes) {
  const Budget budget(absl::ZeroDuration(), absl::Now());
  EXPECT_FALSE(budget.limited());
  EXPECT_EQ(budget.build_until(), absl::InfiniteFuture());
  EXPECT_EQ(budget.ShareOf(3, absl::Now()).race_until, absl::InfiniteFuture());
}

}  // namespace
}  // namespace kvr
