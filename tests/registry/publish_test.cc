// SPDX-License-Identifier: Apache-2.0
//
// Publishing, the journal, the history and going back.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/strings.h"
#include "nlohmann/json.hpp"
#include "registry/dispatcher.h"
#include "tests/registry/fakes.h"

namespace kvr {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

constexpr Stream kDefaultStream{};
const std::vector<Axes> kShapes = {{{"n", 1000}}};

class Journal : public PublicationSink {
 public:
  void Record(const PublicationRecord& record) override { records.push_back(record); }
  uint64_t lost() const override { return 0; }
  std::vector<PublicationRecord> records;
};

// Variants "v0" ... "v<count - 1>" beside the baseline.
std::vector<std::shared_ptr<Variant>> Many(int count) {
  std::vector<std::shared_ptr<Variant>> variants = {AxpyVariant("baseline", true)};
  for (int i = 0; i < count; ++i) variants.push_back(AxpyVariant(StrCat("v", i)));
  return variants;
}

std::string Serving(Dispatcher& dispatcher, int64_t n = 1000) {
  const AxpyTensors tensors(n);
  return dispatcher.Bind("axpy", tensors.views)->prepared().variant().name;
}

struct Publishing : public testing::Test {
  explicit Publishing(int variants = 12) : world(Many(variants)), dispatcher(world.Dispatch()) {
    dispatcher->SetJournal(journal);
    EXPECT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  }
  GenerationPtr Of(int i) { return world.Select({{1000, StrCat("v", i)}}, i + 1); }

  World world;
  std::shared_ptr<Journal> journal = std::make_shared<Journal>();
  std::unique_ptr<Dispatcher> dispatcher;
};

TEST_F(Publishing, IsToldToTheJournal) {
  const GenerationPtr zero = dispatcher->generation(), first = Of(0), second = Of(1);
  ASSERT_TRUE(dispatcher->Publish(first).ok());
  ASSERT_TRUE(
      dispatcher->Publish(second, {.trigger = "bundle", .who = "somebody", .reason = "why not"})
          .ok());
  ASSERT_EQ(journal->records.size(), 2u);
  const PublicationRecord& a = journal->records[0];
  EXPECT_THAT(a.time, MatchesRegex("20..-..-..T..:..:..\\....Z"));
  EXPECT_EQ(a.trigger, "api");
  EXPECT_EQ(a.who, StrCat("pid ", getpid(), " uid ", getuid()));
  EXPECT_EQ(a.before, zero->digest().Hex());
  EXPECT_EQ(a.after, first->digest().Hex());
  EXPECT_THAT(a.changes, ElementsAre("axpy {n=1024}: baseline {} -> v0 {BLOCK=64,CTAS=1024}"));
  EXPECT_EQ(a.outcome, "published");
  EXPECT_GE(a.prepare_ms, 0);
  const PublicationRecord& b = journal->records[1];
  EXPECT_EQ(b.trigger, "bundle");
  EXPECT_EQ(b.who, "somebody");
  EXPECT_EQ(b.reason, "why not");
  EXPECT_EQ(b.before, first->digest().Hex());
  EXPECT_THAT(b.changes, ElementsAre("axpy {n=1024}: v0 {BLOCK=64,CTAS=1024} -> "
                                     "v1 {BLOCK=64,CTAS=1024}"));
}

TEST_F(Publishing, WhatServesAlreadyChangesNothing) {
  const GenerationPtr first = Of(0);
  ASSERT_TRUE(dispatcher->Publish(first).ok());
  const absl::StatusOr<LoadReport> again = dispatcher->Publish(Of(0));
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->unchanged);
  EXPECT_TRUE(again->ready());
  EXPECT_THAT(again->Text(), HasSubstr("unchanged"));
  EXPECT_EQ(dispatcher->generation(), first);
  EXPECT_EQ(dispatcher->counters().generations, 1u);
  EXPECT_EQ(dispatcher->counters().unchanged, 1u);
  EXPECT_EQ(journal->records.back().outcome, "unchanged");
  EXPECT_THAT(journal->records.back().changes, IsEmpty());
  EXPECT_EQ(dispatcher->history().size(), 1u);
}

