// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/strings.h"
#include "registry/selection_file.h"
#include "tests/registry/fakes.h"
#include "tuner/selections/exchange.h"
#include "tuner/selections/from_ledgers.h"
#include "tuner/selections/shipped.h"
#include "tuner/selections/why.h"

namespace kvr {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kFast[] = "BLOCK=256,CTAS=1024", kSlow[] = "BLOCK=64,CTAS=1024";

class Selections : public ::testing::Test {
 protected:
  Selections() {
    char path[] = "/tmp/kvr-selections-XXXXXX";
    directory_ = mkdtemp(path);
  }
  ~Selections() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<ledger::Ledger> Ledger(const std::string& name) {
    absl::StatusOr<std::unique_ptr<ledger::Ledger>> opened =
        ledger::Ledger::Open(directory_ + "/" + name);
    if (!opened.ok()) ADD_FAILURE() << opened.status();
    return *std::move(opened);
  }
  ledger::Environment Gpu(const std::string& uuid, const std::string& model = "") const {
    const DeviceInfo& device = world_.device->info();
    return {.device_kind = "null",
            .device_name = "Device " + uuid,
            .device_model = model.empty() ? device.model : model,
            .device_uuid = uuid,
            .target = device.target,
            .host = "a"};
  }
  std::string Print(const std::string& variant) const {
    return (*world_.catalog.Find("axpy", variant))->fingerprint.Hex();
  }
  std::string DefaultOf(const std::string& variant) const {
    return ConfigText(DefaultConfig((*world_.catalog.Find("axpy", variant))->tunables));
  }
  const Catalog::Op& op() const { return *world_.catalog.ops()[0]; }

  ledger::Trial TrialOf(int64_t environment, const std::string& variant, const std::string& config,
                        double us, const std::string& axes = "n=64") const {
    return {.environment = environment,
            .session = "s",
            .op = "axpy",
            .variant = variant,
            .fingerprint = Print(variant),
            .config = config,
            .axes = axes,
            .mode = "graph cold",
            .stage = "final",
            .outcome = "kept",
            .status = "PASSED",
            .median_us = us};
  }
  ledger::Verdict VerdictOf(int64_t environment, const std::string& verdict, double difference,
                            const std::string& kind = "ship", const std::string& config = kFast,
                            const std::string& axes = "n=64") const {
    return {.environment = environment,
            .session = "s",
            .op = "axpy",
            .axes = axes,
            .mode = "graph cold",
            .kind = kind,
            .incumbent = "baseline",
            .incumbent_fingerprint = Print("baseline"),
            .incumbent_config = DefaultOf("baseline"),
            .challenger = "wide",
            .challenger_fingerprint = Print("wide"),
            .challenger_config = config,
            .verdict = verdict,
            .difference = difference,
            .low = difference - 0.01,
            .high = difference + 0.01,
            .rounds = 320,
            .sessions = 16};
  }

  // wide {kFast} at n=64, by a quick verdict.
  SelectionContent Quick() const {
    SelectionContent content = ContentOf(*world_.Select({{64, "wide"}}));
    StoredSelection& selection = content.ops.at("axpy").by_key.begin()->second;
    selection.config = {{"BLOCK", 256}, {"CTAS", 1024}};
    selection.evidence = {.median_us = 9, .tried = 6, .device = "d", .date = "today"};
    selection.evidence.verdict = "WIN";
    selection.evidence.kind = "quick";
    selection.evidence.incumbent = "baseline";
    return content;
  }
  absl::StatusOr<Why> Ask(const SelectionContent* selections, const ledger::Ledger* ledger,
                          int64_t n = 64) const {
    return ExplainSelection(
        {.op = op(), .shape = {{"n", n}}, .selections = selections, .ledger = ledger});
  }

