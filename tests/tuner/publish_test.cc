// SPDX-License-Identifier: Apache-2.0
//
// Publishing into a file that others publish into, and that holds what this process does not know.
#include "tuner/publish.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "api/platform.h"
#include "core/status.h"

namespace kvr {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kOp[] = "mla_sparse_decode";

std::string Text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class PublishTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto plain = Platform::Open({.compilers = false});
    ASSERT_TRUE(plain.ok()) << plain.status();
    plain_ = plain->release();
    auto more = Platform::Open(
        {.plugin_roots = {KVR_SOURCE_DIR "/tests/tuner/faulty"}, .compilers = false});
    ASSERT_TRUE(more.ok()) << more.status();
    more_ = more->release();
  }
  static void TearDownTestSuite() {
    delete plain_;
    delete more_;
  }
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/kvr-publish-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    path_ = directory_ + "/selections.json";
    device_.model = device_.target = "host";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  static Publication Of(const Platform& platform, const std::string& variant, int64_t topk) {
    const auto op = platform.catalog().FindOp(kOp);
    const auto found = platform.catalog().Find(kOp, variant);
    EXPECT_TRUE(op.ok() && found.ok()) << found.status();
    Publication publication;
    publication.op = kOp;
    publication.policy = (*op)->policy;
    publication.key = *publication.policy.FromNamed({{"topk", topk}});
    publication.selection.variant = *found;
    publication.selection.config = DefaultConfig((*found)->tunables);
    return publication;
  }
  std::string Baseline() const { return (*plain_->catalog().Baseline(kOp))->name; }

  static Platform* plain_;
  static Platform* more_;  // with a plugin
  std::string directory_, path_;
  DeviceInfo device_;
};
Platform* PublishTest::plain_ = nullptr;
Platform* PublishTest::more_ = nullptr;

TEST_F(PublishTest, RefusesToDeleteWhatItDoesNotKnow) {
  ASSERT_TRUE(PublishSelection(path_, more_->catalog(), device_, Of(*more_, "faulty", 512)).ok());
  const std::string before = Text(path_);
  const auto refused =
      PublishSelection(path_, plain_->catalog(), device_, Of(*plain_, Baseline(), 1024));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
  EXPECT_THAT(std::string(What(refused.status())),
              AllOf(HasSubstr("faulty"), HasSubstr("topk=512")));
  EXPECT_THAT(std::string(Fix(refused.status())), HasSubstr("--plugins"));
  EXPECT_EQ(Text(path_), before);

  const auto joined =
      PublishSelection(path_, more_->catalog(), device_, Of(*more_, Baseline(), 1024));
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ((*joined)->FindOp(kOp)->selections.size(), 2u);
}

TEST_F(PublishTest, AKeyTunedAnewMayReplaceWhatItDoesNotKnow) {
  ASSERT_TRUE(PublishSelection(path_, more_->catalog(), device_, Of(*more_, "faulty", 512)).ok());
  Publication another = Of(*plain_, Baseline(), 1024);
  another.retuned = {Of(*plain_, Baseline(), 512).key};
  EXPECT_TRUE(PublishSelection(path_, plain_->catalog(), device_, another).ok());
  ASSERT_TRUE(PublishSelection(path_, more_->catalog(), device_, Of(*more_, "faulty", 1024)).ok());
  EXPECT_TRUE(
      PublishSelection(path_, plain_->catalog(), device_, Of(*plain_, Baseline(), 1024)).ok());
}

