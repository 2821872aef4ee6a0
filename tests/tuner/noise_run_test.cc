// SPDX-License-Identifier: Apache-2.0
//
// Which noise band a comparison finds in a real ledger, and what happens where there is none.
#include "tuner/noise_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "tests/tuner/fixture.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;

// One side is slower by the same part in every session, by turns.
class FakeSession : public PairedSession {
 public:
  FakeSession(double effect, std::string trouble) : effect_(effect), trouble_(std::move(trouble)) {}
  absl::StatusOr<SampleTable> Sample(int rounds) override {
    return SampleTable(rounds, {200.0, 200.0 * (1 + effect_)});
  }
  absl::Status Check() override { return absl::OkStatus(); }
  Finding finding(Side) const override { return {}; }
  std::string trouble() const override { return trouble_; }
  SessionInfo info() const override {
    SessionInfo info;
    info.least_epoch_us = 200;
    return info;
  }

 private:
  const double effect_;
  const std::string trouble_;
};

class FakeSource : public SessionSource {
 public:
  absl::Status Renew() override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<PairedSession>> Open(const Axes&) override {
    return std::make_unique<FakeSession>(++sessions % 2 == 0 ? 0.02 : -0.02, trouble);
  }
  int sessions = 0;
  std::string trouble;
};

class Notes : public Progress {
 public:
  void Update(const ProgressUpdate& update) override {
    most_done = std::max(most_done, update.done);
  }
  void Note(std::string_view line) override { text += std::string(line) + "\n"; }
  std::string text;
  int most_done = 0;
};

class NoiseRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/kvr-noise-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    auto ledger = ledger::Ledger::Open(directory_);
    ASSERT_TRUE(ledger.ok()) << ledger.status();
    ledger_ = *std::move(ledger);
    std::vector<std::unique_ptr<Operation>> operations;
    operations.push_back(std::make_unique<test::DecodeOp>());
    catalog_ = std::make_unique<Catalog>(*Catalog::Create(std::move(operations)));
    jit_ = std::make_unique<Jit>(std::vector<std::unique_ptr<Compiler>>{}, nullptr);
    axes_ = NamedAxes(Op().spec(), test::Shape(Op().spec(), {}));
  }
  void TearDown() override {
    ledger_.reset();
    std::filesystem::remove_all(directory_);
  }
  const Catalog::Op& Op() const { return **catalog_->FindOp("decode"); }

  std::vector<BandInUse> FindOrMeasure(Journal* journal, const std::vector<Axes>& shapes) {
    Workbench bench{*catalog_, *jit_, {}};
    bench.progress = &notes_;
    bench.journal = journal;
    auto bands = FindOrMeasureBands(bench, key_, source_, shapes, 1, nullptr);
    EXPECT_TRUE(bands.ok()) << bands.status();
    return *std::move(bands);
  }
  // Of the device that key_ is of, unless told otherwise.
  Journal MakeJournal(std::string uuid = "GPU-1", std::string driver = "580") {
    ledger::Environment environment;
    environment.device_uuid = std::move(uuid);
    environment.driver = std::move(driver);
    return {ledger_.get(), environment, &notes_};
  }
  void Store(const ledger::Band& band, std::string uuid = "GPU-1", std::string driver = "580") {
    MakeJournal(std::move(uuid), std::move(driver)).Add(band);
  }
  ledger::Band Record(double width, std::string time) const {
    ledger::Band band;
    band.op = "decode";
    band.axes = AxesText(axes_);
    band.mode = "graph cold";
    band.band = width;
    band.sessions = 20;
    band.rounds = 80;
    band.time = std::move(time);
    return band;
  }
  BandInUse Find(const std::string& now) {
    absl::Time time;
    std::string error;
    EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, now, &time, &error)) << error;
    auto band = FindBand(ledger_.get(), key_, axes_, time);
    EXPECT_TRUE(band.ok()) << band.status();
    return *band;
  }

  std::string directory_;
  std::unique_ptr<ledger::Ledger> ledger_;
  std::unique_ptr<Catalog> catalog_;
  std::unique_ptr<Jit> jit_;
  FakeSource source_;
  Notes notes_;
  Axes axes_;
  BandKey key_{"GPU-1", "580", "decode", {}};
};