  World world_;
  std::string directory_;
};

TEST_F(Selections, LeaveForAFleetOnAShipVerdictAlone) {
  auto ledger = Ledger("a");
  const int64_t here = *ledger->Remember(Gpu("GPU-1"));
  const auto to_fleet = [&] { return ForTheFleet(Quick(), world_.catalog, ledger.get(), false); };
  EXPECT_THAT(std::string(What(to_fleet().status())),
              HasSubstr("axpy {n=64}: wide {BLOCK=256,CTAS=1024}, its verdict is a quick WIN"));
  EXPECT_THAT(std::string(Fix(to_fleet().status())),
              HasSubstr("--challenger 'wide{BLOCK=256}' --ship --axes n=64 --device null`"));
  EXPECT_THAT(std::string(Fix(to_fleet().status())), HasSubstr("--unshipped"));
  // Where it was measured, if that is known.
  ledger::Trial tuned = TrialOf(here, "wide", kFast, 9, "n=50");
  tuned.session = "tune";
  ASSERT_TRUE(ledger->Add(tuned).ok());
  EXPECT_THAT(std::string(Fix(to_fleet().status())),
              HasSubstr("--ship --axes n=50 --device null`"));
  EXPECT_TRUE(ForTheFleet(Quick(), world_.catalog, nullptr, true).ok());

  // Neither a quick verdict, nor one of another config or device model, nor against itself.
  ASSERT_TRUE(ledger->Add(VerdictOf(here, "WIN", -0.1, "quick")).ok());
  ASSERT_TRUE(ledger->Add(VerdictOf(here, "WIN", -0.1, "ship", kSlow)).ok());
  const int64_t there = *ledger->Remember(Gpu("GPU-2", "another-model"));
  ASSERT_TRUE(ledger->Add(VerdictOf(there, "WIN", -0.1)).ok());
  ledger::Verdict itself = VerdictOf(here, "WIN", -0.1);
  itself.incumbent = itself.challenger;
  itself.incumbent_config = itself.challenger_config;
  ASSERT_TRUE(ledger->Add(itself).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(to_fleet().status()));

  ASSERT_TRUE(ledger->Add(VerdictOf(here, "WIN", -0.1)).ok());
  const auto shipped = to_fleet();
  ASSERT_TRUE(shipped.ok()) << shipped.status();
  const Evidence& evidence = shipped->ops.at("axpy").by_key.begin()->second.evidence;
  EXPECT_EQ(evidence.kind, "ship");
  // All of it is of that run: no other time stands beside its interval.
  EXPECT_EQ(evidence.median_us, 0);
  EXPECT_EQ(evidence.device, "Device GPU-1");
  ASSERT_TRUE(ledger->Add(TrialOf(here, "wide", kFast, 30)).ok());
  ledger::Trial elsewhere = TrialOf(here, "wide", kFast, 7, "n=50");
  ASSERT_TRUE(ledger->Add(elsewhere).ok());
  EXPECT_NEAR(to_fleet()->ops.at("axpy").by_key.begin()->second.evidence.median_us, 30, 1e-9);
  EXPECT_NEAR(evidence.gain_low, -0.11, 1e-12);
  EXPECT_EQ(shipped->Digest(), Quick().Digest());
  // What has been exported needs no ledger any more.
  EXPECT_TRUE(ForTheFleet(*shipped, world_.catalog, nullptr, false).ok());
}

TEST_F(Selections, ALaterShipVerdictTakesAnEarlierOneBack) {
  auto ledger = Ledger("a");
  const int64_t here = *ledger->Remember(Gpu("GPU-1"));
  ledger::Verdict win = VerdictOf(here, "WIN", -0.1), loss = VerdictOf(here, "LOSS", 0.1);
  win.time = "2026-11-30T12:00:00.000Z";
  loss.time = "2020-01-01T00:00:00.000Z";  // the clock jumped: the row is later all the same
  ASSERT_TRUE(ledger->Add(win).ok());
  EXPECT_TRUE(ForTheFleet(Quick(), world_.catalog, ledger.get(), false).ok());
  ASSERT_TRUE(ledger->Add(loss).ok());
  EXPECT_THAT(std::string(What(ForTheFleet(Quick(), world_.catalog, ledger.get(), false).status())),
              HasSubstr("its ship verdict at {n=64} is LOSS on Device GPU-1"));
}

TEST_F(Selections, ARegressionNotExcludedAtAShapeOfTheKeyKeepsItHome) {
  auto ledger = Ledger("a");
  const int64_t here = *ledger->Remember(Gpu("GPU-1"));
  ASSERT_TRUE(ledger->Add(VerdictOf(here, "WIN", -0.1)).ok());
  ledger::Verdict open = VerdictOf(here, "INCONCLUSIVE", 0.0, "ship", kFast, "n=50");
  open.high = 0.05;
  ASSERT_TRUE(ledger->Add(open).ok());  // n=50 is of the bucket 64
  const absl::Status refused =
      ForTheFleet(Quick(), world_.catalog, ledger.get(), false, "--ledger there").status();
  EXPECT_THAT(std::string(What(refused)), HasSubstr("{n=50} is INCONCLUSIVE"));
  // The shape in question, not the key's own.
  EXPECT_THAT(std::string(Fix(refused)),
              HasSubstr("--ship --axes n=50 --device null --ledger there`"));
  open.high = 0.02;
  open.uid.clear();
  ASSERT_TRUE(ledger->Add(open).ok());
  EXPECT_TRUE(ForTheFleet(Quick(), world_.catalog, ledger.get(), false).ok());
}

TEST_F(Selections, WhatWasImportedFromAnotherDeviceModelShipsAndRejectsNothing) {
  auto there = Ledger("there"), here = Ledger("here");
  const int64_t other = *there->Remember(Gpu("GPU-9", "another-model"));
  ASSERT_TRUE(there->Add(VerdictOf(other, "WIN", -0.5)).ok());
  ledger::Trial wrong = TrialOf(other, "wide", kFast, 0);
  wrong.status = "INCORRECT_NUMERICAL";
  ASSERT_TRUE(there->Add(wrong).ok());
  std::stringstream lines;
  ASSERT_TRUE(there->Export(lines).ok());
  ASSERT_TRUE(here->Import(lines).ok());
  EXPECT_FALSE(ForTheFleet(Quick(), world_.catalog, here.get(), false).ok());
  const SelectionContent file = Quick();
  EXPECT_THAT(Ask(&file, here.get())->rejected, IsEmpty());
  // A loss there does not take back what was won here either.
  ASSERT_TRUE(here->Add(VerdictOf(*here->Remember(Gpu("GPU-1")), "WIN", -0.1)).ok());
  std::stringstream loss;
  ASSERT_TRUE(there->Add(VerdictOf(other, "LOSS", 0.5)).ok());
  ASSERT_TRUE(there->Export(loss).ok());
  ASSERT_TRUE(here->Import(loss).ok());
  EXPECT_TRUE(ForTheFleet(Quick(), world_.catalog, here.get(), false).ok());
}

TEST_F(Selections, ABaselineNeedsNoVerdict) {
  const SelectionContent content = ContentOf(*world_.Select({{64, "baseline"}}));
  EXPECT_TRUE(ForTheFleet(content, world_.catalog, nullptr, false).ok());
}

TEST_F(Selections, AreTakenOverOrRefusedWhole) {
  const SelectionContent incoming = ContentOf(*world_.Select({{64, "wide"}, {128, "baseline"}}));
  const DeviceInfo& device = world_.device->info();
  auto taken = TakeOver(nullptr, incoming, "fleet.json", world_.catalog, device);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->added, 2);
  EXPECT_EQ(taken->content.Digest(), incoming.Digest());
  EXPECT_THAT(Differences(taken->content, incoming), IsEmpty());