TEST_F(PublishTest, WhatWasSelectedMeanwhileIsNotReplacedUnmet) {
  std::string before = "unset";
  ASSERT_TRUE(
      PublishSelection(path_, more_->catalog(), device_, Of(*more_, "w8", 512), 10, &before).ok());
  EXPECT_EQ(before, "");
  const std::string written = Text(path_);
  Publication faulty = Of(*more_, "faulty", 512);
  const Selection baseline = Of(*more_, Baseline(), 512).selection;
  faulty.incumbent = Candidate{baseline.variant, baseline.config};
  const auto refused = PublishSelection(path_, more_->catalog(), device_, faulty);
  EXPECT_TRUE(absl::IsAborted(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("w8"));
  EXPECT_EQ(Text(path_), written);

  // The same once more, another key, and what did meet it are all right.
  Publication same = Of(*more_, "w8", 512);
  same.incumbent = faulty.incumbent;
  EXPECT_TRUE(PublishSelection(path_, more_->catalog(), device_, same, 10, &before).ok());
  EXPECT_EQ(before.size(), 64u);
  Publication elsewhere = Of(*more_, "faulty", 1024);
  elsewhere.incumbent = faulty.incumbent;
  EXPECT_TRUE(PublishSelection(path_, more_->catalog(), device_, elsewhere).ok());
  faulty.incumbent = Candidate{same.selection.variant, same.selection.config};
  EXPECT_TRUE(PublishSelection(path_, more_->catalog(), device_, faulty).ok());
}

TEST_F(PublishTest, KeysOfAnotherPolicyReplaceOnlyWhatIsKnownToGo) {
  ASSERT_TRUE(PublishSelection(path_, more_->catalog(), device_, Of(*more_, "w8", 512)).ok());
  Publication finer = Of(*more_, Baseline(), 512);
  finer.policy =
      *KeyPolicy::Parse("topk:pow2; num_tokens:pow2", (*more_->catalog().FindOp(kOp))->spec());
  finer.key = *finer.policy.FromNamed({{"topk", 512}, {"num_tokens", 8}});
  const auto refused = [&] {
    const std::string before = Text(path_);
    const auto published = PublishSelection(path_, more_->catalog(), device_, finer);
    EXPECT_TRUE(absl::IsAborted(published.status())) << published.status();
    EXPECT_THAT(std::string(What(published.status())), HasSubstr("topk:pow2"));
    EXPECT_EQ(Text(path_), before);
  };
  refused();
  finer.rekeyed = ReadSelectionFile(path_, more_->catalog(), device_)->generation;
  // Somebody else was quicker: that one was nobody's incumbent.
  ASSERT_TRUE(PublishSelection(path_, more_->catalog(), device_, Of(*more_, "w8", 1024)).ok());
  refused();
  finer.rekeyed = ReadSelectionFile(path_, more_->catalog(), device_)->generation;
  Publication second = finer;
  second.key = *finer.policy.FromNamed({{"topk", 512}, {"num_tokens", 16}});
  const auto published = PublishSelections(path_, more_->catalog(), device_, {finer, second});
  ASSERT_TRUE(published.ok()) << published.status();
  EXPECT_EQ((*published)->FindOp(kOp)->policy.text(), finer.policy.text());
  EXPECT_EQ((*published)->FindOp(kOp)->selections.size(), 2u);
  EXPECT_EQ((*published)->number(), 3);
}

TEST_F(PublishTest, WhoeverPublishesAtOnceLosesNoKey) {
  constexpr int kWriters = 8;
  std::vector<std::thread> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.emplace_back([&, i] {
      const auto published = PublishSelection(path_, plain_->catalog(), device_,
                                              Of(*plain_, Baseline(), int64_t{1} << i), 60);
      EXPECT_TRUE(published.ok()) << published.status();
    });
  }
  for (std::thread& writer : writers) writer.join();
  const auto file = ReadSelectionFile(path_, plain_->catalog(), device_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->generation->FindOp(kOp)->selections.size(), size_t{kWriters});
  EXPECT_EQ(file->generation->number(), kWriters);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".lock"));
}

TEST_F(PublishTest, ALockThatIsNotGivenBackIsAnErrorInTime) {
  const int holder = open((path_ + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(flock(holder, LOCK_EX), 0);
  const auto refused =
      PublishSelection(path_, plain_->catalog(), device_, Of(*plain_, Baseline(), 512), 0.05);
  EXPECT_TRUE(absl::IsUnavailable(refused.status())) << refused.status();
  EXPECT_THAT(std::string(What(refused.status())), HasSubstr("another process"));
  EXPECT_FALSE(std::filesystem::exists(path_));
  close(holder);
  EXPECT_TRUE(
      PublishSelection(path_, plain_->catalog(), device_, Of(*plain_, Baseline(), 512), 0.05).ok());
}

}  // namespace
}  // namespace kvr
