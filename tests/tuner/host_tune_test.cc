// SPDX-License-Identifier: Apache-2.0
//
// Verify and tune on the host device, against kernels with one planted fault each (faulty/): every
// fault is recorded against its config, the rest goes on, and this process notices nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "absl/time/clock.h"
#include "api/tune.h"
#include "core/status.h"
#include "registry/selection_file.h"
#include "tuner/publish.h"

namespace kvr {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr char kOp[] = "mla_sparse_decode";
const Axes kShape = {
    {"num_tokens", 2}, {"num_qo_heads", 2}, {"page_size", 8}, {"num_pages", 2}, {"topk", 8}};

class HostTuneTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string pattern = ::testing::TempDir() + "/kvr-host-tune-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = new std::string(pattern);
    setenv("KVR_WORKER", KVR_BIN_DIR "/kvr-worker", 1);
    PlatformOptions options;
    options.plugin_roots = {KVR_SOURCE_DIR "/tests/tuner/faulty"};
    options.cache_dir = pattern + "/cache";
    auto platform = Platform::Open(options);
    ASSERT_TRUE(platform.ok()) << platform.status();
    platform_ = platform->release();
    settings_ = new TuneSettings;
    settings_->device = "host";
    settings_->plugin_roots = options.plugin_roots;
    settings_->ledger_directory = "none";
    settings_->timeout_s = Limit();
  }
  // A kernel hangs that takes five seconds, on a slow machine more: ten for each that a right one
  // takes there, its worker's start with it.
  static double Limit() {
    VerifyRequest request;
    request.op = kOp;
    request.variants = {"faulty"};
    request.shapes = {kShape};
    request.coverage = Coverage::kDefault;
    absl::Duration took;
    for (int i = 0; i < 2; ++i) {  // the second time nothing is compiled
      const absl::Time start = absl::Now();
      EXPECT_TRUE(Verify(*platform_, *settings_, request).ok() ||
                  !platform_->OpenDevice("host").ok());
      took = absl::Now() - start;
    }
    return 5 + 10 * std::floor(absl::ToDoubleSeconds(took));
  }
  static void TearDownTestSuite() {
    delete platform_;
    delete settings_;
    std::filesystem::remove_all(*directory_);
    delete directory_;
  }
  void SetUp() override {
    const auto device = platform_->OpenDevice("host");
    if (!device.ok()) GTEST_SKIP() << "no host device: " << device.status();
    const auto variant = platform_->catalog().Find(kOp, "faulty");
    ASSERT_TRUE(variant.ok()) << variant.status();
  }
  static TuneRequest Request() {
    TuneRequest request;
    request.op = kOp;
    request.variants = {"faulty"};
    request.shapes = {kShape};
    request.race.final_rounds = 12;
    request.duel_rounds = 12;
    return request;
  }

  static Platform* platform_;
  static TuneSettings* settings_;
  static std::string* directory_;
};
Platform* HostTuneTest::platform_ = nullptr;
TuneSettings* HostTuneTest::settings_ = nullptr;
std::string* HostTuneTest::directory_ = nullptr;

// By MODE of faulty/variant.toml: the status and a part of the reason.
const std::map<int64_t, std::pair<TrialStatus, std::string>> kFaults = {
    {0, {TrialStatus::kPassed, ""}},
    {1, {TrialStatus::kIncorrectNumerical, "outside their bound"}},
    {2, {TrialStatus::kRuntimeError, "past the end of output output"}},
    {3, {TrialStatus::kRuntimeError, "trap"}},
    {4, {TrialStatus::kRuntimeError, "thread (0,0,0): a write to address 0x"}},
    {5, {TrialStatus::kTimeout, "5 s"}},  // or 15, 25
    {6, {TrialStatus::kRuntimeError, "SIGILL"}},
    {7, {TrialStatus::kRuntimeError, "wrote into its input q_nope"}},
    {8, {TrialStatus::kIncorrectNumerical, "never written"}},
    {9, {TrialStatus::kPassed, ""}},  // at an even topk, as here
};

TEST_F(HostTuneTest, EveryFaultIsRecordedAgainstItsConfigAndTheRestGoesOn) {
  VerifyRequest request;
  request.op = kOp;
  request.variants = {"faulty"};
  request.shapes = {kShape};
  request.coverage = Coverage::kAll;
  const auto mine = platform_->OpenDevice("host");  // in this process, as an application's would be
  ASSERT_TRUE(mine.ok()) << mine.status();
  const auto report = Verify(*platform_, *settings_, request);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->results.size(), kFaults.size());
  for (const VerifyResult& result : report->results) {
    const auto& [status, reason] = kFaults.at(result.config.at("MODE"));
    EXPECT_EQ(result.status, status) << ConfigText(result.config) << ": " << result.reason;
    EXPECT_THAT(result.reason, HasSubstr(reason)) << ConfigText(result.config);
  }
  EXPECT_GE(report->respawns, 2);  // timeout, illegal instruction
  const auto memory = (*mine)->Allocate(64);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_TRUE((*mine)->MemsetAsync(*memory, 0, 64, {}).ok());
  EXPECT_TRUE((*mine)->Synchronize({}).ok());
  (*mine)->Free(*memory);
}