  const SelectionContent local = ContentOf(*world_.Select({{64, "baseline"}, {512, "wide"}}, 7));
  taken = TakeOver(&local, incoming, "fleet.json", world_.catalog, device);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->added, 1);
  EXPECT_EQ(taken->replaced, 1);
  EXPECT_EQ(taken->content.number, 8);
  EXPECT_EQ(taken->content.ops.at("axpy").by_key.count({{"n", 512}}), 1u);
  EXPECT_EQ(TakeOver(&taken->content, incoming, "f", world_.catalog, device)->unchanged, 2);

  const auto refusal = [&](const SelectionContent* mine, const SelectionContent& theirs) {
    const absl::Status status =
        TakeOver(mine, theirs, "fleet.json", world_.catalog, device).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    return std::string(What(status));
  };
  SelectionContent other = incoming;
  other.device_model = "nvidia-h200";
  EXPECT_THAT(refusal(nullptr, other), HasSubstr("tuned on nvidia-h200"));
  other = incoming;
  other.target = "sm_90a";
  EXPECT_THAT(refusal(nullptr, other), HasSubstr("sm_90a"));
  other = incoming;
  other.ops.at("axpy").by_key.at({{"n", 64}}).variant_fingerprint = FingerprintOf("changed");
  EXPECT_THAT(refusal(nullptr, other), HasSubstr("axpy {n=64}: variant 'wide' has changed"));
  other = incoming;
  other.ops.at("axpy").by_key.at({{"n", 64}}).variant = "wider";
  EXPECT_THAT(refusal(nullptr, other), HasSubstr("wider"));
  const SelectionContent exact = ContentOf(*world_.Select({{64, "wide"}}, 1, "n:exact"));
  EXPECT_THAT(refusal(&local, exact), HasSubstr("keyed by 'n:exact'"));
}

