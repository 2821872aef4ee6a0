// SPDX-License-Identifier: Apache-2.0
//
// What the watcher tells of, and what it keeps to itself: editors' ways of saving, half-written and
// temporary files, symlinks, directories that go and come.
#include "tuner/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "core/status.h"

namespace kvr {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kRest = absl::Milliseconds(250);

class WatchTest : public ::testing::Test {
 protected:
  WatchTest() {
    std::string pattern = ::testing::TempDir() + "/kvr-watch-XXXXXX";
    root_ = fs::canonical(mkdtemp(pattern.data()));
    fs::create_directory(root_ / "bundles");
    auto watcher = Watcher::Create(
        kRest, [this](const Watcher::Place& place) { Told(place); },
        [this](const Watcher::Place& place) {
          const std::lock_guard<std::mutex> lock(mutex_);
          return broken_ != place.path;
        });
    EXPECT_TRUE(watcher.ok()) << watcher.status();
    watcher_ = *std::move(watcher);
  }
  ~WatchTest() override {
    watcher_.reset();
    fs::remove_all(root_);
  }

  void Told(const Watcher::Place& place) {
    const std::lock_guard<std::mutex> lock(mutex_);
    told_.push_back(fs::path(place.path).filename().string());
    any_.notify_all();
  }
  // What was told up to, and including, `name`.
  std::vector<std::string> ToldUntil(const std::string& name) {
    std::unique_lock<std::mutex> lock(mutex_);
    EXPECT_TRUE(any_.wait_for(lock, std::chrono::minutes(30),
                              [&] { return std::count(told_.begin(), told_.end(), name) > 0; }))
        << name << " was never told";
    return std::exchange(told_, {});
  }
  void Break(const std::string& path) {
    const std::lock_guard<std::mutex> lock(mutex_);
    broken_ = path;
  }

  fs::path Bundle(const std::string& name) const { return root_ / "bundles" / name; }
  // In one step: a file that is opened and not written yet may rest so, however short it was to be.
  static void Write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    const fs::path hidden = path.parent_path() / ".new";
    std::ofstream(hidden) << text;
    fs::rename(hidden, path);
  }
  // False: this thread was held up for so long that nothing can be said of how they are told.
  static bool Within(absl::Duration limit, absl::FunctionRef<void()> edits) {
    const absl::Time start = absl::Now();
    edits();
    return absl::Now() - start < limit;
  }
  // A change that is always told: whatever was to be told before it has been.
  std::vector<std::string> ToldBeforeMarker() {
    static std::atomic<int> count{0};
    const std::string name = "zz-marker-" + std::to_string(count++);
    Write(Bundle(name) / "variant.toml", "marker");
    std::vector<std::string> told = ToldUntil(name);
    told.pop_back();
    return told;
  }

  fs::path root_;
  std::unique_ptr<Watcher> watcher_;
  std::mutex mutex_;
  std::condition_variable any_;
  std::vector<std::string> told_;
  std::string broken_;
};

TEST_F(WatchTest, AnEditedBundleIsToldOnceAndWhatWasThereBeforeIsNot) {
  Write(Bundle("w8") / "variant.toml", "one");
  Write(Bundle("w8") / "w8.cu", "code");
  Write(Bundle("other") / "variant.toml", "other");
  ASSERT_TRUE(watcher_->AddDirectory(root_ / "bundles").ok());
  Write(Bundle("w8") / "w8.cu", "other code");
  EXPECT_THAT(ToldUntil("w8"), ElementsAre("w8"));
  EXPECT_THAT(ToldBeforeMarker(), IsEmpty());
}

TEST_F(WatchTest, ManyEditsAtOnceAreOne) {
  Write(Bundle("w8") / "variant.toml", "one");
  ASSERT_TRUE(watcher_->AddDirectory(root_ / "bundles").ok());
  int text = 0;
  const auto edit = [&] {
    for (int i = 0; i < 20; ++i) std::ofstream(Bundle("w8") / "w8.cu") << ++text;  // in place
  };
  while (!Within(kRest, edit)) ToldBeforeMarker();
  ToldUntil("w8");
  EXPECT_THAT(ToldBeforeMarker(), IsEmpty());
}

TEST_F(WatchTest, TheSameContentAgainIsNothing) {
  Write(Bundle("w8") / "variant.toml", "one");
  ASSERT_TRUE(watcher_->AddDirectory(root_ / "bundles").ok());
  Write(Bundle("w8") / "variant.toml", "one");
  fs::last_write_time(Bundle("w8") / "variant.toml", fs::file_time_type::clock::now());
  EXPECT_THAT(ToldBeforeMarker(), IsEmpty());
}

TEST_F(WatchTest, EditorsReplaceFilesAndLeaveOthersBesideThem) {
  Write(Bundle("w8") / "variant.toml", "one");
  ASSERT_TRUE(watcher_->AddDirectory(root_ / "bundles").ok());
  for (const char* name : {".w8.cu.swp", "4913", "#w8.cu#", "w8.cu~", "w8.cu.tmp.17"}) {
    Write(Bundle("w8") / name, "temporary");
  }
  EXPECT_THAT(ToldBeforeMarker(), IsEmpty());
  // Aside and renamed, with the old one kept under another name.
  Write(Bundle("w8") / ".variant.toml.new", "two");
  fs::rename(Bundle("w8") / "variant.toml", Bundle("w8") / "variant.toml~");
  fs::rename(Bundle("w8") / ".variant.toml.new", Bundle("w8") / "variant.toml");
  EXPECT_THAT(ToldUntil("w8"), ElementsAre("w8"));
}