TEST_F(Publishing, ReplacesNothingThatCameMeanwhileWhereItSaysWhatItReplaces) {
  const GenerationPtr zero = dispatcher->generation(), first = Of(0), second = Of(1);
  ASSERT_TRUE(dispatcher->Publish(first, {.only_over = zero->digest().Hex()}).ok());
  const absl::Status late =
      dispatcher->Publish(second, {.only_over = zero->digest().Hex()}).status();
  EXPECT_TRUE(absl::IsAborted(late)) << late;
  EXPECT_EQ(dispatcher->generation(), first);
  EXPECT_TRUE(absl::IsAborted(
      dispatcher->Rollback("baseline", {.only_over = second->digest().Hex()}).status()));
  EXPECT_EQ(dispatcher->generation(), first);
}

TEST_F(Publishing, AQuietOneIsToldOnlyWhereItFails) {
  ASSERT_TRUE(dispatcher->Publish(Of(0), {.quiet = true}).ok());
  ASSERT_TRUE(dispatcher->Rollback("baseline", {.quiet = true}).ok());
  EXPECT_THAT(journal->records, IsEmpty());
  EXPECT_EQ(dispatcher->counters().rollbacks, 0u);
  EXPECT_FALSE(dispatcher->Publish(Of(1), {.quiet = true, .only_over = "another"}).ok());
  EXPECT_EQ(journal->records.size(), 1u);
}

TEST(Changes, NameWhatDiffersBetweenTwoGenerations) {
  World world(Many(2));
  const auto lines = [&](const GenerationPtr& before, const GenerationPtr& after) {
    return ChangesBetween(*before, *after);
  };
  const GenerationPtr both = world.Select({{64, "v0"}, {1000, "v1"}});
  EXPECT_THAT(lines(both, both), IsEmpty());
  EXPECT_THAT(lines(both, world.Select({{1000, "v1"}})),
              ElementsAre("axpy {n=64}: v0 {BLOCK=64,CTAS=1024} -> baseline {}"));
  EXPECT_THAT(lines(world.Select({{1000, "v1"}}), world.Select({{1000, "v0"}}, 2, "n:exact")),
              ElementsAre("axpy: keys by n:pow2 -> keys by n:exact",
                          "axpy {n=1000}: new key -> v0 {BLOCK=64,CTAS=1024}"));

  const auto rebuilt = std::make_shared<Variant>(**world.catalog.Find("axpy", "v0"));
  rebuilt->version = "2.0.0";
  rebuilt->fingerprint = FingerprintOf("another");
  Selection selection{.variant = rebuilt, .config = DefaultConfig(rebuilt->tunables)};
  selection.binary = FingerprintOf("measured");
  const OpSpec& spec = world.catalog.ops()[0]->spec();
  const KeyPolicy policy = *KeyPolicy::Parse("n:pow2", spec);
  GenerationBuilder builder(*world.Select({{64, "v0"}}));
  ASSERT_TRUE(
      builder.Select("axpy", policy.Bucket(*ResolveAxes(spec, {{"n", 64}})), selection).ok());
  const std::vector<std::string> changes = lines(world.Select({{64, "v0"}}), builder.Build(2));
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_THAT(changes[0], HasSubstr("version 1.0.0 -> 2.0.0"));
  EXPECT_THAT(changes[0], HasSubstr("source"));
  EXPECT_THAT(changes[0], HasSubstr("binary"));
}

TEST_F(Publishing, TheHistoryHoldsTheLastDifferentOnesAndGenerationZero) {
  const GenerationPtr zero = dispatcher->generation();
  EXPECT_THAT(dispatcher->history(), ElementsAre(zero));
  std::vector<GenerationPtr> all;
  for (int i = 0; i < 12; ++i) {
    all.push_back(Of(i));
    ASSERT_TRUE(dispatcher->Publish(all.back()).ok());
  }
  EXPECT_THAT(dispatcher->history(),
              ElementsAre(all[10], all[9], all[8], all[7], all[6], all[5], all[4], all[3], zero));
  // One that comes again moves to the front, it is not there twice.
  ASSERT_TRUE(dispatcher->Publish(all[9]).ok());
  EXPECT_THAT(dispatcher->history(),
              ElementsAre(all[11], all[10], all[8], all[7], all[6], all[5], all[4], all[3], zero));
  ASSERT_TRUE(dispatcher->Publish(zero).ok());
  EXPECT_THAT(dispatcher->history(),
              ElementsAre(all[9], all[11], all[10], all[8], all[7], all[6], all[5], all[4], zero));
}

