// SPDX-License-Identifier: Apache-2.0
//
// Approximate variants from end to end, on the host device: an operation whose variants "coarse"
// and "fine" round by two quality tunables, and "broken", which rounds nothing
// (tests/plugins/fixtures/approximate).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "api/compare.h"
#include "api/runtime.h"
#include "api/swap.h"
#include "api/tune.h"
#include "core/install_layout.h"
#include "core/quality.h"
#include "core/status.h"
#include "registry/selection_file.h"
#include "tuner/ledger/ledger.h"

namespace kvr {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kOp[] = "scale_rows";
const Axes kShape = {{"rows", 4}, {"width", 64}};

ApproximateOptIn Coarse(int64_t grains, int64_t floor = 0) {
  return {kOp, "coarse", {{"GRAINS", grains}, {"FLOOR", floor}}};
}

class ApproximateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/kvr-approximate-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    setenv("KVR_WORKER", KVR_BIN_DIR "/kvr-worker", 1);
    PlatformOptions options;
    plugins_ = {InstallPath("tests/fixtures/plugins/kvr_test_approximate.so")};
    options.plugin_roots = plugins_;
    options.cache_dir = directory_ + "/cache";
    absl::StatusOr<std::unique_ptr<Platform>> platform = Platform::Open(options);
    ASSERT_TRUE(platform.ok()) << platform.status();
    platform_ = *std::move(platform);
    const auto device = platform_->OpenDevice("host");
    if (!device.ok()) GTEST_SKIP() << "no host device: " << device.status();
    device_ = (*device)->info();
    settings_.device = "host";
    settings_.plugin_roots = plugins_;
    settings_.ledger_directory = "none";
  }
  void TearDown() override {
    platform_.reset();
    std::filesystem::remove_all(directory_);
  }

  TuneRequest Tuning() const {
    TuneRequest request;
    request.op = kOp;
    request.shapes = {kShape};
    request.race.final_rounds = 8;
    request.duel_rounds = 8;
    return request;
  }

  // A file that selects coarse with these values.
  std::string FileSelecting(int64_t grains) {
    const Catalog::Op& op = **platform_->catalog().FindOp(kOp);
    const VariantPtr coarse = *platform_->catalog().Find(kOp, "coarse");
    Selection selection{.variant = coarse, .config = DefaultConfig(coarse->tunables)};
    selection.config["GRAINS"] = grains;
    GenerationBuilder builder(device_.model, device_.target);
    builder.SetPolicy(kOp, op.policy);
    const BucketedKey key = op.policy.Bucket(*ResolveAxes(op.spec(), kShape));
    EXPECT_TRUE(builder.Select(kOp, key, selection).ok());
    const std::string path = directory_ + "/selections.json";
    const absl::Status written = WriteSelectionFile(*builder.Build(1), path);
    EXPECT_TRUE(written.ok()) << written;
    return path;
  }

  absl::StatusOr<std::unique_ptr<Runtime>> Boot(const std::string& selections,
                                                std::vector<ApproximateOptIn> approximate,
                                                MissPolicy miss = MissPolicy::kBaseline) {
    RuntimeOptions options;
    options.device = "host";
    options.plugin_roots = plugins_;
    options.cache_dir = directory_ + "/cache";
    options.selection_file = selections;
    options.journal = "none";
    options.environment = false;
    options.miss_policy = miss;
    options.approximate = std::move(approximate);
    return Runtime::Open(options);
  }

  std::string directory_;
  std::vector<std::string> plugins_;
  std::unique_ptr<Platform> platform_;
  DeviceInfo device_;
  TuneSettings settings_;
};

std::map<std::string, VerifyResult> ByVariant(const VerifyReport& report) {
  std::map<std::string, VerifyResult> results;
  for (const VerifyResult& result : report.results) results[result.variant] = result;
  return results;
}

double Figure(const std::vector<QualityMeasure>& quality, std::string_view name) {
  for (const QualityMeasure& measure : quality) {
    if (measure.name == name) return measure.value;
  }
  ADD_FAILURE() << "no " << name << " in " << QualityText(quality);
  return -1;
}

