// SPDX-License-Identifier: Apache-2.0
#include "registry/selection_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>

#include "tests/registry/fakes.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;

class SelectionFile : public ::testing::Test {
 protected:
  SelectionFile() {
    const GenerationPtr base = world_.Select({{64, "wide"}, {2048, "baseline"}}, 5);
    GenerationBuilder builder(*base);
    Selection selection = *Sorted(*base->FindOp("axpy"))[0].second;
    selection.config["BLOCK"] = 256;
    selection.binary = FingerprintOf("cubin");
    selection.evidence = {12.5, 6, "The Null Device", "2025-01-02T03:04:05Z"};
    EXPECT_TRUE(builder.Select("axpy", Sorted(*base->FindOp("axpy"))[0].first, selection).ok());
    generation_ = builder.Build(5);
    json_ = SelectionJson(*generation_);
    directory_ =
        std::filesystem::temp_directory_path() / ("kvr-selection-" + std::to_string(getpid()));
    std::filesystem::create_directory(directory_);
  }
  ~SelectionFile() override { std::filesystem::remove_all(directory_); }

  absl::StatusOr<LoadedSelections> Parse(const std::string& json) {
    return ParseSelectionJson(json, "file.json", world_.catalog, world_.device->info());
  }
  // The error after replacing `from` in the good file.
  absl::Status After(const std::string& from, const std::string& to) {
    std::string json = json_;
    const size_t at = json.find(from);
    EXPECT_NE(at, std::string::npos) << from << " in " << json;
    json.replace(at, from.size(), to);
    return Parse(json).status();
  }

  World world_;
  GenerationPtr generation_;
  std::string json_;
  std::filesystem::path directory_;
};

TEST_F(SelectionFile, ComesBackAsItWasWritten) {
  const std::string path = directory_ / "selections.json";
  ASSERT_TRUE(WriteSelectionFile(*generation_, path).ok());
  const absl::StatusOr<LoadedSelections> loaded =
      ReadSelectionFile(path, world_.catalog, world_.device->info());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_TRUE(loaded->dropped.empty());
  EXPECT_EQ(loaded->file_digest, generation_->digest());
  EXPECT_EQ(loaded->generation->digest(), generation_->digest());
  EXPECT_EQ(loaded->generation->number(), 5);
  EXPECT_EQ(SelectionJson(*loaded->generation), json_);
  const Generation::Op& op = *loaded->generation->FindOp("axpy");
  EXPECT_EQ(op.policy.text(), "n:pow2");
  const Selection& first = *Sorted(op)[0].second;
  EXPECT_EQ(first.config.at("BLOCK"), 256);
  EXPECT_EQ(first.evidence, Sorted(*generation_->FindOp("axpy"))[0].second->evidence);
}

TEST_F(SelectionFile, KeepsWhatASelectionWon) {
  GenerationBuilder builder(*generation_);
  const auto [key, selection] = Sorted(*generation_->FindOp("axpy"))[0];
  Selection decided = *selection;
  decided.evidence.verdict = "WIN";
  decided.evidence.kind = "ship";
  decided.evidence.incumbent = "baseline {BLOCK=128,CTAS=1024}";
  decided.evidence.gain_low = -std::numeric_limits<double>::infinity();
  decided.evidence.gain_high = -0.125;
  ASSERT_TRUE(builder.Select("axpy", key, decided).ok());
  const GenerationPtr with = builder.Build(5);
  EXPECT_EQ(with->digest(), generation_->digest());  // what is selected, not why
  const std::string text = SelectionJson(*with);
  EXPECT_THAT(text, HasSubstr("\"gain_low\": null"));
  const auto loaded = Parse(text);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(Sorted(*loaded->generation->FindOp("axpy"))[0].second->evidence, decided.evidence);

  // All that belongs to a verdict, or none of it.
  json_ = text;
  EXPECT_THAT(std::string(What(After("\"verdict\"", "\"outcome\""))), HasSubstr("unknown field"));
  EXPECT_THAT(std::string(What(After("\"kind\": \"ship\"", "\"kin\": \"ship\""))),
              HasSubstr("'kind' is missing"));
}

TEST_F(SelectionFile, NamesConfigsByValue) {
  EXPECT_THAT(json_, HasSubstr("\"BLOCK\": 256"));
  EXPECT_THAT(json_, HasSubstr("\"n\": 64"));
}

