// SPDX-License-Identifier: Apache-2.0
//
// Swaps that come about: by a variant's name, a selection file, a digest, a bundle; and that asking
// often leaves nothing behind.
#include <malloc.h>

#include <fstream>
#include <set>

#include "absl/time/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "registry/selection_file.h"
#include "tests/tuner/swapper_fixture.h"

namespace kvr::test {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using State = SwapResult::State;

TEST_F(SwapperTest, AVariantIsBuiltVerifiedAndPublishedForAllThatIsLoaded) {
  Open();
  const SwapResult result = Ask({.op = kOp, .variant = "baseline{THREADS=128}"});
  ASSERT_EQ(result.state, State::kPublished) << result.status;
  EXPECT_EQ(Serves(4096), "baseline{THREADS=128}");
  EXPECT_EQ(Serves(128), "baseline{THREADS=128}");
  EXPECT_TRUE(Computes(1));
  EXPECT_EQ(result.before, booted_.Hex());
  EXPECT_EQ(result.after, runtime_->generation()->digest().Hex());
  EXPECT_THAT(result.changes, SizeIs(2));
  const std::vector<PublicationRecord> records = journal_->records();
  ASSERT_THAT(records, SizeIs(1));
  EXPECT_EQ(records[0].outcome, "published");
  EXPECT_EQ(records[0].trigger, "api");
  EXPECT_EQ(records[0].changes, result.changes);
  EXPECT_THAT(records[0].who, HasSubstr("pid"));
  EXPECT_THAT(records[0].reason, HasSubstr("verified at 2 shapes"));
}

TEST_F(SwapperTest, WhatPassedOnceIsNotVerifiedAgain) {
  Open();
  ASSERT_EQ(Ask({.op = kOp, .variant = "baseline{THREADS=128}"}).state, State::kPublished);
  ASSERT_EQ(Ask({.op = kOp, .variant = "baseline"}).state, State::kPublished);
  ASSERT_EQ(Ask({.op = kOp, .variant = "baseline{THREADS=128}"}).state, State::kPublished);
  EXPECT_EQ(journal_->records().back().reason, "verified before at 2 shapes");
}

TEST_F(SwapperTest, OnlyTheKeysThatAreNamedChange) {
  Open();
  const SwapResult result =
      Ask({.op = kOp, .variant = "baseline{THREADS=128}", .keys = {{{"n", 65}}}});
  ASSERT_EQ(result.state, State::kPublished) << result.status;
  EXPECT_EQ(Serves(128), "baseline{THREADS=128}");
  EXPECT_EQ(Serves(4096), "baseline{THREADS=256}");
  for (const ServedInfo& served : runtime_->served()) EXPECT_FALSE(served.missed) << served.why;
}

TEST_F(SwapperTest, RequestsWaitWhileItIsPaused) {
  Open();
  ASSERT_TRUE(swapper_->Pause().ok());
  const uint64_t id =
      swapper_->Request({.op = kOp, .variant = "baseline{THREADS=128}", .verify = false});
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(swapper_->recent().front().state, State::kWaiting);
  swapper_->Resume();
  EXPECT_EQ(swapper_->Wait(id)->state, State::kPublished);
  ASSERT_TRUE(swapper_->Pause().ok());  // and it ends paused, too
}

TEST_F(SwapperTest, NoTwoGenerationsThatCanBeHadBackHaveOneNumber) {
  Open();
  ASSERT_EQ(Ask({.op = kOp, .variant = "baseline{THREADS=128}"}).state, State::kPublished);
  ASSERT_EQ(Ask({.rollback = "baseline"}).state, State::kPublished);
  ASSERT_EQ(Ask({.op = kOp, .variant = "planned"}).state, State::kPublished);
  std::set<int64_t> numbers = {runtime_->generation()->number()};
  for (const GenerationPtr& kept : runtime_->history()) {
    EXPECT_TRUE(numbers.insert(kept->number()).second) << kept->number();
  }
}

TEST_F(SwapperTest, AVariantThatServesAlreadyChangesNothing) {
  Open();
  ASSERT_EQ(Ask({.op = kOp, .variant = "baseline{THREADS=128}"}).state, State::kPublished);
  const SwapResult again = Ask({.op = kOp, .variant = "baseline{THREADS=128}"});
  EXPECT_EQ(again.state, State::kUnchanged) << again.status;
  EXPECT_EQ(again.before, again.after);
  EXPECT_THAT(again.changes, IsEmpty());
}

TEST_F(SwapperTest, ASelectionFileIsServedUnderItsOwnDigest) {
  Open();
  ASSERT_EQ(Ask({.op = kOp, .variant = "baseline{THREADS=128}"}).state, State::kPublished);
  const GenerationPtr selected = runtime_->generation();
  const std::string file = root_ / "selections.json";
  ASSERT_TRUE(WriteSelectionFile(*selected, file).ok());
  ASSERT_EQ(Ask({.rollback = "previous"}).state, State::kPublished);
  EXPECT_EQ(runtime_->generation()->digest(), booted_);
  const SwapResult result = Ask({.selection_file = file});
  ASSERT_EQ(result.state, State::kPublished) << result.status;
  EXPECT_EQ(runtime_->generation()->digest(), selected->digest());
  EXPECT_EQ(Serves(), "baseline{THREADS=128}");
  EXPECT_EQ(Ask({.selection_file = file}).state, State::kUnchanged);
}

TEST_F(SwapperTest, ARollbackGoesBackAtOnceAndToOlderOnesThroughABuild) {
  Open();
  std::vector<std::string> digests;
  for (const int64_t n : {4096, 100}) {
    for (const char* variant :
         {"planned", "planned{THREADS=128}", "planned{WAVES=2}", "planned{THREADS=128,WAVES=2}",
          "baseline{THREADS=128}", "baseline"}) {
      const SwapResult result =
          Ask({.op = kOp, .variant = variant, .keys = {{{"n", n}}}, .verify = false});
      ASSERT_NE(result.state, State::kFailed) << result.status;
      digests.push_back(result.after);
    }
  }
  const SwapResult previous = Ask({.rollback = "previous"});
  ASSERT_EQ(previous.state, State::kPublished) << previous.status;
  EXPECT_EQ(previous.after, digests[digests.size() - 2]);
  EXPECT_EQ(journal_->records().back().trigger, "rollback");
  const SwapResult oldest = Ask({.rollback = digests[0].substr(0, 12)});
  ASSERT_EQ(oldest.state, State::kPublished) << oldest.status;
  EXPECT_EQ(oldest.after, digests[0]);
  EXPECT_EQ(Serves(), "planned{THREADS=256,WAVES=1}");
  EXPECT_TRUE(Computes(1));
  const SwapResult unknown = Ask({.rollback = "0123456789abcdef"});
  EXPECT_TRUE(absl::IsNotFound(unknown.status)) << unknown.status;
}

TEST_F(SwapperTest, AnEditedBundleReplacesItsVariantWhereverThatIsSelected) {
  const std::string bundle = Write({});
  Open({.plugin_roots = {root_ / "bundles"}});
  ASSERT_EQ(Ask({.op = kOp, .variant = "mine{THREADS=128}", .keys = {{{"n", 4096}}}}).state,
            State::kPublished);
  const Fingerprint first = runtime_->served()[0].fingerprint;
  Write({.body = "y[i] = 1.0f * x[i];"});
  const SwapResult result = Ask({.bundle = bundle, .trigger = "bundle"});
  ASSERT_EQ(result.state, State::kPublished) << result.status;
  EXPECT_EQ(Serves(4096), "mine{THREADS=128}");
  EXPECT_EQ(Serves(128), "baseline{THREADS=256}");
  EXPECT_THAT(result.changes, ElementsAre(HasSubstr("source")));
  EXPECT_TRUE(Computes(1));
  // Its name means the new one from now on.
  EXPECT_EQ(Ask({.op = kOp, .variant = "mine"}).state, State::kPublished);
  for (const ServedInfo& served : runtime_->served()) {
    EXPECT_NE(served.fingerprint, first);
  }
  EXPECT_EQ(Ask({.bundle = bundle}).state, State::kUnchanged);
}

TEST_F(SwapperTest, ANewBundleIsSelectedByNobodyAndKnownByNameFromThenOn) {
  Open();
  const std::string bundle = Write({.name = "fresh"});
  EXPECT_EQ(Ask({.op = kOp, .variant = "fresh"}).state, State::kFailed);
  const SwapResult brought = Ask({.bundle = bundle});
  EXPECT_EQ(brought.state, State::kUnchanged) << brought.status;
  const SwapResult result = Ask({.op = kOp, .variant = "fresh"});
  ASSERT_EQ(result.state, State::kPublished) << result.status;
  EXPECT_EQ(Serves(), "fresh{THREADS=256}");
  EXPECT_TRUE(Computes(1));
}

TEST_F(SwapperTest, ARebuiltPluginIsLoadedBesideTheOldOne) {
  Open();
  ASSERT_EQ(Ask({.op = kOp, .variant = "planned"}).state, State::kPublished);
  const absl::StatusOr<VariantPtr> planned = runtime_->catalog().Find(kOp, "planned");
  ASSERT_TRUE(planned.ok());
  // Another build of the same: whatever is behind the end of an ELF file is nobody's.
  const std::string built = (*planned)->directory.substr(0, (*planned)->directory.rfind(':'));
  const std::string plugin = root_ / "bundles" / "libnull.so";
  std::filesystem::copy_file(built, plugin);
  std::ofstream(plugin, std::ios::app) << "rebuilt";
  const SwapResult result = Ask({.bundle = plugin, .trigger = "plugin"});
  ASSERT_EQ(result.state, State::kPublished) << result.status;
  EXPECT_THAT(result.changes, SizeIs(2));
  EXPECT_THAT(result.changes[0], HasSubstr("source"));
  EXPECT_TRUE(Computes(1));
  EXPECT_EQ(Ask({.rollback = "previous"}).state, State::kPublished);
  EXPECT_TRUE(Computes(1));
  // Cut short, as a linker at work leaves it.
  std::filesystem::resize_file(plugin, 1000);
  EXPECT_EQ(Ask({.bundle = plugin}).state, State::kFailed);
  EXPECT_TRUE(Computes(1));
}

TEST_F(SwapperTest, ABundleExtendsWhatRunsHereAndNothingElse) {
  Write({});
  Open({.plugin_roots = {root_ / "bundles"}});
  std::filesystem::create_directory(Bundle("child"));
  std::ofstream(Bundle("child") / "variant.toml")
      << "schema = 1\nop = \"null\"\nname = \"child\"\nversion = \"1.0.0\"\n"
      << "description = \"of a test\"\nextends = { variant = \"mine\", version = \"1\" }\n";
  Write({.body = "y[i] = 1.0f * x[i];"});
  const SwapResult stale = Ask({.bundle = Bundle("child")});
  EXPECT_EQ(stale.state, State::kFailed);
  EXPECT_THAT(std::string(What(stale.status)), HasSubstr("has changed since it was scanned"));
  EXPECT_NE(Ask({.bundle = Bundle("mine")}).state, State::kFailed);
  EXPECT_NE(Ask({.bundle = Bundle("child")}).state, State::kFailed);
  const SwapResult result = Ask({.op = kOp, .variant = "child"});
  ASSERT_EQ(result.state, State::kPublished) << result.status;
  EXPECT_TRUE(Computes(1));
}

TEST_F(SwapperTest, AFileThatWasTunedAfterAnEditBringsTheEdit) {
  Write({});
  const RuntimeOptions options{.plugin_roots = {root_ / "bundles"}};
  Open(options);
  const std::string file = root_ / "selections.json";
  {
    Write({.body = "y[i] = 1.0f * x[i];"});
    Open(options);  // another process would
    ASSERT_EQ(Ask({.op = kOp, .variant = "mine"}).state, State::kPublished);
    ASSERT_TRUE(WriteSelectionFile(*runtime_->generation(), file).ok());
  }
  Write({});
  Open(options);
  const absl::Status missing = Ask({.selection_file = file}).status;
  EXPECT_TRUE(absl::IsFailedPrecondition(missing)) << missing;
  EXPECT_THAT(std::string(What(missing)), HasSubstr("mine"));
  Write({.body = "y[i] = 1.0f * x[i];"});
  const SwapResult result = Ask({.selection_file = file});
  ASSERT_EQ(result.state, State::kPublished) << result.status;
  EXPECT_EQ(Serves(), "mine{THREADS=256}");
}

TEST_F(SwapperTest, ACanaryComparesWithWhatServesAndSaysWhere) {
  Open();
  const SwapResult result =
      Ask({.op = kOp, .variant = "baseline{THREADS=128}", .keys = {{{"n", 4096}}}, .canary = true});
  // The machine's other work may make anything of two configs that are equally fast.
  ASSERT_THAT(result.state, AnyOf(State::kPublished, State::kFailed));
  const std::string reason = journal_->records().back().reason;
  EXPECT_THAT(reason, HasSubstr("canary on KVR host")) << result.status;
  EXPECT_EQ(result.step, result.state == State::kFailed ? "canary" : "publish");
}

TEST_F(SwapperTest, ACanaryRefusesWhatIsSlower) {
  Write({.body = "volatile int spin = 0; while (spin < 500) spin = spin + 1; y[i] = x[i];"});
  Open({.plugin_roots = {root_ / "bundles"}});
  const SwapResult result =
      Ask({.op = kOp, .variant = "mine", .keys = {{{"n", 4096}}}, .canary = true});
  ExpectRefused(result, "canary", "LOSS");
}

TEST_F(SwapperTest, AThousandRequestsLeaveNothingBehind) {
  Open();
  runtime_->SetJournal(nullptr);
  const auto ask = [&](int i) {
    return Ask({.op = kOp, .variant = i % 2 == 0 ? "baseline{THREADS=128}" : "baseline"});
  };
  for (int i = 0; i < 100; ++i) ASSERT_EQ(ask(i).state, State::kPublished);
  const size_t history = runtime_->history().size();
  const size_t used = mallinfo2().uordblks;
  for (int i = 0; i < 900; ++i) ASSERT_EQ(ask(i).state, State::kPublished);
  EXPECT_EQ(runtime_->history().size(), history);
  EXPECT_LT(mallinfo2().uordblks, used + (64 << 10));
  EXPECT_THAT(swapper_->recent(), SizeIs(64));
  EXPECT_TRUE(absl::IsNotFound(swapper_->Wait(1).status()));
  EXPECT_TRUE(Computes(1));
}

TEST_F(SwapperTest, RequestsRunInTheOrderTheyCame) {
  Open();
  std::vector<uint64_t> ids;
  for (int i = 0; i < 6; ++i) {
    ids.push_back(swapper_->Request(
        {.op = kOp, .variant = i % 2 == 0 ? "baseline{THREADS=128}" : "baseline"}));
  }
  std::string before = booted_.Hex();
  for (const uint64_t id : ids) {
    const absl::StatusOr<SwapResult> result = swapper_->Wait(id);
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->before, before);
    before = result->after;
  }
  EXPECT_EQ(swapper_->recent().front().id, ids.back());
}