TEST_F(ApproximateTest, IsHeldToItsOwnReferenceAndItsDistanceFromTheExactOneIsTold) {
  VerifyRequest request;
  request.op = kOp;
  request.shapes = {kShape};
  const auto report = Verify(*platform_, settings_, request);
  ASSERT_TRUE(report.ok()) << report.status();
  const std::map<std::string, VerifyResult> results = ByVariant(*report);
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(results.at("exact").status, TrialStatus::kPassed);
  EXPECT_TRUE(results.at("exact").quality.empty());
  for (const char* name : {"coarse", "fine"}) {
    const VerifyResult& result = results.at(name);
    EXPECT_EQ(result.status, TrialStatus::kPassed) << result.reason;
    EXPECT_EQ(result.config.at("GRAINS"), 8);
    EXPECT_LT(result.max_abs, 1e-6);  // against what it says it computes
    ASSERT_EQ(result.quality.size(), 4u);
    const double error = Figure(result.quality, "y.relative_error");
    EXPECT_GT(error, 0.01);
    EXPECT_LT(error, 0.1);
    EXPECT_GT(Figure(result.quality, "y.cosine_difference"), 0);
    EXPECT_EQ(Figure(result.quality, "rows_changed"), 1.0);
    EXPECT_GT(Figure(result.quality, "zeros"), 0);
  }
  EXPECT_EQ(QualityText(results.at("coarse").quality), QualityText(results.at("fine").quality));
  // It meets the operation's reference, and not what it claims to compute.
  EXPECT_EQ(results.at("broken").status, TrialStatus::kIncorrectNumerical);
  EXPECT_TRUE(results.at("broken").quality.empty());
}

// What its own code does wrong is told of it; the others go on.
TEST_F(ApproximateTest, FaultsOfItsReferenceAreItsOwn) {
  VerifyRequest request;
  request.op = kOp;
  request.shapes = {kShape};
  request.variants = {"coarse", "exact"};
  for (const auto& [fault, says] :
       {std::pair("own reference aborts", "SIGABRT"),
        std::pair("own reference refuses",
                  "the reference function of scale_rows/coarse: it does")}) {
    setenv("KVR_TEST_FAULT", fault, 1);
    const auto report = Verify(*platform_, settings_, request);
    unsetenv("KVR_TEST_FAULT");
    ASSERT_TRUE(report.ok()) << report.status();
    const std::map<std::string, VerifyResult> results = ByVariant(*report);
    EXPECT_EQ(results.at("coarse").status, TrialStatus::kRuntimeError);
    EXPECT_THAT(results.at("coarse").reason, HasSubstr(says));
    EXPECT_EQ(results.at("exact").status, TrialStatus::kPassed);
  }
  setenv("KVR_TEST_FAULT", "quality is no number", 1);
  const absl::Status status = Verify(*platform_, settings_, request).status();
  unsetenv("KVR_TEST_FAULT");
  EXPECT_THAT(std::string(status.message()), HasSubstr("measure 'zeros' is nan"));
}

TEST_F(ApproximateTest, VerifyTakesTheValuesOfSetOrOfAnOptIn) {
  VerifyRequest request;
  request.op = kOp;
  request.shapes = {kShape};
  request.variants = {"coarse", "fine"};
  request.pins = {"GRAINS=1", "FLOOR=1"};
  const auto rough = Verify(*platform_, settings_, request);
  ASSERT_TRUE(rough.ok()) << rough.status();
  EXPECT_GT(Figure(ByVariant(*rough).at("fine").quality, "y.relative_error"), 0.3);
  request.pins = {};
  request.approximate = {Coarse(16)};
  const auto fine = Verify(*platform_, settings_, request);
  ASSERT_TRUE(fine.ok()) << fine.status();
  const VerifyResult coarse = ByVariant(*fine).at("coarse");
  EXPECT_EQ(coarse.status, TrialStatus::kPassed) << coarse.reason;
  EXPECT_EQ(coarse.config.at("GRAINS"), 16);
  EXPECT_LT(Figure(coarse.quality, "y.relative_error"), 0.05);
  EXPECT_EQ(ByVariant(*fine).at("fine").config.at("GRAINS"), 8);
}