TEST_F(HostTuneTest, TuningSelectsWhatIsRightAndPublishesIt) {
  TuneRequest request = Request();
  request.selection_file = *directory_ + "/selections.json";
  const auto report = Tune(*platform_, *settings_, request);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->selections.size(), 1u);
  const TunedKey& key = report->selections[0];
  EXPECT_THAT(key.variant, AnyOf("faulty", "baseline"));  // the incumbent takes part
  if (key.variant == "faulty") {
    EXPECT_EQ(key.config.at("MODE"), 0);
  }
  EXPECT_EQ(key.key, (Axes{{"topk", 8}}));
  EXPECT_GT(key.median_us, 0);
  EXPECT_GE(key.tried, 1);
  EXPECT_TRUE(key.published) << key.note;
  EXPECT_FALSE(key.verdict.empty());  // somebody met the incumbent
  EXPECT_EQ(key.incumbent_kept, key.verdict != "WIN");
  EXPECT_GT(key.band, 0);
  EXPECT_EQ(key.session.mode, MeasureMode());
  EXPECT_EQ(key.session.buffer_sets, 2);
  EXPECT_FALSE(report->session.cold);  // nobody says so of a host
  EXPECT_EQ(report->session.launches_most, 1);
  bool odd_seen = false;
  for (const Trial& trial : report->trials) {
    if (trial.variant != "faulty") continue;
    // Right where it is measured, wrong at a shape that the same key serves: not selected.
    const bool odd = trial.axes.at("topk") % 2 == 1 && trial.config.at("MODE") == 9;
    odd_seen |= odd;
    EXPECT_EQ(trial.status,
              odd ? TrialStatus::kIncorrectNumerical : kFaults.at(trial.config.at("MODE")).first)
        << ConfigText(trial.config) << ": " << trial.reason;
  }
  EXPECT_TRUE(odd_seen);

  const auto device = platform_->OpenDevice("host");
  ASSERT_TRUE(device.ok());
  const auto file =
      ReadSelectionFile(request.selection_file, platform_->catalog(), (*device)->info());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->generation->digest().Hex(), report->digest);

  // Another key joins the first, and the incumbent of a key is what the file selects.
  request.shapes = {kShape, kShape};
  request.shapes[1]["topk"] = 3;
  const auto again = Tune(*platform_, *settings_, request);
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_EQ(again->selections.size(), 2u);
  const TunedKey& kept = again->selections[0];
  EXPECT_EQ(kept.incumbent_variant, key.variant);
  EXPECT_EQ(kept.incumbent_config, key.config);
  // Nothing but a WIN replaces it, and what the file selects already is not written again.
  EXPECT_EQ(kept.incumbent_kept, kept.verdict != "WIN") << kept.verdict;
  EXPECT_EQ(kept.published, kept.verdict == "WIN");
  EXPECT_EQ(kept.variant == key.variant && kept.config == key.config, kept.incumbent_kept);
  EXPECT_EQ(again->selections[1].key, (Axes{{"topk", 4}}));
  const auto both =
      ReadSelectionFile(request.selection_file, platform_->catalog(), (*device)->info());
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->generation->FindOp(kOp)->selections.size(), 2u);
}

TEST_F(HostTuneTest, ATuneThatCannotCarryASelectionOverKeepsTheFileAndItsMeasurements) {
  const auto device = platform_->OpenDevice("host");
  ASSERT_TRUE(device.ok());
  TuneRequest request = Request();
  request.variants = {"baseline"};
  request.coverage = Coverage::kDefault;
  request.selection_file = *directory_ + "/others.json";
  Publication other;
  other.op = kOp;
  other.policy = (*platform_->catalog().FindOp(kOp))->policy;
  other.key = *other.policy.FromNamed({{"topk", 512}});
  other.selection.variant = *platform_->catalog().Find(kOp, "faulty");
  other.selection.config = DefaultConfig(other.selection.variant->tunables);
  ASSERT_TRUE(
      PublishSelection(request.selection_file, platform_->catalog(), (*device)->info(), other)
          .ok());
  PlatformOptions options;  // without the plugin
  options.cache_dir = *directory_ + "/cache";
  const auto plain = Platform::Open(options);
  ASSERT_TRUE(plain.ok()) << plain.status();
  TuneSettings settings = *settings_;
  settings.plugin_roots = {};
  const auto report = Tune(**plain, settings, request);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->selections.size(), 1u);
  EXPECT_EQ(report->selections[0].variant, "baseline");
  EXPECT_FALSE(report->selections[0].published);
  EXPECT_TRUE(report->selections[0].refused);
  EXPECT_THAT(report->selections[0].note, HasSubstr("faulty"));
  const auto file =
      ReadSelectionFile(request.selection_file, platform_->catalog(), (*device)->info());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->generation->FindOp(kOp)->selections.size(), 1u);
}