TEST_F(WatchTest, WhatDoesNotParseWaitsForItsOtherHalf) {
  ASSERT_TRUE(watcher_->AddDirectory(root_ / "bundles").ok());
  std::string name = "w8";
  std::vector<std::string> told;
  const auto write_half = [&] {
    Break(Bundle(name));
    Write(Bundle(name) / "variant.toml", "half");
    told = ToldBeforeMarker();
  };
  while (!Within(8 * kRest, write_half)) {
    if (std::count(told.begin(), told.end(), name) == 0) ToldUntil(name);
    name += "x";
  }
  EXPECT_THAT(told, IsEmpty());
  Write(Bundle(name) / "variant.toml", "half and half");
  Break("");
  EXPECT_THAT(ToldUntil(name), ElementsAre(name));
}

TEST_F(WatchTest, WhatNeverParsesIsToldInTheEnd) {
  ASSERT_TRUE(watcher_->AddDirectory(root_ / "bundles").ok());
  Break(Bundle("w8"));
  Write(Bundle("w8") / "variant.toml", "wrong");
  EXPECT_THAT(ToldUntil("w8"), ElementsAre("w8"));
}

TEST_F(WatchTest, SymlinksOutOfTheDirectoryAreNotFollowed) {
  Write(root_ / "elsewhere" / "variant.toml", "one");
  ASSERT_TRUE(watcher_->AddDirectory(root_ / "bundles").ok());
  fs::create_directory_symlink(root_ / "elsewhere", Bundle("link"));
  Write(root_ / "elsewhere" / "variant.toml", "two");
  EXPECT_THAT(ToldBeforeMarker(), IsEmpty());
}

TEST_F(WatchTest, NorAreThoseOutOfABundle) {
  Write(root_ / "elsewhere" / "weights.h", "one");
  Write(Bundle("w8") / "variant.toml", "one");
  fs::create_symlink(root_ / "elsewhere" / "weights.h", Bundle("w8") / "weights.h");
  ASSERT_TRUE(watcher_->AddDirectory(root_ / "bundles").ok());
  Write(root_ / "elsewhere" / "weights.h", "two");
  EXPECT_THAT(ToldBeforeMarker(), IsEmpty());
}

TEST_F(WatchTest, APipeIsNotReadAndTheFileInItsPlaceIs) {
  const fs::path path = root_ / "selections.json";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  ASSERT_TRUE(watcher_->AddFile(path).ok());
  fs::remove(path);
  Write(path, "one");
  EXPECT_THAT(ToldUntil("selections.json"), ElementsAre("selections.json"));
}

TEST_F(WatchTest, ADirectoryMayGoAndComeBack) {
  Write(Bundle("w8") / "variant.toml", "one");
  ASSERT_TRUE(watcher_->AddDirectory(root_ / "bundles").ok());
  fs::remove_all(root_ / "bundles");
  absl::SleepFor(4 * kRest);
  Write(Bundle("w8") / "variant.toml", "one");
  EXPECT_THAT(ToldBeforeMarker(), IsEmpty());
  fs::remove_all(root_ / "bundles");
  Write(Bundle("w8") / "variant.toml", "two");
  EXPECT_THAT(ToldUntil("w8"), ElementsAre("w8"));
}

TEST_F(WatchTest, LibrariesAreToldAsWhatTheyAre) {
  ASSERT_TRUE(watcher_->AddDirectory(root_ / "bundles").ok());
  Write(root_ / "bundles" / "libx.so", "an ELF file, say");
  EXPECT_THAT(ToldUntil("libx.so"), ElementsAre("libx.so"));
}

TEST_F(WatchTest, AFileIsToldWhenItComesAndWhenItIsReplaced) {
  ASSERT_TRUE(watcher_->AddDirectory(root_ / "bundles").ok());
  const fs::path file = root_ / "h200.json";
  ASSERT_TRUE(watcher_->AddFile(file).ok());
  Write(file, "one");
  EXPECT_THAT(ToldUntil("h200.json"), ElementsAre("h200.json"));
  const auto replace = [&](const std::string& text) {
    Write(root_ / "h200.json.tmp.1", text);
    fs::rename(root_ / "h200.json.tmp.1", file);
  };
  replace("one");
  EXPECT_THAT(ToldBeforeMarker(), IsEmpty());
  replace("two");
  EXPECT_THAT(ToldUntil("h200.json"), ElementsAre("h200.json"));
}

TEST_F(WatchTest, WhatPluginsMayNotComeFromIsRefused) {
  EXPECT_FALSE(watcher_->AddDirectory(root_ / "nowhere").ok());
  Write(root_ / "file", "no directory");
  EXPECT_FALSE(watcher_->AddDirectory(root_ / "file").ok());
  ASSERT_EQ(chmod((root_ / "bundles").c_str(), 0777), 0);
  const absl::Status status = watcher_->AddDirectory(root_ / "bundles");
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_THAT(std::string(Fix(status)), HasSubstr("chmod"));
  EXPECT_FALSE(watcher_->AddFile(root_ / "nowhere" / "h200.json").ok());
}

}  // namespace
}  // namespace kvr