TEST_F(Publishing, GoingBackCompilesAndLoadsNothing) {
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(dispatcher->Publish(Of(i)).ok());
  dispatcher->Freeze();
  const int64_t builds = world.jit->stats().builds;
  const int64_t modules = world.device->counters().modules;
  ASSERT_TRUE(dispatcher->Rollback("").ok());
  EXPECT_EQ(Serving(*dispatcher), "v7");
  ASSERT_TRUE(dispatcher->Rollback("").ok());  // and forth
  EXPECT_EQ(Serving(*dispatcher), "v8");
  for (int i = 0; i < 9; ++i) {
    const std::string digest = Of(i)->digest().Hex().substr(0, 8 + i);
    const absl::StatusOr<LoadReport> report = dispatcher->Rollback(digest);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(Serving(*dispatcher), StrCat("v", i));
    EXPECT_EQ(report->items[0].variant, StrCat("v", i));
    EXPECT_TRUE(report->items[0].cache_hit);
  }
  EXPECT_EQ(world.device->counters().modules, modules);
  ASSERT_TRUE(dispatcher->Rollback("baseline").ok());
  EXPECT_EQ(Serving(*dispatcher), "baseline");
  EXPECT_EQ(dispatcher->generation()->number(), 0);
  EXPECT_EQ(world.jit->stats().builds, builds);
  EXPECT_EQ(world.device->counters().modules, modules - 1);  // of the oldest
  EXPECT_EQ(journal->records.back().trigger, "rollback");
  EXPECT_THAT(journal->records.back().changes,
              ElementsAre("axpy {n=1024}: v8 {BLOCK=64,CTAS=1024} -> baseline {}"));
  EXPECT_EQ(dispatcher->counters().rollbacks, 12u);
  EXPECT_EQ(dispatcher->counters().generations, 9u + 12u);
}

TEST_F(Publishing, GoingBackToGenerationZeroByItsDigest) {
  const std::string zero = dispatcher->generation()->digest().Hex();
  ASSERT_TRUE(dispatcher->Publish(Of(0)).ok());
  ASSERT_TRUE(dispatcher->Rollback(zero).ok());
  EXPECT_EQ(Serving(*dispatcher), "baseline");
  EXPECT_TRUE(dispatcher->Rollback("baseline")->unchanged);
  EXPECT_EQ(dispatcher->counters().rollbacks, 1u);
}

TEST_F(Publishing, GoingBackToWhatIsNotThereSaysWhatIs) {
  EXPECT_TRUE(absl::IsNotFound(dispatcher->Rollback("").status()));
  ASSERT_TRUE(dispatcher->Publish(Of(0)).ok());
  ASSERT_TRUE(dispatcher->Publish(Of(1)).ok());
  const absl::Status unknown = dispatcher->Rollback("0123456789").status();
  EXPECT_TRUE(absl::IsNotFound(unknown));
  EXPECT_THAT(std::string(Fix(unknown)), HasSubstr(Of(0)->digest().Short()));
  EXPECT_THAT(std::string(Fix(unknown)), HasSubstr("the baseline"));
  const std::string short_one = Of(0)->digest().Hex().substr(0, 7);
  for (const std::string& text : {short_one, std::string("v0 please"), std::string("..")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(dispatcher->Rollback(text).status())) << text;
  }
  EXPECT_EQ(Serving(*dispatcher), "v1");
  EXPECT_EQ(journal->records.back().outcome, "failed");
  EXPECT_EQ(journal->records.back().trigger, "rollback");
  EXPECT_EQ(journal->records.back().before, Of(1)->digest().Hex());
  EXPECT_EQ(journal->records.back().after, "");
  EXPECT_EQ(dispatcher->counters().failed, 5u);
}

TEST_F(Publishing, WhatWasLoadedLaterIsPreparedWhereNoGenerationKeptIt) {
  const GenerationPtr old = world.Select({{1000, "v0"}, {64, "v1"}}, 1);
  ASSERT_TRUE(dispatcher->Publish(old).ok());
  ASSERT_TRUE(dispatcher->Publish(Of(2)).ok());
  ASSERT_TRUE(dispatcher->Load("axpy", {{{"n", 64}}})->ready());
  const int compiles = world.compiles;
  ASSERT_TRUE(dispatcher->Rollback("").ok());
  EXPECT_EQ(world.compiles, compiles + 1);  // v1
  EXPECT_EQ(Serving(*dispatcher, 64), "v1");
  // Known to generation 0 at once.
  ASSERT_TRUE(dispatcher->Rollback("baseline").ok());
  EXPECT_EQ(Serving(*dispatcher, 64), "baseline");
  EXPECT_EQ(world.compiles, compiles + 1);
}