TEST_F(NoiseRunTest, TheNewestBandOfThisDeviceDriverShapeAndModeServesForThirtyDays) {
  Store(Record(0.03, "2026-10-01T00:00:00Z"));
  Store(Record(0.04, "2026-10-05T00:00:00Z"));
  Store(Record(0.05, "2026-10-06T00:00:00Z"), "GPU-2");
  Store(Record(0.06, "2026-10-06T00:00:00Z"), "GPU-1", "590");
  ledger::Band eager = Record(0.07, "2026-10-06T00:00:00Z");
  eager.mode = "eager cold";
  Store(eager);
  ledger::Band elsewhere = Record(0.08, "2026-10-06T00:00:00Z");
  elsewhere.axes = "num_tokens=1";
  Store(elsewhere);

  const BandInUse found = Find("2026-11-01T00:00:00Z");
  EXPECT_TRUE(found.in_ledger);
  EXPECT_EQ(found.estimate.band, 0.04);
  EXPECT_EQ(found.sessions, 20);
  EXPECT_EQ(BandSourceText(found), "±4.0 % (20 sessions, 2026-10-05)");
  EXPECT_EQ(Find("2026-09-01T00:00:00Z").estimate.band, 0.04);  // a clock that was set back
  EXPECT_THAT(Find("2026-12-01T00:00:00Z").trouble, HasSubstr("none is stored"));
}

TEST_F(NoiseRunTest, AShortBandDisplacesNoneThatWasMeasuredWithCare) {
  Store(Record(0.03, "2026-10-01T00:00:00Z"));
  ledger::Band brief = Record(0.09, "2026-10-05T00:00:00Z");
  brief.sessions = 3;
  Store(brief);
  EXPECT_EQ(Find("2026-10-06T00:00:00Z").estimate.band, 0.03);
  EXPECT_EQ(Find("2026-11-02T00:00:00Z").estimate.band, 0.09);  // the careful one has expired
}

TEST_F(NoiseRunTest, OfTooFewSessionsOrRoundsIsNoBand) {
  ledger::Band lucky = Record(0.01, "2026-10-05T00:00:00Z");
  lucky.sessions = 2;
  Store(lucky);
  lucky = Record(0.01, "2026-10-05T00:00:00Z");
  lucky.rounds = 7;
  Store(lucky);
  EXPECT_THAT(Find("2026-10-06T00:00:00Z").trouble, HasSubstr("none is stored"));

  Workbench bench{*catalog_, *jit_, {}};
  for (const auto& [sessions, rounds] : {std::pair(2, 80), std::pair(20, 7)}) {
    NoiseRequest request;
    request.op = "decode";
    request.sessions = sessions;
    request.rounds = rounds;
    const auto refused = MeasureNoise(bench, request);
    EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("too few for a noise band"));
  }
}

TEST_F(NoiseRunTest, AMissingBandIsMeasuredShortStoredAndSaidSo) {
  Journal journal = MakeJournal();
  Axes other = axes_;
  other["topk"] = 1024;
  const auto measured = FindOrMeasure(&journal, {axes_, other, axes_});
  ASSERT_EQ(measured.size(), 3u);
  EXPECT_EQ(source_.sessions, 2 * stats::kShortNoiseSessions);  // two shapes
  for (const BandInUse& band : measured) {
    EXPECT_EQ(band.trouble, "");
    EXPECT_TRUE(band.fresh);
    EXPECT_TRUE(band.in_ledger);
    EXPECT_EQ(band.sessions, 3);
    EXPECT_NEAR(band.estimate.sigma, 0.02, 1e-3);
    EXPECT_NEAR(band.estimate.factor, 5.72, 0.01);
    EXPECT_NEAR(band.estimate.floor, 0.01, 1e-9);
  }
  EXPECT_THAT(notes_.text, HasSubstr("measuring a short one"));
  EXPECT_THAT(BandSourceText(measured[0]), HasSubstr("(3 sessions, measured now)"));

  const auto again = FindOrMeasure(&journal, {axes_});
  EXPECT_EQ(source_.sessions, 2 * stats::kShortNoiseSessions);
  EXPECT_FALSE(again[0].fresh);
  EXPECT_EQ(again[0].estimate.band, measured[0].estimate.band);
  EXPECT_EQ(again[0].estimate.session_medians, measured[0].estimate.session_medians);
}