TEST_F(Selections, SayWhereTheyDiffer) {
  const SelectionContent a = ContentOf(*world_.Select({{64, "wide"}, {128, "baseline"}}, 1));
  SelectionContent b = ContentOf(*world_.Select({{64, "baseline"}, {256, "wide"}}, 2));
  std::vector<std::string> said;
  for (const Difference& d : Differences(a, b)) {
    said.push_back(StrCat(AxesText(d.key), " ", d.field));
  }
  EXPECT_THAT(said, ElementsAre("n=64 variant", "n=64 variant_fingerprint", "n=128 selection",
                                "n=256 selection"));
  b = a;
  b.number = 9;
  b.ops.at("axpy").by_key.begin()->second.evidence.median_us = 3;
  EXPECT_THAT(Differences(a, b), IsEmpty());
  EXPECT_EQ(a.Digest(), b.Digest());
  b.device_model = "x";
  EXPECT_EQ(Differences(a, b).at(0).field, "device_model");
  EXPECT_NE(a.Digest(), b.Digest());
}

class FromLedgersTest : public Selections {
 protected:
  // A GPU that found `verdict` for wide {kFast} and these times.
  std::unique_ptr<ledger::Ledger> OfGpu(const std::string& uuid, const std::string& verdict,
                                        double fast_us, double slow_us, double baseline_us) {
    auto ledger = Ledger(uuid);
    const int64_t here = *ledger->Remember(Gpu(uuid));
    EXPECT_TRUE(ledger->Add(TrialOf(here, "wide", kFast, fast_us)).ok());
    EXPECT_TRUE(ledger->Add(TrialOf(here, "wide", kSlow, slow_us)).ok());
    EXPECT_TRUE(ledger->Add(TrialOf(here, "baseline", DefaultOf("baseline"), baseline_us)).ok());
    if (!verdict.empty()) {
      EXPECT_TRUE(ledger->Add(VerdictOf(here, verdict, -0.1)).ok());
    }
    return ledger;
  }
  absl::StatusOr<FromLedgers> Merge(std::vector<const ledger::Ledger*> ledgers,
                                    FromLedgersRequest request = {}) {
    return MergeLedgers(ledgers, world_.catalog, request);
  }
};

TEST_F(FromLedgersTest, SelectsWhatEveryGpuShips) {
  auto a = OfGpu("GPU-1", "WIN", 9, 11, 10), b = OfGpu("GPU-2", "WIN", 9.5, 8, 10);
  const auto merged = Merge({a.get(), b.get()});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_THAT(merged->gpus, ElementsAre("GPU-1", "GPU-2"));
  ASSERT_EQ(merged->keys.size(), 1u);
  EXPECT_EQ(merged->keys[0].selected, "wide {BLOCK=256,CTAS=1024}");
  EXPECT_EQ(merged->keys[0].why, "ship verdicts on all 2 GPUs");
  const StoredSelection& selection = merged->content.ops.at("axpy").by_key.at({{"n", 64}});
  EXPECT_EQ(selection.evidence.kind, "ship");
  EXPECT_NEAR(selection.evidence.median_us, std::sqrt(9 * 9.5), 1e-9);
  EXPECT_TRUE(ForTheFleet(merged->content, world_.catalog, nullptr, false).ok());
  // The same file, whatever the order.
  EXPECT_EQ(SelectionJson(Merge({b.get(), a.get()})->content), SelectionJson(merged->content));
  EXPECT_TRUE(
      ResolveSelections(merged->content, "merged", world_.catalog, world_.device->info()).ok());
}