TEST_F(Publishing, AGraphIsBroughtToNoGenerationThatLacksWhatWasLoadedLater) {
  const GenerationPtr old = world.Select({{1000, "v0"}, {64, "v1"}}, 1);
  ASSERT_TRUE(dispatcher->Publish(old).ok());
  ASSERT_TRUE(dispatcher->Publish(Of(2)).ok());
  const Stream stream = *world.device->CreateStream();
  ASSERT_TRUE(dispatcher->PrepareStream(stream).ok());
  ASSERT_TRUE(world.device->BeginCapture(stream, CaptureMode::kGlobal).ok());
  const auto scope = dispatcher->OpenCapture(stream);
  ASSERT_TRUE(scope.ok()) << scope.status();
  const AxpyTensors tensors(1000);
  ASSERT_TRUE(dispatcher->Launch("axpy", tensors.views, stream).ok());
  absl::StatusOr<GraphBinding> binding = (*scope)->Finish();
  ASSERT_TRUE(binding.ok()) << binding.status();
  const auto graph = world.device->EndCapture(stream);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const GraphExec exec = (*graph)->exec();
  EXPECT_TRUE(binding->Apply(exec, old->digest()).ok());
  ASSERT_TRUE(dispatcher->Load("axpy", {{{"n", 64}}})->ready());
  EXPECT_TRUE(binding->Apply(exec).ok());
  const absl::Status lacking = binding->Apply(exec, old->digest()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(lacking)) << lacking;
  EXPECT_THAT(std::string(What(lacking)), HasSubstr("axpy {n=64}: v1 {BLOCK=64,CTAS=1024} is not"));
  EXPECT_EQ(binding->digest(exec), Of(2)->digest());
  // Generation 0 has all of it, and so has one that was published again.
  EXPECT_TRUE(binding->Apply(exec, dispatcher->history().back()->digest()).ok());
  ASSERT_TRUE(dispatcher->Rollback("").ok());
  EXPECT_EQ(binding->Apply(exec)->digest, old->digest());
  EXPECT_TRUE(absl::IsNotFound(binding->Apply(exec, FingerprintOf("none")).status()));
  world.device->DestroyStream(stream);
}

TEST_F(Publishing, ShowsWhatServesEachLoadedKey) {
  ASSERT_TRUE(dispatcher->Publish(world.Select({{1000, "v3"}}, 1)).ok());
  ASSERT_TRUE(dispatcher->Load("axpy", {{{"n", 60}}, {{"n", 64}}})->ready());
  const std::vector<ServedInfo> served = dispatcher->served();
  ASSERT_EQ(served.size(), 2u);
  EXPECT_EQ(served[0].op, "axpy");
  EXPECT_EQ(served[0].key, (Axes{{"n", 64}}));
  EXPECT_THAT(served[0].shapes, ElementsAre(Axes{{"n", 60}}, Axes{{"n", 64}}));
  EXPECT_EQ(served[0].variant, "baseline");
  EXPECT_TRUE(served[0].missed);
  EXPECT_THAT(served[0].why, HasSubstr("no selection for {n=64}"));
  EXPECT_EQ(served[1].key, (Axes{{"n", 1024}}));
  EXPECT_EQ(served[1].variant, "v3");
  EXPECT_EQ(served[1].version, "1.0.0");
  EXPECT_EQ(served[1].fingerprint, (*world.catalog.Find("axpy", "v3"))->fingerprint);
  EXPECT_EQ(served[1].config, (Config{{"BLOCK", 64}, {"CTAS", 1024}}));
  EXPECT_NE(served[1].binary, Fingerprint{});
  EXPECT_FALSE(served[1].missed);
  EXPECT_FALSE(served[1].overridden);
  EXPECT_EQ(served[1].why, "selected");
}

