// SPDX-License-Identifier: Apache-2.0
//
// Variants that bring a key policy of their own (keyed/), tuned on the host device: who takes part,
// what becomes of a file that is keyed by another policy, and what a finer one is worth.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "api/tune.h"
#include "core/status.h"
#include "registry/selection_file.h"

namespace kvr {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

constexpr char kOp[] = "mla_sparse_decode";
constexpr char kPolicy[] = "topk:pow2; num_tokens:ceil(1,2,4)";

struct Notes : Progress {
  void Update(const ProgressUpdate&) override {}
  void Note(std::string_view line) override {
    text += std::string(line) + "\n";
    if (!cancel_at.empty() && line.find(cancel_at) != std::string_view::npos) cancel = true;
  }
  std::string text, cancel_at;
  std::atomic<bool> cancel{false};
};

class KeyPolicyTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string pattern = ::testing::TempDir() + "/kvr-key-policy-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = new std::string(pattern);
    setenv("KVR_WORKER", KVR_BIN_DIR "/kvr-worker", 1);
    PlatformOptions options;
    options.plugin_roots = {KVR_SOURCE_DIR "/tests/tuner/faulty",
                            KVR_SOURCE_DIR "/tests/tuner/keyed"};
    options.cache_dir = pattern + "/cache";
    auto platform = Platform::Open(options);
    ASSERT_TRUE(platform.ok()) << platform.status();
    platform_ = platform->release();
    roots_ = new std::vector<std::string>(options.plugin_roots);
  }
  static void TearDownTestSuite() {
    delete platform_;
    delete roots_;
    std::filesystem::remove_all(*directory_);
    delete directory_;
  }
  void SetUp() override {
    const auto device = platform_->OpenDevice("host");
    if (!device.ok()) GTEST_SKIP() << "no host device: " << device.status();
    device_ = (*device)->info();
    settings_.device = "host";
    settings_.plugin_roots = *roots_;
    settings_.ledger_directory = "none";
    settings_.progress = &notes_;
    settings_.cancel = &notes_.cancel;
  }

  static Axes Shape(int64_t tokens) {
    return {{"num_tokens", tokens},
            {"num_qo_heads", 2},
            {"page_size", 8},
            {"num_pages", 2},
            {"topk", 8}};
  }
  static TuneRequest Request(std::vector<std::string> variants, std::vector<int64_t> tokens) {
    TuneRequest request;
    request.op = kOp;
    request.variants = std::move(variants);
    for (int64_t n : tokens) request.shapes.push_back(Shape(n));
    request.race.final_rounds = 12;
    request.duel_rounds = 12;
    return request;
  }
  // A file of its own for each test, that selects something for topk=8.
  std::string FileKeyedByTheOp() {
    const std::string path =
        *directory_ + "/" + testing::UnitTest::GetInstance()->current_test_info()->name() + ".json";
    TuneRequest request = Request({"faulty"}, {2});
    request.coverage = Coverage::kDefault;
    request.selection_file = path;
    const auto report = Tune(*platform_, settings_, request);
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->selections[0].published) << report->selections[0].note;
    return path;
  }
  GenerationPtr Read(const std::string& path) const {
    const auto file = ReadSelectionFile(path, platform_->catalog(), device_);
    EXPECT_TRUE(file.ok()) << file.status();
    return file->generation;
  }
  static std::string Text(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  static Platform* platform_;
  static std::vector<std::string>* roots_;
  static std::string* directory_;
  DeviceInfo device_;
  TuneSettings settings_;
  Notes notes_;
};
Platform* KeyPolicyTest::platform_ = nullptr;
std::vector<std::string>* KeyPolicyTest::roots_ = nullptr;
std::string* KeyPolicyTest::directory_ = nullptr;