TEST_F(FromLedgersTest, OneGpuThatDisagreesKeepsItHome) {
  auto a = OfGpu("GPU-1", "WIN", 9, 11, 10), b = OfGpu("GPU-2", "LOSS", 9.5, 8, 10);
  const absl::Status none = Merge({a.get(), b.get()}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(none));
  EXPECT_THAT(std::string(What(none)), HasSubstr("nothing has ship verdicts on every GPU"));
  // Without ship verdicts: the least geometric mean over both.
  const auto merged = Merge({a.get(), b.get()}, {.unshipped = true});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->keys[0].selected, "wide {BLOCK=256,CTAS=1024}");  // sqrt(85.5) < sqrt(88)
  EXPECT_EQ(SelectionJson(Merge({b.get(), a.get()}, {.unshipped = true})->content),
            SelectionJson(merged->content));
  EXPECT_FALSE(ForTheFleet(merged->content, world_.catalog, nullptr, false).ok());
}

TEST_F(FromLedgersTest, WhatIsNotClearlyFasterLeavesTheBaseline) {
  auto a = OfGpu("GPU-1", "", 9.95, 11, 10), b = OfGpu("GPU-2", "", 9.95, 12, 10);
  const auto merged = Merge({a.get(), b.get()}, {.unshipped = true});
  ASSERT_TRUE(merged.ok()) << merged.status();
  const StoredSelection& selection = merged->content.ops.at("axpy").by_key.at({{"n", 64}});
  EXPECT_EQ(selection.variant, "baseline");
  EXPECT_EQ(selection.evidence.verdict, "BASELINE");
}

TEST_F(FromLedgersTest, WhatOneGpuHasNotMeasuredIsNotSelected) {
  auto a = OfGpu("GPU-1", "", 5, 11, 10);
  auto b = Ledger("GPU-2");
  const int64_t here = *b->Remember(Gpu("GPU-2"));
  ASSERT_TRUE(b->Add(TrialOf(here, "wide", kSlow, 8)).ok());
  const auto merged = Merge({a.get(), b.get()}, {.unshipped = true});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->keys[0].selected, "wide {BLOCK=64,CTAS=1024}");
}

TEST_F(FromLedgersTest, ALedgerOfAnotherDeviceModelSelectsNothing) {
  auto a = OfGpu("GPU-1", "WIN", 9, 11, 10);
  auto b = Ledger("other");
  const int64_t there = *b->Remember(Gpu("GPU-9", "another-model"));
  ASSERT_TRUE(b->Add(VerdictOf(there, "WIN", -0.5)).ok());
  EXPECT_THAT(std::string(What(Merge({a.get(), b.get()}).status())), HasSubstr("several device"));
  const std::string model = world_.device->info().model;
  EXPECT_THAT(std::string(What(Merge({a.get(), b.get()}, {.device_model = model}).status())),
              HasSubstr(StrCat("has nothing of ", model)));
  // What failed or is INVALID there makes it no device model to choose from.
  auto broken = Ledger("broken");
  const int64_t nothing = *broken->Remember(Gpu("GPU-7", "broken-model"));
  ledger::Trial failed = TrialOf(nothing, "wide", kFast, 0);
  failed.status = "LAUNCH_ERROR";
  ASSERT_TRUE(broken->Add(failed).ok());
  EXPECT_TRUE(Merge({a.get(), broken.get()}).ok());
  // Imported into one ledger, the other model's records have no say either.
  std::stringstream lines;
  ASSERT_TRUE(b->Export(lines).ok());
  ASSERT_TRUE(a->Import(lines).ok());
  const auto merged = Merge({a.get()}, {.device_model = model});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_THAT(merged->gpus, ElementsAre("GPU-1"));
}