TEST(Served, NamesTheOverrideInForce) {
  World world(Many(2));
  DispatcherOptions options;
  options.overrides =
      *Overrides::FromEnvironment(world.catalog, {"KVR_FORCE_AXPY=v1", "KVR_AXPY_BLOCK=128"});
  const auto dispatcher = world.Dispatch(std::move(options));
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  ASSERT_TRUE(dispatcher->Publish(world.Select({{1000, "v0"}})).ok());
  const std::vector<ServedInfo> served = dispatcher->served();
  ASSERT_EQ(served.size(), 1u);
  EXPECT_EQ(served[0].variant, "v1");
  EXPECT_EQ(served[0].config.at("BLOCK"), 128);
  EXPECT_TRUE(served[0].overridden);
  EXPECT_THAT(served[0].why, HasSubstr("KVR_FORCE_AXPY"));
  // Generation 0 has it, too: going back compiles nothing.
  const int compiles = world.compiles;
  ASSERT_TRUE(dispatcher->Rollback("baseline").ok());
  EXPECT_EQ(Serving(*dispatcher), "v1");
  EXPECT_EQ(world.compiles, compiles);
}

TEST(Served, ABaselineThatIsSetByHandCanBeHadBackAtOnce) {
  World world(Many(2));
  DispatcherOptions options;
  options.overrides = *Overrides::FromEnvironment(world.catalog, {"KVR_AXPY_BLOCK=128"});
  const auto dispatcher = world.Dispatch(std::move(options));
  ASSERT_TRUE(dispatcher->Publish(world.Select({{1000, "v0"}})).ok());
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  const int compiles = world.compiles;
  ASSERT_TRUE(dispatcher->Rollback("baseline").ok());
  EXPECT_EQ(world.compiles, compiles);
  EXPECT_EQ(dispatcher->served()[0].config.at("BLOCK"), 128);
}

TEST(Misses, AreCountedByReason) {
  World world({AxpyVariant("baseline", true), AxpyVariant("even", false, "mod(n, 2) == 0")});
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Publish(world.Select({{1000, "even"}})).ok());
  ASSERT_TRUE(dispatcher->Load("axpy", {{{"n", 1000}}, {{"n", 64}}})->ready());
  ASSERT_TRUE(dispatcher->PrepareStream(kDefaultStream).ok());
  const auto launch = [&](int64_t n) {
    EXPECT_TRUE(dispatcher->Launch("axpy", AxpyTensors(n).views, kDefaultStream).ok());
  };
  launch(1000);
  launch(5000);  // not loaded
  launch(64);    // not selected
  launch(60);
  launch(999);  // odd
  launch(999);
  launch(999);
  const AxpyTensors tensors(64);
  absl::StatusOr<BoundLaunch> bound = dispatcher->Bind("axpy", tensors.views);
  ASSERT_TRUE(bound.ok());
  ASSERT_TRUE(bound->Launch(kDefaultStream).ok());
  const Counters counters = dispatcher->counters();
  EXPECT_EQ(counters.not_loaded, 1u);
  EXPECT_EQ(counters.not_selected, 4u);
  EXPECT_EQ(counters.not_fitting, 3u);
  EXPECT_EQ(counters.misses, 8u);
  EXPECT_EQ(counters.baseline, 8u);
  const std::vector<Miss> misses = dispatcher->misses();
  ASSERT_EQ(misses.size(), 3u);
  EXPECT_EQ(MissReasonName(misses[0].reason), "not loaded");
  EXPECT_EQ(MissReasonName(misses[1].reason), "not selected");
  EXPECT_EQ(MissReasonName(misses[2].reason), "not fitting");
  EXPECT_EQ(misses[2].key, (Axes{{"n", 1024}}));
}

TEST(Ranges, LoadEachBinaryOnceAndReportALineAKey) {
  World world;
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Publish(world.Select({{32, "wide"}, {64, "wide"}})).ok());
  const absl::StatusOr<LoadReport> report = dispatcher->Load("axpy", "n=1..96");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->ready());
  EXPECT_EQ(report->items.size(), 96u);
  EXPECT_EQ(world.compiles, 2);  // the baseline and wide
  const std::string text = report->Text();
  EXPECT_THAT(text, StartsWith("{n=1}: baseline {BLOCK=64,CTAS=1024}, "));
  EXPECT_THAT(text, HasSubstr("\n{n=17..32} (16 shapes): wide {BLOCK=64,CTAS=1024}, selected, "));
  EXPECT_THAT(text, HasSubstr("\n{n=65..96} (32 shapes): baseline "));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 8);  // n = 1, 2, 4, ... 128
  EXPECT_EQ(dispatcher->Load("axpy", std::string("n=1..65537")).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_FALSE(dispatcher->Load("axpy", "m=1..3")->ready());
}

