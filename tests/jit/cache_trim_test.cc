// SPDX-License-Identifier: Apache-2.0
//
// The user's directory within its size: who goes first, who never goes, and what recency costs.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/jit/cache_fixtures.h"

namespace kvr {
namespace {

constexpr int64_t kHour = 3600, kDay = 86400;

void SetAge(const std::string& path, int64_t read_ago, int64_t written_ago) {
  const int64_t now = time(nullptr);
  const struct timespec times[2] = {{now - read_ago, 0}, {now - written_ago, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}
int64_t ReadAgo(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? time(nullptr) - info.st_atim.tv_sec : -1;
}

class CacheTrim : public testing::Test {
 protected:
  CacheOptions Options(int64_t max_bytes) {
    CacheOptions options;
    options.root = dir_.path();
    options.max_bytes = max_bytes;
    return options;
  }
  // An entry of about `size` bytes, last used `age` seconds ago.
  Fingerprint Add(const std::string& seed, size_t size, int64_t age) {
    auto binary = SomeBinary(seed, size);
    BinaryCache cache(Options(0));
    cache.Put(binary, "op/" + seed + " {}");
    SetAge(cache.PathOf(binary->key), age, age);
    return binary->key;
  }
  bool Has(const Fingerprint& key) {
    return std::filesystem::exists(BinaryCache(dir_.path()).PathOf(key));
  }
  int64_t Total() {
    int64_t total = 0;
    for (const EntryFile& file : BinaryCache(dir_.path()).store().Files()) total += file.bytes;
    return total;
  }
  FastDir dir_;
};

TEST_F(CacheTrim, TheFirstPutOfAProcessRemovesWhatWasUsedLongestAgo) {
  const Fingerprint old = Add("old", 40000, 5 * kDay), recent = Add("recent", 40000, kHour),
                    oldest = Add("oldest", 40000, 9 * kDay);
  BinaryCache cache(Options(100000));
  auto fresh = SomeBinary("new", 20000);
  cache.Put(fresh, "");
  EXPECT_FALSE(Has(oldest));
  EXPECT_FALSE(Has(old)) << "to a sixteenth below the limit";
  EXPECT_TRUE(Has(recent));
  EXPECT_TRUE(Has(fresh->key));
  EXPECT_EQ(cache.stats().trimmed, 2);
}

TEST_F(CacheTrim, OneLookAnHourIsEnoughForAllProcesses) {
  BinaryCache(Options(100000)).Put(SomeBinary("first", 10), "");
  const Fingerprint old = Add("old", 200000, kDay);
  BinaryCache(Options(100000)).Put(SomeBinary("second", 10), "");
  EXPECT_TRUE(Has(old)) << "somebody has just looked";
  SetAge(dir_ / "v2/trimmed", 2 * kHour, 2 * kHour);
  BinaryCache(Options(100000)).Put(SomeBinary("third", 10), "");
  EXPECT_FALSE(Has(old));
}

TEST_F(CacheTrim, AWriterStaysWithinTheLimitByItself) {
  BinaryCache cache(Options(1 << 20));
  for (int i = 0; i < 100; ++i) {
    auto binary = SomeBinary(std::to_string(i), 40000);
    cache.Put(binary, "");
    SetAge(cache.PathOf(binary->key), 1000 - i, 1000 - i);  // the last minute's would be spared
    EXPECT_LE(Total(), (1 << 20) + 50000) << i;
  }
  EXPECT_GT(cache.stats().trimmed, 50);
  EXPECT_TRUE(Has(FingerprintOf("99")));
  EXPECT_FALSE(Has(FingerprintOf("0")));
}

TEST_F(CacheTrim, WhatWasUsedInTheLastMinuteIsSpared) {
  BinaryCache cache(Options(1000));
  for (int i = 0; i < 5; ++i) cache.Put(SomeBinary(std::to_string(i), 5000), "");
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Has(FingerprintOf(std::to_string(i)))) << i;
}

TEST_F(CacheTrim, NoLimitRemovesNothing) {
  const Fingerprint old = Add("old", 40000, 500 * kDay);
  BinaryCache cache(Options(0));
  cache.Put(SomeBinary("new"), "");
  EXPECT_TRUE(Has(old));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "v2/trimmed"));
}

TEST_F(CacheTrim, AHitCountsAsUseAtMostOnceADay) {
  class CountingFiles : public CacheFiles {
   public:
    int MarkUsed(const char* path) override {
      ++marks;
      return CacheFiles::MarkUsed(path);
    }
    int marks = 0;
  } files;
  const Fingerprint key = Add("a", 100, 0);
  CacheOptions options = Options(0);
  options.files = &files;
  const std::string path = BinaryCache(dir_.path()).PathOf(key);
  const auto use = [&] { ASSERT_NE(BinaryCache(options).Get(key), nullptr); };
  SetAge(path, 23 * kHour, 9 * kDay);
  use();
  EXPECT_EQ(files.marks, 0) << "no write for a hit";
  SetAge(path, 3 * kDay, 9 * kDay);
  EXPECT_EQ(BinaryCache(options).List().size(), 1u);
  EXPECT_GE(ReadAgo(path), 3 * kDay - 1) << "listing is no use";
  use();
  use();
  EXPECT_EQ(files.marks, 1);
  EXPECT_LT(ReadAgo(path), 100);
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_GE(time(nullptr) - info.st_mtim.tv_sec, 9 * kDay - 1) << "when it was written stays";
}

TEST_F(CacheTrim, TemporariesOfWritersThatDiedGoAndThoseAtWorkStay) {
  const Fingerprint key = Add("a", 100, 0);
  const EntryStore store(dir_.path(), CacheFiles::System());
  const std::string entry = store.PathOf(key);
  const std::string stale = entry + ".0123456789abcdef.tmp",
                    young = entry + ".fedcba9876543210.tmp";
  WriteFile(stale, "half");
  WriteFile(young, "half");
  SetAge(stale, 2 * kHour, 2 * kHour);
  SetAge(young, 50 * 60, 50 * 60);
  const Removed removed = store.Trim({});
  EXPECT_EQ(removed.temporaries, 1);
  EXPECT_FALSE(std::filesystem::exists(stale));
  EXPECT_TRUE(std::filesystem::exists(young));
  EXPECT_TRUE(Has(key));
}

TEST_F(CacheTrim, PrunesBySizeByAgeAndByKey) {
  const EntryStore store(dir_.path(), CacheFiles::System());
  const Fingerprint a = Add("a", 1000, 10 * kDay), b = Add("b", 1000, 5 * kDay),
                    c = Add("c", 1000, kDay);
  EXPECT_EQ(store.Trim({.unused_seconds = 7 * kDay}).entries.size(), 1u);
  EXPECT_FALSE(Has(a));
  TrimPolicy only{.max_bytes = 0};
  only.only = std::vector<Fingerprint>{c};
  EXPECT_EQ(store.Trim(only).entries.at(0).key, c);
  EXPECT_TRUE(Has(b));
  EXPECT_EQ(store.Trim({.max_bytes = 0}).entries.at(0).key, b);
  EXPECT_EQ(Total(), 0);
}

TEST_F(CacheTrim, ClearLeavesWhatTheCacheDidNotMake) {
  const Fingerprint key = Add("a", 100, 0), damaged = Add("b", 100, 0);
  WriteFile(BinaryCache(dir_.path()).PathOf(damaged), "garbage");
  EXPECT_EQ(BinaryCache(dir_.path()).Get(damaged), nullptr);
  WriteFile(dir_ / "v2/aa/README", "mine");
  WriteFile(dir_ / "notes", "mine");
  EXPECT_EQ(BinaryCache(dir_.path()).store().Clear().entries.size(), 1u);
  EXPECT_FALSE(Has(key));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "quarantine"));
  EXPECT_TRUE(std::filesystem::exists(dir_ / "v2/aa/README"));
  EXPECT_TRUE(std::filesystem::exists(dir_ / "notes"));
}

}  // namespace
}  // namespace kvr