TEST_F(ApproximateTest, TuneTakesItWithAnOptInOnlyAndNeverSearchesItsQuality) {
  settings_.ledger_directory = directory_ + "/ledger";
  const auto without = Tune(*platform_, settings_, Tuning());
  ASSERT_TRUE(without.ok()) << without.status();
  for (const Trial& trial : without->trials) EXPECT_EQ(trial.variant, "exact");
  const auto coarse =
      std::find_if(without->skipped.begin(), without->skipped.end(),
                   [](const Skipped& skipped) { return skipped.variant == "coarse"; });
  ASSERT_NE(coarse, without->skipped.end());
  EXPECT_THAT(coarse->reason, HasSubstr("--approximate 'scale_rows/coarse{FLOOR=0,GRAINS=8}'"));

  TuneRequest request = Tuning();
  request.approximate = {Coarse(2, 1)};
  const auto with = Tune(*platform_, settings_, request);
  ASSERT_TRUE(with.ok()) << with.status();
  int timed = 0;
  for (const Trial& trial : with->trials) {
    if (trial.variant == "exact") continue;
    ASSERT_EQ(trial.variant, "coarse");
    EXPECT_EQ(trial.config.at("GRAINS"), 2);
    EXPECT_EQ(trial.config.at("FLOOR"), 1);
    EXPECT_EQ(trial.status, TrialStatus::kPassed) << trial.reason;
    EXPECT_GT(Figure(trial.quality, "y.relative_error"), 0.05);
    timed += trial.screen_us >= 0;
  }
  EXPECT_EQ(timed, 2);  // THREADS is searched
  const auto ledger = ledger::Ledger::Open(settings_.ledger_directory, {.read_only = true});
  ASSERT_TRUE(ledger.ok()) << ledger.status();
  const auto kept = (*ledger)->Find<ledger::Trial>({{"variant", "coarse"}});
  ASSERT_TRUE(kept.ok() && !kept->empty()) << kept.status();
  for (const ledger::Trial& trial : *kept) {
    EXPECT_THAT(trial.quality, AllOf(HasSubstr("y.cosine_difference="), HasSubstr("zeros=")));
  }
}

TEST_F(ApproximateTest, AnOptInThatSaysTooLittleOrIsContradictedIsAnError) {
  TuneRequest request = Tuning();
  request.approximate = {{kOp, "coarse", {{"GRAINS", 2}}}};
  const absl::Status little = Tune(*platform_, settings_, request).status();
  EXPECT_EQ(little.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Fix(little)), HasSubstr("'scale_rows/coarse{FLOOR=0,GRAINS=2}'"));
  request.approximate = {Coarse(2)};
  request.variants = {"coarse"};
  request.pins = {"GRAINS=4"};
  const absl::Status other = Tune(*platform_, settings_, request).status();
  EXPECT_THAT(std::string(other.message()), HasSubstr("GRAINS=4 is set, and the opt-in is to"));
  request = Tuning();
  request.variants = {"coarse"};
  const absl::Status none = Tune(*platform_, settings_, request).status();
  EXPECT_THAT(std::string(none.message()), HasSubstr("--approximate 'scale_rows/coarse{"));
}

TEST_F(ApproximateTest, TuneThatFailsItsOwnReferenceIsNotSelected) {
  TuneRequest request = Tuning();
  request.approximate = {{kOp, "broken", {{"GRAINS", 2}, {"FLOOR", 0}}}};
  request.variants = {"broken"};
  const auto report = Tune(*platform_, settings_, request);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->selections.at(0).variant, "");
  EXPECT_EQ(report->selections[0].note, "no config of 'broken' passed");
}