TEST_F(Selections, WhyFromAFileAlone) {
  const SelectionContent file = Quick();
  const auto why = Ask(&file, nullptr);
  ASSERT_TRUE(why.ok()) << why.status();
  EXPECT_EQ(why->by, "selection");
  EXPECT_EQ(why->variant, "wide");
  EXPECT_EQ(why->config.at("BLOCK"), 256);
  EXPECT_EQ(why->evidence.kind, "quick");
  EXPECT_EQ(why->device_model, world_.device->info().model);
  const auto miss = Ask(&file, nullptr, 4096);
  EXPECT_EQ(miss->by, "baseline");
  EXPECT_EQ(miss->variant, "baseline");
  EXPECT_FALSE(miss->stale);
  SelectionContent changed = file;
  changed.ops.at("axpy").by_key.begin()->second.variant_fingerprint = FingerprintOf("old");
  const auto stale = Ask(&changed, nullptr);
  EXPECT_EQ(stale->by, "baseline");
  EXPECT_TRUE(stale->stale);
  EXPECT_THAT(stale->because, HasSubstr("'wide' has changed"));
}

TEST_F(Selections, WhyFromALedgerAlone) {
  auto ledger = Ledger("a");
  const int64_t here = *ledger->Remember(Gpu("GPU-1"));
  EXPECT_EQ(Ask(nullptr, ledger.get())->by, "baseline");
  ASSERT_TRUE(ledger->Add(TrialOf(here, "wide", kFast, 9)).ok());
  ASSERT_TRUE(ledger->Add(TrialOf(here, "baseline", DefaultOf("baseline"), 10)).ok());
  ledger::Trial dropped = TrialOf(here, "wide", kSlow, 15);
  dropped.stage = "screen";
  dropped.outcome = "dropped";
  ASSERT_TRUE(ledger->Add(dropped).ok());
  ledger::Trial wrong = TrialOf(here, "wide", "BLOCK=128,CTAS=1024", 0);
  wrong.status = "INCORRECT_NUMERICAL";
  wrong.reason = "out[3] is 7, not 8";
  ASSERT_TRUE(ledger->Add(wrong).ok());
  ASSERT_TRUE(ledger->Add(VerdictOf(here, "WIN", -0.1, "quick")).ok());
  ledger::Publication published{.environment = here,
                                .op = "axpy",
                                .axes = "n=64",
                                .trigger = "tune",
                                .variant = "wide",
                                .fingerprint = Print("wide"),
                                .config = kFast,
                                .outcome = "published"};
  ASSERT_TRUE(ledger->Add(published).ok());
  const auto why = Ask(nullptr, ledger.get());
  ASSERT_TRUE(why.ok()) << why.status();
  EXPECT_EQ(why->by, "publication");
  EXPECT_EQ(why->variant, "wide");
  EXPECT_EQ(why->measured.median_us, 9);
  ASSERT_EQ(why->verdicts.size(), 1u);
  EXPECT_EQ(why->verdicts[0].verdict, "WIN");
  EXPECT_EQ(why->verdicts[0].device, "Device GPU-1");
  ASSERT_EQ(why->runners_up.size(), 2u);  // those who got furthest first
  EXPECT_THAT(why->runners_up[0].name, HasSubstr("baseline"));
  EXPECT_EQ(why->runners_up[1].reason, "dropped in screen");
  ASSERT_EQ(why->rejected.size(), 1u);
  EXPECT_THAT(why->rejected[0].reason, HasSubstr("out[3] is 7"));

  // Seen from the baseline the same verdict is a loss, of the same size.
  const SelectionContent file = ContentOf(*world_.Select({{64, "baseline"}}));
  const auto lost = Ask(&file, ledger.get());
  ASSERT_EQ(lost->verdicts.size(), 1u);
  EXPECT_EQ(lost->verdicts[0].verdict, "LOSS");
  EXPECT_NEAR(lost->verdicts[0].difference, 0.1, 1e-12);
  EXPECT_NEAR(lost->verdicts[0].low, 0.09, 1e-12);
}