TEST_F(SwapperTest, AnEditInAWatchedDirectoryIsServedAndTheSameFileAgainIsNot) {
  Write({});
  Open({.plugin_roots = {root_ / "bundles"}}, {.debounce = absl::Milliseconds(100)});
  ASSERT_EQ(Ask({.op = kOp, .variant = "mine"}).state, State::kPublished);
  const std::string file = root_ / "selections.json";
  ASSERT_TRUE(WriteSelectionFile(*runtime_->generation(), file).ok());
  ASSERT_TRUE(swapper_->WatchBundles(root_ / "bundles").ok());
  ASSERT_TRUE(swapper_->WatchSelectionFile(file).ok());
  Write({.body = "y[i] = 1.0f * x[i];"});
  const PublicationRecord edited = journal_->WaitFor(2);
  EXPECT_EQ(edited.outcome, "published") << edited.reason;
  EXPECT_EQ(edited.trigger, "bundle");

  // A file of what serves already.
  ASSERT_TRUE(WriteSelectionFile(*runtime_->generation(), file).ok());
  const PublicationRecord stays = journal_->WaitFor(3);
  EXPECT_EQ(stays.trigger, "selection-file");
  EXPECT_EQ(stays.outcome, "unchanged") << stays.reason;
  ASSERT_TRUE(WriteSelectionFile(*runtime_->generation(), file).ok());  // the same content
  ASSERT_EQ(Ask({.op = kOp, .variant = "baseline"}).state, State::kPublished);
  EXPECT_THAT(journal_->records(), SizeIs(4));
  EXPECT_TRUE(Computes(1));

  // A file that selects something else is served.
  ASSERT_TRUE(WriteSelectionFile(*runtime_->generation(), file).ok());
  EXPECT_EQ(journal_->WaitFor(5).outcome, "unchanged");
  ASSERT_TRUE(WriteSelectionFile(*runtime_->history().front(), file).ok());
  const PublicationRecord selected = journal_->WaitFor(6);
  EXPECT_EQ(selected.trigger, "selection-file");
  EXPECT_EQ(selected.outcome, "published") << selected.reason;
  EXPECT_THAT(Serves(), HasSubstr("mine"));
  EXPECT_TRUE(Computes(1));
}