TEST_F(ApproximateTest, TuneWithoutTheOptInLeavesWhatAFileSelects) {
  TuneRequest request = Tuning();
  request.selection_file = FileSelecting(4);
  const auto before = ReadSelectionContent(request.selection_file);
  const absl::Status nothing_left = Tune(*platform_, settings_, request).status();
  EXPECT_TRUE(absl::IsInvalidArgument(nothing_left)) << nothing_left;
  EXPECT_THAT(std::string(What(nothing_left)),
              AllOf(HasSubstr("no key is left to tune"),
                    HasSubstr("--approximate 'scale_rows/coarse{FLOOR=0,GRAINS=4}'")));
  EXPECT_EQ(ReadSelectionContent(request.selection_file)->Digest(), before->Digest());
  // Another key is tuned; this one is told as skipped.
  request.shapes = {kShape, {{"rows", 64}, {"width", 64}}};
  const auto report = Tune(*platform_, settings_, request);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->selections.size(), 1u);
  EXPECT_EQ(report->selections[0].key.at("rows"), 64);
  EXPECT_TRUE(std::any_of(report->skipped.begin(), report->skipped.end(), [](const auto& skipped) {
    return skipped.reason.find("was not asked for") != std::string::npos;
  }));
  request.selection_file = FileSelecting(4);
  request.shapes = {kShape};
  // With it, the selection is the incumbent.
  request.approximate = {Coarse(4)};
  const auto asked = Tune(*platform_, settings_, request);
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(asked->selections.at(0).incumbent_variant, "coarse");
  EXPECT_EQ(asked->selections[0].incumbent_config.at("GRAINS"), 4);
}

TEST_F(ApproximateTest, ComparingNeedsTheOptInAndTellsTheQuality) {
  AbRequest request;
  request.op = kOp;
  request.shapes = {kShape};
  request.incumbent = "exact";
  request.challenger = "coarse{THREADS=16}";
  request.rounds = 8;
  const absl::Status refused = Compare(*platform_, settings_, request).status();
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("--approximate 'scale_rows/coarse{FLOOR=0,GRAINS=8}'"));
  request.approximate = {Coarse(4)};
  const auto report = Compare(*platform_, settings_, request);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->sides[kChallenger].config.at("GRAINS"), 4);
  EXPECT_EQ(report->sides[kChallenger].config.at("THREADS"), 16);
  ASSERT_EQ(report->shapes.size(), 1u);
  EXPECT_TRUE(report->shapes[0].sessions.at(0).proved) << report->shapes[0].reason;
  EXPECT_TRUE(report->shapes[0].quality[kIncumbent].empty());
  EXPECT_GT(Figure(report->shapes[0].quality[kChallenger], "y.relative_error"), 0.02);
}

TEST_F(ApproximateTest, ASelectionServesWithTheOptInsVeryValuesElseTheBaselineDoes) {
  const std::string file = FileSelecting(4);
  struct Case {
    std::vector<ApproximateOptIn> approximate;
    std::string variant, why;
  };
  const Case cases[] = {
      {{Coarse(4)}, "coarse", "selected"},
      {{}, "exact", "nobody opted in to it with FLOOR=0,GRAINS=4"},
      {{Coarse(8)}, "exact", "the opt-in is to FLOOR=0,GRAINS=8, not to FLOOR=0,GRAINS=4"}};
  for (const Case& c : cases) {
    const auto runtime = Boot(file, c.approximate);
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    EXPECT_TRUE((*runtime)->dropped().empty());
    const auto report = (*runtime)->Load(kOp, {kShape});
    ASSERT_TRUE(report.ok() && report->ready()) << report.status() << report->Text();
    EXPECT_EQ(report->items.at(0).variant, c.variant);
    EXPECT_THAT(report->items[0].why, HasSubstr(c.why));
    const std::vector<ServedInfo> served = (*runtime)->served();
    ASSERT_EQ(served.size(), 1u);
    EXPECT_EQ(served[0].missed, c.variant == "exact");  // its launches count as not selected
    EXPECT_THAT(served[0].why, HasSubstr(c.why));
  }
  // Who wants misses to be errors is told what is missing.
  const auto strict = Boot(file, {}, MissPolicy::kError);
  ASSERT_TRUE(strict.ok()) << strict.status();
  const auto report = (*strict)->Load(kOp, {kShape});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(std::string(report->items.at(0).status.message()), HasSubstr("nobody opted in"));
  EXPECT_FALSE(Boot(file, {{kOp, "coarse", {}}}).ok());
  EXPECT_FALSE(Boot(file, {{kOp, "corse", {}}}).ok());
}