TEST_F(Selections, WhyGoesByTheRowsWhateverTheClockSaid) {
  auto ledger = Ledger("a");
  const int64_t here = *ledger->Remember(Gpu("GPU-1"));
  const auto add = [&](const char* time, const char* config, double us, const char* verdict) {
    ledger::Trial trial = TrialOf(here, "wide", config, us);
    trial.time = time;
    ASSERT_TRUE(ledger->Add(trial).ok());
    ledger::Verdict row = VerdictOf(here, verdict, 0.0, "quick");
    row.time = time;
    ASSERT_TRUE(ledger->Add(row).ok());
    ledger::Publication published{.environment = here,
                                  .time = time,
                                  .op = "axpy",
                                  .axes = "n=64",
                                  .variant = "wide",
                                  .fingerprint = Print("wide"),
                                  .config = config,
                                  .outcome = "published"};
    ASSERT_TRUE(ledger->Add(published).ok());
  };
  add("2026-11-30T12:00:00.000Z", kSlow, 8, "WIN");
  add("2020-01-01T00:00:00.000Z", kFast, 9, "EQUIVALENT");  // the later row
  const auto why = Ask(nullptr, ledger.get());
  EXPECT_EQ(ConfigText(why->config), kFast);
  EXPECT_EQ(why->measured.median_us, 9);
  ASSERT_EQ(why->verdicts.size(), 1u);
  EXPECT_EQ(why->verdicts[0].verdict, "EQUIVALENT");
  EXPECT_EQ(why->published, "2020-01-01T00:00:00.000Z");
}

TEST_F(Selections, WhyHearsNothingOfAnotherDeviceModel) {
  auto ledger = Ledger("a");
  const int64_t there = *ledger->Remember(Gpu("GPU-9", "another-model"));
  ASSERT_TRUE(ledger->Add(TrialOf(there, "wide", kFast, 1)).ok());
  ASSERT_TRUE(ledger->Add(VerdictOf(there, "LOSS", 0.5)).ok());
  const SelectionContent file = Quick();
  const auto why = Ask(&file, ledger.get());
  EXPECT_EQ(why->measured.median_us, -1);
  EXPECT_THAT(why->verdicts, IsEmpty());
  EXPECT_THAT(why->elsewhere, ElementsAre("another-model"));
}

TEST_F(Selections, WhyComparesTimesOfOneSessionAlone) {
  auto ledger = Ledger("a");
  const int64_t here = *ledger->Remember(Gpu("GPU-1"));
  const auto add = [&](const char* session, const char* axes, const char* stage,
                       const std::string& config, double us) {
    ledger::Trial trial = TrialOf(here, "wide", config, us, axes);
    trial.session = session;
    trial.stage = stage;
    ASSERT_TRUE(ledger->Add(trial).ok());
  };
  add("old", "n=64", "final", kSlow, 7);
  add("tune", "n=64", "final", kFast, 10);
  add("tune", "n=64", "final", kSlow, 11);
  add("tune", "n=50", "final", kSlow, 3);
  add("ship", "n=50", "ab", kFast, 80);  // another shape of the key, later
  const SelectionContent file = Quick();
  auto why = Ask(&file, ledger.get());
  ASSERT_TRUE(why.ok()) << why.status();
  EXPECT_EQ(why->measured.median_us, 10);
  EXPECT_EQ(why->measured.axes, "n=64");
  EXPECT_EQ(why->measured.mode, "graph cold");
  ASSERT_EQ(why->runners_up.size(), 1u);
  EXPECT_EQ(why->runners_up[0].median_us, 11);
  EXPECT_NEAR(why->runners_up[0].difference, std::log(1.1), 1e-12);
  why = Ask(&file, ledger.get(), 50);  // asked for: its own time, and nothing to compare it with
  EXPECT_EQ(why->measured.median_us, 80);
  EXPECT_EQ(why->measured.axes, "n=50");
  EXPECT_THAT(why->runners_up, IsEmpty());
  // A race without the served config is told of without ratios.
  const SelectionContent baseline = ContentOf(*world_.Select({{64, "baseline"}}));
  why = Ask(&baseline, ledger.get());
  EXPECT_EQ(why->measured.median_us, -1);
  ASSERT_EQ(why->runners_up.size(), 2u);
  EXPECT_TRUE(std::isnan(why->runners_up[0].difference));
}