TEST_F(KeyPolicyTest, WhereTheyAreOnlyAdmittedNothingIsKeyedAnewAndTheyAreSkippedByName) {
  TuneRequest request = Request({}, {2, 3});
  request.coverage = Coverage::kDefault;
  const auto report = Tune(*platform_, settings_, request);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->key_policy, "topk:pow2");
  ASSERT_EQ(report->selections.size(), 1u);
  EXPECT_EQ(report->selections[0].key, (Axes{{"topk", 8}}));
  EXPECT_TRUE(report->singles.empty());
  std::map<std::string, std::string> skipped;
  for (const Skipped& skip : report->skipped) skipped[skip.variant] = skip.reason;
  EXPECT_THAT(skipped["keyed"], AllOf(HasSubstr("--variant keyed"), HasSubstr(kPolicy)));
  EXPECT_THAT(skipped["batch_key"], HasSubstr("num_tokens:ceil(1,2,4,8,16,32,48,64,80,96,128)"));
  std::set<std::string> timed;
  for (const Trial& trial : report->trials) timed.insert(trial.variant);
  EXPECT_THAT(timed,
              IsSupersetOf({"baseline", "w8", "s3"}));  // whom nothing keeps from this device
  for (const Trial& trial : report->trials) {
    EXPECT_NE(trial.variant, "keyed");
    EXPECT_NE(trial.variant, "batch_key");
  }
}

TEST_F(KeyPolicyTest, WhoeverNamesThemTunesUnderTheirPolicyAndAFileIsKeyedAnewAsAWhole) {
  const std::string path = FileKeyedByTheOp();
  const Selection before = Read(path)->FindOp(kOp)->selections.begin()->second;
  settings_.ledger_directory = *directory_ + "/ledger";
  TuneRequest request = Request({"keyed"}, {1, 2, 3, 4});
  request.selection_file = path;
  const auto report = Tune(*platform_, settings_, request);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->key_policy, kPolicy);
  EXPECT_TRUE(report->skipped.empty());
  // Said before anything is measured.
  EXPECT_THAT(notes_.text, AllOf(HasSubstr("when all 3 keys are known"), HasSubstr("{topk=8}: "),
                                 HasSubstr(kPolicy)));
  ASSERT_EQ(report->selections.size(), 3u);
  for (const TunedKey& key : report->selections) {
    EXPECT_EQ(key.incumbent_variant, before.variant->name);  // what serves the shape so far
    EXPECT_EQ(key.incumbent_config, before.config);
    EXPECT_TRUE(key.published) << key.note;
    EXPECT_THAT(key.note, AllOf(HasSubstr("gone"), HasSubstr("topk:pow2 ({topk=8}: ")));
  }
  const GenerationPtr after = Read(path);
  EXPECT_EQ(after->number(), 2);  // one generation, not one a key
  EXPECT_EQ(after->digest().Hex(), report->digest);
  EXPECT_EQ(after->FindOp(kOp)->policy.text(), kPolicy);
  ASSERT_EQ(after->FindOp(kOp)->selections.size(), 3u);
  for (const auto& [key, selection] : after->FindOp(kOp)->selections) {
    if (selection.variant->name == before.variant->name) {
      EXPECT_EQ(selection.evidence.verdict, "KEPT");
    }
  }

  // What each key's own choice is worth: a verdict for each, in the ledger too.
  ASSERT_EQ(report->singles.size(), 1u);
  EXPECT_EQ(report->singles[0].key, (Axes{{"topk", 8}}));
  EXPECT_FALSE(report->singles[0].variant.empty());
  ASSERT_EQ(report->singles[0].at.size(), 3u);
  const auto ledger = ledger::Ledger::Open(settings_.ledger_directory);
  ASSERT_TRUE(ledger.ok()) << ledger.status();
  const auto verdicts = (*ledger)->Find<ledger::Verdict>({{"kind", "single"}});
  ASSERT_TRUE(verdicts.ok());
  ASSERT_EQ(verdicts->size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const SingleAt& at = report->singles[0].at[i];
    EXPECT_EQ(at.variant, report->selections[i].variant);
    EXPECT_EQ((*verdicts)[i].verdict, at.verdict);
    EXPECT_EQ((*verdicts)[i].incumbent, report->singles[0].variant);
    const bool same =
        at.variant == report->singles[0].variant && at.config == report->singles[0].config;
    EXPECT_EQ(at.rounds == 0, same) << at.verdict << " " << at.reason;
    EXPECT_TRUE(!same || at.verdict == "EQUIVALENT") << at.verdict;
    // Both sides in one session.
    const auto pair = (*ledger)->Find<ledger::Trial>({{"session", (*verdicts)[i].session}});
    ASSERT_TRUE(pair.ok());
    EXPECT_EQ(pair->size(), same ? 0u : 2u);
  }

  // From now on the file says how it is keyed, and who took part does so unasked.
  const auto again = Tune(*platform_, settings_, request);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(Read(path)->FindOp(kOp)->selections.size(), 3u);
  // What an earlier run found slow still has a time, so there still is one choice for all.
  ASSERT_EQ(again->singles.size(), 1u);
  EXPECT_FALSE(again->singles[0].variant.empty());
  request.variants = {"faulty", "keyed"};
  request.coverage = Coverage::kDefault;
  request.key_policy = "topk:pow2";
  request.selection_file.clear();
  const auto other = Tune(*platform_, settings_, request);
  ASSERT_TRUE(other.ok()) << other.status();
  ASSERT_EQ(other->skipped.size(), 1u);
  EXPECT_EQ(other->skipped[0].variant, "keyed");
}