TEST_F(SelectionFile, AnEditIsRefusedByTheDigest) {
  const absl::Status status = After("\"BLOCK\": 256", "\"BLOCK\": 128");
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(What(status)), HasSubstr("file.json"));
  EXPECT_TRUE(absl::IsDataLoss(After("n:pow2", "n:exact")));
  EXPECT_TRUE(absl::IsDataLoss(After("\"wide\"", "\"baseline\"")));
}

TEST_F(SelectionFile, EvidenceIsOutsideTheDigest) { EXPECT_TRUE(After("12.5", "11.5").ok()); }

TEST_F(SelectionFile, IsStrict) {
  EXPECT_THAT(std::string(What(After("\"tried\"", "\"tired\""))), HasSubstr("'tried' is missing"));
  EXPECT_THAT(std::string(What(After("\"schema\": 1", "\"schema\": 1, \"extra\": 2"))),
              HasSubstr("unknown field"));
  EXPECT_THAT(std::string(What(After("\"schema\": 1", "\"schema\": 1, \"target\": \"null\""))),
              HasSubstr("given twice"));
  EXPECT_THAT(std::string(What(After("\"BLOCK\": 256", "\"BLOCK\": 256.5"))),
              HasSubstr(".config.BLOCK"));
  EXPECT_THAT(std::string(What(After("\"n\": 64", "\"n\": 18446744073709551615"))),
              HasSubstr("not a 64-bit integer"));
  EXPECT_TRUE(absl::IsFailedPrecondition(After("\"schema\": 1", "\"schema\": 2")));
  EXPECT_THAT(std::string(What(After("kvr-selections", "kvr-selection"))),
              HasSubstr("not a KVR selection file"));
  for (const char* bad : {"", "{", "[]", "null", "{}", "\xff\xfe", "[[[[[[[[", "{\"kind\": 1}"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Parse(bad).status())) << bad;
  }
}

TEST_F(SelectionFile, EveryTruncationIsAnError) {
  for (size_t length = 0; length + 2 < json_.size(); length += 7) {
    EXPECT_FALSE(Parse(json_.substr(0, length)).ok()) << length;
  }
}

TEST_F(SelectionFile, AnotherDeviceIsRefused) {
  DeviceInfo other = world_.device->info();
  other.model = "nvidia-h200";
  const absl::Status status =
      ParseSelectionJson(json_, "file.json", world_.catalog, other).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(What(status)), HasSubstr("nvidia-h200"));
}

TEST_F(SelectionFile, AChangedOrMissingVariantIsDroppedAndReported) {
  std::shared_ptr<Variant> edited = AxpyVariant("wide");
  edited->fingerprint = FingerprintOf("edited");
  World changed({AxpyVariant("baseline", true), edited});
  World missing({AxpyVariant("baseline", true)});
  for (const World* world : {&changed, &missing}) {
    const absl::StatusOr<LoadedSelections> loaded =
        ParseSelectionJson(json_, "file.json", world->catalog, world->device->info());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    ASSERT_EQ(loaded->dropped.size(), 1u);
    EXPECT_EQ(loaded->dropped[0].variant, "wide");
    EXPECT_EQ(loaded->dropped[0].key, (Axes{{"n", 64}}));
    EXPECT_EQ(loaded->generation->FindOp("axpy")->selections.size(), 1u);
    EXPECT_NE(loaded->generation->digest(), loaded->file_digest);
  }
}

TEST_F(SelectionFile, AFileThatOthersMayWriteIsRefused) {
  const std::string path = directory_ / "open.json";
  ASSERT_TRUE(WriteSelectionFile(*generation_, path).ok());
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  EXPECT_TRUE(absl::IsPermissionDenied(
      ReadSelectionFile(path, world_.catalog, world_.device->info()).status()));
}

TEST_F(SelectionFile, AbsentFilesAndDirectoriesAreExplained) {
  EXPECT_TRUE(absl::IsNotFound(
      ReadSelectionFile(directory_ / "no.json", world_.catalog, world_.device->info()).status()));
  EXPECT_FALSE(ReadSelectionFile(directory_, world_.catalog, world_.device->info()).ok());
  EXPECT_FALSE(WriteSelectionFile(*generation_, directory_ / "no" / "where.json").ok());
}

TEST_F(SelectionFile, WritingLeavesNothingElseBehind) {
  const std::string path = directory_ / "selections.json";
  ASSERT_TRUE(WriteSelectionFile(*generation_, path).ok());
  ASSERT_TRUE(WriteSelectionFile(*generation_, path).ok());
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    ++files;
    EXPECT_EQ(entry.path(), path);
  }
  EXPECT_EQ(files, 1);
}

}  // namespace
}  // namespace kvr