TEST_F(Selections, WhyAsksWhichDeviceModelIsMeant) {
  auto ledger = Ledger("a");
  const std::string model = world_.device->info().model;
  const int64_t there = *ledger->Remember(Gpu("GPU-9", "another-model"));
  const int64_t broken = *ledger->Remember(Gpu("GPU-8", "broken-model"));
  const int64_t nowhere = *ledger->Remember({.target = "sm_90a"});
  ASSERT_TRUE(ledger->Add(TrialOf(there, "wide", kFast, 1)).ok());
  // Failures, INVALID comparisons and builds make no device a measured one.
  ledger::Trial failed = TrialOf(broken, "wide", kFast, 0);
  failed.status = "LAUNCH_ERROR";
  ASSERT_TRUE(ledger->Add(failed).ok());
  ASSERT_TRUE(ledger->Add(VerdictOf(broken, "INVALID", 0)).ok());
  ASSERT_TRUE(ledger->Add(ledger::Build{.environment = nowhere, .op = "axpy"}).ok());
  const auto ask = [&](const SelectionContent* file, const std::string& asked) {
    return ExplainSelection({.op = op(),
                             .shape = {{"n", 64}},
                             .selections = file,
                             .ledger = ledger.get(),
                             .device_model = asked});
  };
  EXPECT_EQ(ask(nullptr, "")->device_model, "another-model");
  EXPECT_THAT(ask(nullptr, "")->elsewhere, IsEmpty());
  EXPECT_EQ(ask(nullptr, "broken-model")->rejected.size(), 1u);
  absl::Status status = ask(nullptr, "another").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(Fix(status)), HasSubstr("another-model"));
  const SelectionContent file = Quick();
  status = ask(&file, "another-model").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(What(status)), HasSubstr(StrCat("is for ", model)));
  ASSERT_TRUE(ledger->Add(TrialOf(*ledger->Remember(Gpu("GPU-1")), "wide", kFast, 1)).ok());
  status = ask(nullptr, "").status();
  EXPECT_THAT(std::string(What(status)), HasSubstr("several device models"));
  EXPECT_THAT(std::string(Fix(status)), HasSubstr("--model"));
  EXPECT_EQ(ask(&file, "")->device_model, model);
}

TEST_F(Selections, WhyNamesWhatIsForced) {
  const auto overrides =
      Overrides::FromEnvironment(world_.catalog, {"KVR_FORCE_AXPY=wide", "KVR_AXPY_BLOCK=64"});
  ASSERT_TRUE(overrides.ok());
  const SelectionContent file = Quick();
  const auto why = ExplainSelection(
      {.op = op(), .shape = {{"n", 64}}, .selections = &file, .overrides = &*overrides});
  ASSERT_TRUE(why.ok()) << why.status();
  EXPECT_EQ(why->by, "override");
  EXPECT_THAT(why->because, HasSubstr("KVR_FORCE_AXPY"));
  EXPECT_EQ(why->config.at("BLOCK"), 64);
}

TEST_F(Selections, SummariesAreToldAndSelectNothing) {
  auto ledger = Ledger("a");
  const int64_t there = *ledger->Remember(Gpu("", "another-model"));
  ledger::Summary summary{.environment = there,
                          .op = "axpy",
                          .axes = "n=64",
                          .incumbent = "baseline",
                          .challenger = "wide",
                          .unit = "GB/s",
                          .percents = {-14},
                          .band_percent = 7,
                          .source = "a table"};
  ASSERT_TRUE(ledger->Add(summary).ok());
  const auto why = Ask(nullptr, ledger.get());
  EXPECT_EQ(why->by, "baseline");
  ASSERT_EQ(why->summaries.size(), 1u);
  EXPECT_EQ(why->summaries[0].verdict, "LOSS");
  EXPECT_THAT(why->summaries[0].reason, HasSubstr("-14 % of GB/s, band 7 %"));
  EXPECT_THAT(Ask(nullptr, ledger.get(), 128)->summaries, IsEmpty());
  const ledger::Ledger* const only = ledger.get();
  EXPECT_FALSE(MergeLedgers({&only, 1}, world_.catalog, {.unshipped = true}).ok());
}

}  // namespace
}  // namespace kvr