TEST_F(NoiseRunTest, TheHintIsAWholeCommand) {
  Journal journal = MakeJournal();
  key_.mode = {LaunchMode::kEager, CacheMode::kHot};
  Axes other = axes_;
  other["topk"] = 1024;
  FindOrMeasure(&journal, {other});
  EXPECT_THAT(notes_.text,
              HasSubstr("`kvr noise decode --axes topk=1024 --mode eager,hot --ledger " +
                        directory_ + "` measures one with care\n"));
  notes_.text.clear();
  FindOrMeasure(nullptr, {axes_});
  EXPECT_THAT(notes_.text, HasSubstr("measuring a short one\n"));

  Workbench bench{*catalog_, *jit_, {}};
  bench.journal = &journal;
  bench.worker.device = "host";
  setenv("KVR_LEDGER_DIR", directory_.c_str(), 1);
  EXPECT_EQ(NoiseCommand(bench, Op().spec(), std::vector<Axes>{axes_}, {}),
            "kvr noise decode --device host");
  EXPECT_EQ(NoiseCommand(bench, Op().spec(), std::vector<Axes>{axes_, other}, {}),
            "kvr noise decode --axes " + AxesText(axes_) + " --axes topk=1024 --device host");
  unsetenv("KVR_LEDGER_DIR");
}

TEST_F(NoiseRunTest, WithoutALedgerTheBandIsMeasuredAndNotKept) {
  EXPECT_FALSE(FindOrMeasure(nullptr, {axes_})[0].in_ledger);
  Journal none(nullptr, {}, nullptr);
  EXPECT_FALSE(FindOrMeasure(&none, {axes_})[0].in_ledger);
  EXPECT_EQ(source_.sessions, 2 * stats::kShortNoiseSessions);
}

TEST_F(NoiseRunTest, TroubleLeavesNoBandAndStoresNone) {
  source_.trouble = "another process";
  Journal journal = MakeJournal();
  const BandInUse band = FindOrMeasure(&journal, {axes_})[0];
  EXPECT_THAT(band.trouble, HasSubstr("another process"));
  EXPECT_EQ(notes_.most_done, 0);  // no step is done that gave nothing
  EXPECT_TRUE(ledger_->Find<ledger::Band>({})->empty());
}

TEST_F(NoiseRunTest, WhereNothingIsLaunchedThereIsNoBand) {
  Journal journal = MakeJournal();
  Axes empty = axes_;
  empty["num_tokens"] = 0;
  const auto bands = FindOrMeasure(&journal, {empty, axes_});
  EXPECT_THAT(bands[0].trouble, HasSubstr("nothing is launched"));
  EXPECT_EQ(bands[1].trouble, "");
  EXPECT_EQ(source_.sessions, stats::kShortNoiseSessions);
  EXPECT_EQ(ledger_->Find<ledger::Band>({})->size(), 1u);
}

TEST_F(NoiseRunTest, ABucketIsMeasuredAtItsRepresentative) {
  Axes asked = axes_;
  asked["topk"] = 500;
  const auto bucketed = BandShapeOf(Op(), asked);
  ASSERT_TRUE(bucketed.ok());
  EXPECT_TRUE(bucketed->of_bucket);
  EXPECT_EQ(bucketed->axes, axes_);  // topk:pow2
}

class ClippedOp : public test::DecodeOp {
 public:
  ClippedOp() : spec_(test::DecodeOp::spec()) { spec_.key_policy = "topk:ceil(64,128)"; }
  const OpSpec& spec() const override { return spec_; }

 private:
  OpSpec spec_;
};

TEST_F(NoiseRunTest, AShapeAboveTheLastBucketStandsForItself) {
  std::vector<std::unique_ptr<Operation>> operations;
  operations.push_back(std::make_unique<ClippedOp>());
  const auto catalog = Catalog::Create(std::move(operations));
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  const auto band = BandShapeOf(**catalog->FindOp("decode"), axes_);
  ASSERT_TRUE(band.ok());
  EXPECT_FALSE(band->of_bucket);
  EXPECT_EQ(band->axes, axes_);
}

// --- contestants ------------------------------------------------------------------------------