TEST_F(KeyPolicyTest, AFileStaysAsItIsUnlessEveryKeyHasASelection) {
  const std::string path = FileKeyedByTheOp();
  const std::string before = Text(path);
  TuneRequest request = Request({"keyed"}, {1, 2});
  request.selection_file = path;
  notes_.cancel_at = "num_tokens=1,topk=8: ";  // told when that key is done
  const auto report = Tune(*platform_, settings_, request);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->cancelled);
  ASSERT_EQ(report->selections.size(), 1u);
  EXPECT_FALSE(report->selections[0].published);
  EXPECT_TRUE(report->selections[0].refused);
  EXPECT_THAT(report->selections[0].note,
              AllOf(HasSubstr("1 of 2 keys"), HasSubstr("stays keyed by topk:pow2")));
  EXPECT_EQ(Text(path), before);
}

TEST_F(KeyPolicyTest, ARangeGivesAKeyForEachBucketAndFewShapesToVerify) {
  TuneRequest request = Request({"keyed"}, {});
  request.coverage = Coverage::kDefault;
  for (int64_t tokens = 1; tokens <= 9; ++tokens) request.shapes.push_back(Shape(tokens));
  const auto report = Tune(*platform_, settings_, request);
  ASSERT_TRUE(report.ok()) << report.status();
  std::vector<int64_t> buckets;
  for (const TunedKey& key : report->selections) {
    buckets.push_back(key.key.at("num_tokens"));
    ASSERT_EQ(key.shapes.size(), 1u);
    EXPECT_EQ(key.shapes[0].at("num_tokens"), buckets.back());
    EXPECT_LE(key.verified.size(), 3u);
  }
  EXPECT_EQ(buckets, (std::vector<int64_t>{1, 2, 4}));
  // The last bucket has all that is larger: its two ends.
  std::vector<int64_t> verified;
  for (const Axes& axes : report->selections[2].verified) {
    verified.push_back(axes.at("num_tokens"));
  }
  EXPECT_THAT(verified, AllOf(Contains(3), Contains(9), Not(Contains(6))));
}

TEST_F(KeyPolicyTest, AKeyOfOneBatchIsVerifiedAtAnAwkwardTopkToo) {
  const auto report = Tune(*platform_, settings_, Request({"keyed"}, {2}));
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->selections.size(), 1u);
  const TunedKey& key = report->selections[0];
  EXPECT_EQ(key.key, (Axes{{"num_tokens", 2}, {"topk", 8}}));
  ASSERT_EQ(key.verified.size(), 1u);
  EXPECT_EQ(key.verified[0].at("num_tokens"), 2);  // 1 is another key's
  EXPECT_EQ(key.verified[0].at("topk"), 7);
}

TEST_F(KeyPolicyTest, PoliciesThatContradictEachOtherAndTunesOfNobodyAreErrors) {
  const auto both = Tune(*platform_, settings_, Request({"keyed", "batch_key"}, {2}));
  EXPECT_TRUE(absl::IsInvalidArgument(both.status())) << both.status();
  EXPECT_THAT(std::string(both.status().message()),
              AllOf(HasSubstr("'keyed' and 'batch_key'"), HasSubstr("--key-policy")));
  TuneRequest request = Request({"keyed"}, {2});
  request.key_policy = "topk:pow2";
  const auto nobody = Tune(*platform_, settings_, request);
  EXPECT_TRUE(absl::IsInvalidArgument(nobody.status())) << nobody.status();
  EXPECT_THAT(std::string(nobody.status().message()), HasSubstr("--variant keyed"));
}

}  // namespace
}  // namespace kvr