TEST_F(SwapperTest, HalfABundleIsNotRefusedAndManyEditsAreOneSwap) {
  constexpr absl::Duration kDebounce = absl::Milliseconds(300);
  // Where this thread is held up, a half rests until it is refused, or an edit until it is served:
  // then anew.
  for (bool in_time = false; !in_time;) {
    Write({});
    Open({.plugin_roots = {root_ / "bundles"}}, {.debounce = kDebounce});
    ASSERT_EQ(Ask({.op = kOp, .variant = "mine"}).state, State::kPublished);
    ASSERT_TRUE(swapper_->WatchBundles(root_ / "bundles").ok());
    const absl::Time half = absl::Now();
    std::ofstream(Bundle("mine") / "variant.toml") << "schema = 1\nop = \"nul";
    absl::SleepFor(1.5 * kDebounce);
    const absl::Time edits = absl::Now();
    for (int i = 1; i <= 20; ++i) {
      Write({.body = "y[i] = 1.0f * x[i];  // edit " + std::to_string(i)});
    }
    in_time = absl::Now() - edits < kDebounce && edits - half < 8 * kDebounce;
  }
  const PublicationRecord edited = journal_->WaitFor(2);
  EXPECT_EQ(edited.outcome, "published") << edited.reason;
  EXPECT_EQ(edited.trigger, "bundle");
  ASSERT_EQ(Ask({.op = kOp, .variant = "baseline"}).state, State::kPublished);
  EXPECT_THAT(journal_->records(), SizeIs(3));
  EXPECT_TRUE(Computes(1));
}

}  // namespace
}  // namespace kvr::test