TEST_F(HostTuneTest, PinnedTunablesAreMeasuredButNeverPublished) {
  TuneRequest request = Request();
  request.pins = {"MODE=0"};
  request.selection_file = *directory_ + "/pinned.json";
  const auto report = Tune(*platform_, *settings_, request);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->selections.size(), 1u);
  EXPECT_EQ(report->selections[0].variant, "faulty");
  EXPECT_EQ(report->selections[0].tried, 1);
  EXPECT_FALSE(report->selections[0].published);
  EXPECT_THAT(report->selections[0].note, HasSubstr("--set"));
  EXPECT_FALSE(std::filesystem::exists(request.selection_file));
}

TEST_F(HostTuneTest, WhatDoesNotFitTheMemoryAllowedIsSkippedAndTheRestGoesOn) {
  TuneSettings settings = *settings_;
  settings.memory_bytes = 1 << 20;
  VerifyRequest request;
  request.op = kOp;
  request.variants = {"faulty"};
  request.shapes = {kShape, kShape};
  request.shapes[0]["num_pages"] = 512;
  const auto report = Verify(*platform_, settings, request);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->results.size(), 1u);
  EXPECT_EQ(report->results[0].status, TrialStatus::kPassed);
  ASSERT_EQ(report->skipped.size(), 1u);
  EXPECT_THAT(report->skipped[0].reason, HasSubstr("insufficient memory"));

  request.shapes.pop_back();
  EXPECT_TRUE(absl::IsResourceExhausted(Verify(*platform_, settings, request).status()));
}

TEST_F(HostTuneTest, WhatATuneFindsOutIsInTheLedgerAndIsNotFoundOutAgain) {
  TuneSettings settings = *settings_;
  settings.ledger_directory = *directory_ + "/ledger";
  TuneRequest request = Request();
  request.selection_file = *directory_ + "/recorded.json";
  const auto report = Tune(*platform_, settings, request);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->ledger_trouble, "");
  EXPECT_TRUE(report->rejected.empty());
  const auto ledger = ledger::Ledger::Open(settings.ledger_directory);
  ASSERT_TRUE(ledger.ok()) << ledger.status();
  const auto trials = (*ledger)->Find<ledger::Trial>({{"op", kOp}});
  ASSERT_TRUE(trials.ok()) << trials.status();
  std::map<std::string, int> stages;
  for (const ledger::Trial& trial : *trials) {
    ++stages[trial.stage];
    EXPECT_EQ(trial.status == "PASSED", trial.stage != "verify") << trial.reason;
    if (trial.stage == "duel") {
      EXPECT_FALSE(trial.samples.empty());
      EXPECT_GT(trial.median_us, 0);
    }
  }
  EXPECT_EQ(stages["verify"], 9);
  EXPECT_EQ(stages["duel"], 2);
  EXPECT_GE(stages["screen"] + stages["halve"] + stages["final"], 2);
  const auto verdicts = (*ledger)->Find<ledger::Verdict>({{"kind", "quick"}});
  ASSERT_TRUE(verdicts.ok());
  ASSERT_EQ(verdicts->size(), 1u);
  EXPECT_EQ(verdicts->front().verdict, report->selections[0].verdict);
  const auto publications = (*ledger)->Find<ledger::Publication>({{"trigger", "tune"}});
  ASSERT_TRUE(publications.ok());
  ASSERT_EQ(publications->size(), 1u);
  EXPECT_EQ(publications->front().outcome, "published");
  EXPECT_EQ(publications->front().before, "");
  EXPECT_EQ(publications->front().after, report->digest);
  const size_t builds = (*ledger)->Find<ledger::Build>({{"variant", "faulty"}})->size();
  EXPECT_EQ(builds, kFaults.size());

  // The wrong ones are neither built nor run again. MODE 0 stays, unless it lost the duel.
  const auto again = Tune(*platform_, settings, request);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_GE(again->rejected.size(), 9u);
  for (const auto& config : again->rejected) EXPECT_EQ(config.variant, "faulty");
  for (const Trial& trial : again->trials) EXPECT_EQ(trial.status, TrialStatus::kPassed);
  EXPECT_LE((*ledger)->Find<ledger::Build>({{"variant", "faulty"}})->size(), builds + 1);
  EXPECT_FALSE(again->selections[0].variant.empty());

  request.retest = true;
  const auto retested = Tune(*platform_, settings, request);
  ASSERT_TRUE(retested.ok()) << retested.status();
  EXPECT_TRUE(retested->rejected.empty());
  EXPECT_EQ((*ledger)->Find<ledger::Build>({{"variant", "faulty"}})->size() >= 2 * builds, true);
}