class ContestantTest : public NoiseRunTest {
 protected:
  void SetUp() override {
    NoiseRunTest::SetUp();
    ASSERT_TRUE(catalog_->Admit(test::SplitVariant(Op().spec())).ok());
    const auto approximate = test::SplitVariant(Op().spec(), "rough");
    approximate->semantics = Semantics::kApproximate;
    ASSERT_TRUE(catalog_->Admit(approximate).ok());
  }
  std::string ErrorOf(std::string_view text) {
    const auto contestant = ParseContestant(*catalog_, "decode", text);
    EXPECT_FALSE(contestant.ok());
    return std::string(contestant.status().message());
  }
};

TEST_F(ContestantTest, IsAVariantWithItsDefaultsUnlessItsTextSaysOtherwise) {
  const auto plain = ParseContestant(*catalog_, "decode", "baseline");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(ConfigText(plain->config), "BLOCK_H=32,STAGES=2,TARGET_CTAS=256");
  EXPECT_EQ(ContestantText(*plain), "baseline");
  EXPECT_EQ(*ParseContestant(*catalog_, "decode", "baseline{}"), *plain);
  const auto other = ParseContestant(*catalog_, "decode", "baseline{TARGET_CTAS=512,BLOCK_H=32}");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(ConfigText(other->config), "BLOCK_H=32,STAGES=2,TARGET_CTAS=512");
  EXPECT_EQ(ContestantText(*other), "baseline{TARGET_CTAS=512}");
  EXPECT_EQ(*ParseContestant(*catalog_, "decode", ContestantText(*other)), *other);
}

TEST_F(ContestantTest, ThatIsNoneIsAnErrorThatSaysWhatWouldBeRight) {
  EXPECT_THAT(ErrorOf("basline"), HasSubstr("baseline"));
  EXPECT_THAT(ErrorOf("baseline{TARGET_CTAS=512"), HasSubstr("as in"));
  EXPECT_THAT(ErrorOf("baseline{TARGET_CTAS=513}"), HasSubstr("512"));
  EXPECT_THAT(ErrorOf("baseline{BLOCK=16}"), HasSubstr("BLOCK_H"));
  EXPECT_THAT(ErrorOf("rough"), HasSubstr("approximate"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("variant"));
}

TEST_F(ContestantTest, ThatIsApproximateHasItsOptInsValues) {
  const auto soft = test::SplitVariant(Op().spec(), "soft");
  soft->semantics = Semantics::kApproximate;
  soft->tunables[0].scope = Scope::kQuality;
  const std::string name = soft->tunables[0].name;
  const std::vector<int64_t> values = soft->tunables[0].values;
  ASSERT_GE(values.size(), 2u);
  ASSERT_TRUE(catalog_->Admit(soft).ok());
  const std::vector<ApproximateOptIn> consent = {{"decode", "soft", {{name, values[1]}}}};
  const auto contestant = ParseContestant(*catalog_, "decode", "soft", consent);
  ASSERT_TRUE(contestant.ok()) << contestant.status();
  EXPECT_EQ(contestant->config.at(name), values[1]);
  const auto text = [&](int64_t value) {
    return "soft{" + name + "=" + std::to_string(value) + "}";
  };
  EXPECT_EQ(*ParseContestant(*catalog_, "decode", text(values[1]), consent), *contestant);
  EXPECT_FALSE(ParseContestant(*catalog_, "decode", text(values[0]), consent).ok());
  EXPECT_THAT(ErrorOf(text(values[1])),
              HasSubstr("--approximate 'decode/soft{" + name + "=" + std::to_string(values[1])));
}

TEST_F(ContestantTest, ARunEndsWhenItIsCancelledOrOutOfTime) {
  std::atomic<bool> cancel = false;
  RunTime unlimited(&cancel, 0);
  EXPECT_TRUE(unlimited.Going());
  cancel = true;
  EXPECT_FALSE(unlimited.Going());
  EXPECT_FALSE(unlimited.ran_out());
  RunTime over(nullptr, 1e-9);
  absl::SleepFor(absl::Microseconds(10));
  EXPECT_FALSE(over.Going());
  EXPECT_TRUE(over.ran_out());
}

}  // namespace
}  // namespace kvr