class ApproximateSwap : public ApproximateTest {
 protected:
  void Open(std::vector<ApproximateOptIn> approximate, const std::string& selections = "") {
    swapper_.reset();
    absl::StatusOr<std::unique_ptr<Runtime>> runtime = Boot(selections, std::move(approximate));
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
    ASSERT_TRUE(runtime_->Load(kOp, {kShape})->ready());
    absl::StatusOr<std::unique_ptr<Swapper>> swapper =
        OpenSwapper(*runtime_, {.plugin_roots = plugins_});
    ASSERT_TRUE(swapper.ok()) << swapper.status();
    swapper_ = *std::move(swapper);
  }
  void TearDown() override {
    swapper_.reset();
    runtime_.reset();
    ApproximateTest::TearDown();
  }
  SwapResult Ask(SwapRequest request) {
    const auto result = swapper_->Wait(swapper_->Request(std::move(request)));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : SwapResult{};
  }
  std::string Serves() const { return runtime_->served().at(0).variant; }
  void ExpectRefused(const SwapResult& result, const std::string& reason) {
    EXPECT_EQ(result.state, SwapResult::State::kFailed);
    EXPECT_THAT(std::string(result.status.message()), HasSubstr(reason));
    EXPECT_EQ(Serves(), "exact");
  }

  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Swapper> swapper_;
};

TEST_F(ApproximateSwap, NeedsTheProgramsOptInAndItsValues) {
  ASSERT_NO_FATAL_FAILURE(Open({}));
  ExpectRefused(Ask({.op = kOp, .variant = "coarse"}),
                "the program did not opt in to 'scale_rows/coarse{FLOOR=0,GRAINS=8}'");
  ExpectRefused(Ask({.op = kOp, .variant = "coarse"}), "only its own options (approximate) can");
  ExpectRefused(Ask({.selection_file = FileSelecting(4)}), "nobody opted in");
  ASSERT_NO_FATAL_FAILURE(Open({Coarse(4), {kOp, "broken", {{"GRAINS", 4}, {"FLOOR", 0}}}}));
  ExpectRefused(Ask({.op = kOp, .variant = "coarse{GRAINS=8}"}), "the opt-in is to");
  ExpectRefused(Ask({.selection_file = FileSelecting(8)}), "the opt-in is to");
  ExpectRefused(Ask({.op = kOp, .variant = "broken"}), "INCORRECT_NUMERICAL");
  const SwapResult result = Ask({.op = kOp, .variant = "coarse{THREADS=16}"});
  EXPECT_EQ(result.state, SwapResult::State::kPublished) << result.status;
  EXPECT_EQ(Serves(), "coarse");
  EXPECT_EQ(runtime_->served().at(0).config.at("GRAINS"), 4);
  EXPECT_EQ(Ask({.op = kOp, .variant = "exact"}).state, SwapResult::State::kPublished);
  EXPECT_EQ(Ask({.selection_file = FileSelecting(4)}).state, SwapResult::State::kPublished);
  EXPECT_EQ(Serves(), "coarse");
}

TEST_F(ApproximateSwap, WhatServedOnceIsHadBackAsItServed) {
  ASSERT_NO_FATAL_FAILURE(Open({}, FileSelecting(4)));
  EXPECT_EQ(Serves(), "exact");
  const std::string booted = runtime_->generation()->digest().Hex();
  const SwapResult wide = Ask({.op = kOp, .variant = "exact"});
  ASSERT_EQ(wide.state, SwapResult::State::kPublished) << wide.status;
  const SwapResult back = Ask({.rollback = "previous"});
  EXPECT_EQ(back.state, SwapResult::State::kPublished) << back.status;
  EXPECT_EQ(runtime_->generation()->digest().Hex(), booted);
  EXPECT_EQ(Serves(), "exact");
}

}  // namespace
}  // namespace kvr