TEST_F(HostTuneTest, ALedgerThatCannotBeWrittenIsSaidAndTuningGoesOn) {
  struct Notes : Progress {
    void Update(const ProgressUpdate&) override {}
    void Note(std::string_view line) override { text += std::string(line) + "\n"; }
    std::string text;
  } notes;
  TuneSettings settings = *settings_;
  settings.progress = &notes;
  settings.ledger_directory = "/dev/null/ledger";
  TuneRequest request = Request();
  request.coverage = Coverage::kDefault;
  const auto report = Tune(*platform_, settings, request);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->selections[0].variant.empty());
  EXPECT_THAT(report->ledger_trouble, HasSubstr("/dev/null"));
  EXPECT_THAT(notes.text, HasSubstr("going on without the ledger"));
}

TEST_F(HostTuneTest, ABudgetCutsAndSaysWhat) {
  TuneRequest request = Request();
  request.budget_s = 1e-6;
  const auto nothing = Tune(*platform_, *settings_, request);
  ASSERT_TRUE(nothing.ok()) << nothing.status();
  ASSERT_FALSE(nothing->cut.empty());
  EXPECT_THAT(nothing->cut[0], HasSubstr("no time to build"));
  EXPECT_TRUE(nothing->selections[0].variant.empty());
  EXPECT_THAT(nothing->selections[0].note, HasSubstr("budget"));
}

TEST_F(HostTuneTest, AKeyOfSeveralShapesIsOneRaceOverAllOfThem) {
  TuneSettings settings = *settings_;
  settings.ledger_directory = *directory_ + "/shapes";
  TuneRequest request = Request();
  request.coverage = Coverage::kDefault;
  request.shapes = {kShape, kShape};
  request.shapes[1]["num_tokens"] = 3;  // not part of the key
  const auto report = Tune(*platform_, settings, request);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->selections.size(), 1u);
  const TunedKey& key = report->selections[0];
  ASSERT_EQ(key.shapes.size(), 2u);
  EXPECT_FALSE(key.verdict.empty());
  const auto ledger = ledger::Ledger::Open(settings.ledger_directory);
  ASSERT_TRUE(ledger.ok());
  EXPECT_EQ((*ledger)->Find<ledger::Verdict>({{"kind", "quick"}})->size(), 2u);
  EXPECT_EQ((*ledger)->Find<ledger::Trial>({{"stage", "duel"}})->size(), 4u);
}

TEST_F(HostTuneTest, CancellingKeepsWhatIsFinished) {
  struct CancelAfterTwo : Progress {
    void Update(const ProgressUpdate& update) override {
      if (update.phase == Phase::kVerify && update.done == 2) cancel = true;
    }
    void Note(std::string_view) override {}
    std::atomic<bool> cancel{false};
  } progress;
  TuneSettings settings = *settings_;
  settings.progress = &progress;
  settings.cancel = &progress.cancel;
  const auto report = Tune(*platform_, settings, Request());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->cancelled);
  EXPECT_EQ(report->trials.size(), 2u);
  EXPECT_TRUE(report->selections.empty());
}

TEST_F(HostTuneTest, CompilingReportsWhatABinaryUses) {
  CompileRequest request;
  request.op = kOp;
  request.variants = {"faulty"};
  request.shapes = {kShape};
  const auto report = Compile(*platform_, *settings_, {"host"}, request);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->binaries.size(), 1u);
  EXPECT_EQ(report->binaries[0].status, TrialStatus::kPassed) << report->binaries[0].reason;
  EXPECT_GT(report->binaries[0].binary_bytes, 0);
  EXPECT_EQ(report->binaries[0].smem_dynamic, 0);
  EXPECT_FALSE(Compile(*platform_, *settings_, {"sm_1"}, request).ok());
}

TEST_F(HostTuneTest, AWrongRequestFailsBeforeAnythingStarts) {
  VerifyRequest request;
  request.op = "mla_sparse_decod";
  EXPECT_THAT(std::string(Verify(*platform_, *settings_, request).status().message()),
              HasSubstr("mla_sparse_decode"));
  request.op = kOp;
  request.variants = {"nobody"};
  EXPECT_FALSE(Verify(*platform_, *settings_, request).ok());
  request.variants = {};
  request.pins = {"NOBODY=1"};
  EXPECT_FALSE(Verify(*platform_, *settings_, request).ok());
  request.pins = {};
  request.shapes = {{{"nothing", 1}}};
  EXPECT_FALSE(Verify(*platform_, *settings_, request).ok());
}

}  // namespace
}  // namespace kvr