TEST(Ranges, ShapesThatDoNotFollowEachOtherAreListed) {
  LoadReport report;
  for (const int64_t n : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}) {
    for (const int64_t topk : {512, 2048}) {
      report.items.push_back({.axes = {{"n", n}, {"topk", topk}}, .variant = "w8", .why = "why"});
    }
  }
  EXPECT_EQ(report.Text(),
            "{n=1|2|4|8|16|32|64|128|...|512,topk=512|2048} (20 shapes): w8 {}, why, compiled in "
            "0 ms\n");
}

// --- the file

class PublicationFile : public testing::Test {
 protected:
  PublicationFile() {
    std::string pattern = "/tmp/kvr_journal_XXXXXX";
    directory_ = mkdtemp(pattern.data());
    path_ = directory_ + "/journal.jsonl";
  }
  ~PublicationFile() override { std::filesystem::remove_all(directory_); }
  std::vector<std::string> Lines() {
    std::ifstream file(path_);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
  std::string directory_, path_;
};

TEST_F(PublicationFile, HasAnObjectALineAndIsAppendedTo) {
  const PublicationRecord record{.time = "2026-01-02T03:04:05.678Z",
                                 .trigger = "api",
                                 .who = "pid 1 uid 2",
                                 .before = "aa",
                                 .after = "bb",
                                 .changes = {"op {k=1}: a {} -> b {X=1}", "two\nlines \xff"},
                                 .outcome = "failed",
                                 .reason = "\"quoted\"",
                                 .prepare_ms = 1.5};
  for (int i = 0; i < 2; ++i) {
    const auto file = OpenPublicationFile(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    (*file)->Record(record);
    (*file)->Record(record);
    EXPECT_EQ((*file)->lost(), 0u);
  }
  ASSERT_EQ(Lines().size(), 4u);
  for (const std::string& line : Lines()) {
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json.size(), 9u);
    EXPECT_EQ(json["time"], record.time);
    EXPECT_EQ(json["trigger"], "api");
    EXPECT_EQ(json["who"], "pid 1 uid 2");
    EXPECT_EQ(json["before"], "aa");
    EXPECT_EQ(json["after"], "bb");
    EXPECT_EQ(json["changes"][0], record.changes[0]);
    EXPECT_EQ(json["outcome"], "failed");
    EXPECT_EQ(json["reason"], record.reason);
    EXPECT_EQ(json["prepare_ms"], 1.5);
  }
}

TEST_F(PublicationFile, ThatCannotBeOpenedSaysWhy) {
  const absl::Status missing = OpenPublicationFile(directory_ + "/no/such").status();
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_THAT(std::string(What(missing)), HasSubstr("/no/such"));
  EXPECT_FALSE(OpenPublicationFile(directory_).ok());
}

TEST_F(PublicationFile, OnAFullDiskIsSaidOnceAndCounted) {
  World world(Many(3));
  const auto dispatcher = world.Dispatch();
  std::shared_ptr<PublicationSink> full = *OpenPublicationFile("/dev/full");
  dispatcher->SetJournal(full);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(dispatcher->Publish(world.Select({{1000, StrCat("v", i)}})).ok());
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(full->lost(), 3u);
  EXPECT_THAT(said, HasSubstr("/dev/full cannot be written: No space left on device"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
}

TEST_F(PublicationFile, ARecordThatWasCutOffDoesNotSpoilTheNext) {
  const auto file = *OpenPublicationFile(path_);
  PublicationRecord record{.reason = std::string(1000, 'x')};
  file->Record(record);
  rlimit saved{}, tight{};
  getrlimit(RLIMIT_FSIZE, &saved);
  tight = saved;
  tight.rlim_cur = 1500;  // within the second line
  signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  testing::internal::CaptureStderr();
  file->Record(record);
  file->Record(record);
  testing::internal::GetCapturedStderr();
  setrlimit(RLIMIT_FSIZE, &saved);
  file->Record(record);
  EXPECT_EQ(file->lost(), 2u);
  const std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_TRUE(nlohmann::json::accept(lines[0]));
  EXPECT_FALSE(nlohmann::json::accept(lines[1]));
  EXPECT_TRUE(nlohmann::json::accept(lines[2]));
}

}  // namespace
}  // namespace kvr
