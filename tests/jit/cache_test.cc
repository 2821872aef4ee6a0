// SPDX-License-Identifier: Apache-2.0
#include "jit/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "tests/jit/cache_fixtures.h"

namespace kvr {
namespace {

void ExpectSame(const Binary& a, const Binary& b) {
  EXPECT_EQ(a.key, b.key);
  EXPECT_EQ(a.source, b.source);
  EXPECT_EQ(a.content, b.content);
  EXPECT_EQ(a.target, b.target);
  EXPECT_EQ(a.compiler, b.compiler);
  EXPECT_EQ(a.bytes, b.bytes);
  ASSERT_EQ(a.kernels.size(), b.kernels.size());
  for (size_t i = 0; i < a.kernels.size(); ++i) {
    EXPECT_EQ(a.kernels[i].entry, b.kernels[i].entry);
    EXPECT_EQ(a.kernels[i].symbol, b.kernels[i].symbol);
    EXPECT_EQ(a.kernels[i].resources.registers, b.kernels[i].resources.registers);
    EXPECT_EQ(a.kernels[i].resources.smem_static, b.kernels[i].resources.smem_static);
    EXPECT_EQ(a.kernels[i].resources.frame_bytes, b.kernels[i].resources.frame_bytes);
    EXPECT_EQ(a.kernels[i].resources.spill_bytes, b.kernels[i].resources.spill_bytes);
    EXPECT_EQ(a.kernels[i].resources.max_threads, b.kernels[i].resources.max_threads);
  }
}

TEST(BinaryCache, GivesBackWhatWasPutInAnotherProcessesEyes) {
  TempDir dir;
  auto binary = SomeBinary("a");
  BinaryCache(dir.path()).Put(binary, "op/v {X=1}");
  BinaryCache cache(dir.path());
  BinaryPtr got = cache.Get(binary->key);
  ASSERT_NE(got, nullptr);
  ExpectSame(*got, *binary);
  EXPECT_EQ(cache.stats().disk_hits, 1);
  EXPECT_EQ(cache.Get(binary->key), got) << "holders share one copy";
  EXPECT_EQ(cache.Get(FingerprintOf("other")), nullptr);
}

TEST(BinaryCache, KeepsItsEntriesWhenMoved) {
  TempDir dir;
  auto binary = SomeBinary("a");
  BinaryCache(dir / "one").Put(binary, "");
  std::filesystem::rename(dir / "one", dir / "two");
  EXPECT_NE(BinaryCache(dir / "two").Get(binary->key), nullptr);
}

TEST(BinaryCache, TreatsEveryTruncationAsAMiss) {
  TempDir dir;
  auto binary = SomeBinary("a");
  BinaryCache cache(dir.path());
  cache.Put(binary, "label");
  const std::string path = cache.PathOf(binary->key), whole = ReadFile(path);
  ASSERT_GT(whole.size(), 0u);
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_EQ(DecodeEntry(whole.substr(0, size), &binary->key), nullptr) << size;
  for (size_t size : {size_t{0}, size_t{1}, whole.size() / 2, whole.size() - 1}) {
    WriteFile(path, whole.substr(0, size));
    EXPECT_EQ(BinaryCache(dir.path()).Get(binary->key), nullptr) << size;
  }
  WriteFile(path, whole + "x");
  EXPECT_EQ(BinaryCache(dir.path()).Get(binary->key), nullptr);
  WriteFile(path, whole);
  EXPECT_NE(BinaryCache(dir.path()).Get(binary->key), nullptr);
}

TEST(BinaryCache, TreatsEveryFlippedBitAsAMiss) {
  auto binary = SomeBinary("a", 64);
  const std::string whole = EncodeEntry(*binary, "label");
  ASSERT_NE(DecodeEntry(whole, &binary->key), nullptr);
  for (size_t i = 0; i < whole.size() * 8; ++i) {
    std::string damaged = whole;
    damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ (1 << (i % 8)));
    EXPECT_EQ(DecodeEntry(damaged, &binary->key), nullptr) << i;
    EXPECT_EQ(DecodeEntry(damaged, nullptr), nullptr) << i;
  }
}

TEST(BinaryCache, RefusesAnEntryOfAnotherKey) {
  TempDir dir;
  auto a = SomeBinary("a"), b = SomeBinary("b");
  BinaryCache cache(dir.path());
  cache.Put(a, "");
  cache.Put(b, "");
  std::filesystem::copy_file(cache.PathOf(a->key), cache.PathOf(b->key),
                             std::filesystem::copy_options::overwrite_existing);
  BinaryCache fresh(dir.path());
  EXPECT_EQ(fresh.Get(b->key), nullptr);
  EXPECT_EQ(fresh.stats().corrupt, 1);
  fresh.Put(b, "");  // heals it
  EXPECT_NE(BinaryCache(dir.path()).Get(b->key), nullptr);
}

TEST(BinaryCache, RunsNobodyElsesCode) {
  TempDir dir;
  auto binary = SomeBinary("a");
  const std::string path = BinaryCache(dir.path()).PathOf(binary->key);
  const auto refuses = [&](const std::string& why, const std::function<int()>& spoil) {
    BinaryCache cache(dir.path());
    cache.Put(binary, "");
    ASSERT_EQ(BinaryCache(dir.path()).Get(binary->key)->bytes, binary->bytes);
    ASSERT_EQ(spoil(), 0) << why;
    std::string warning;
    BinaryCache fresh(dir.path(), [&](std::string_view text) { warning = text; });
    EXPECT_EQ(fresh.Get(binary->key), nullptr) << why;
    EXPECT_EQ(fresh.stats().quarantined, 1) << why;
    EXPECT_THAT(warning, testing::HasSubstr(why));
  };
  refuses("writable by others", [&] { return chmod(path.c_str(), 0666); });
  refuses("writable by others", [&] { return chmod(path.c_str(), 0646); });
  refuses("writable by its group", [&] { return chmod(path.c_str(), 0664); });
  refuses("a symbolic link", [&] {
    return rename(path.c_str(), (dir / "real").c_str()) +
           symlink((dir / "real").c_str(), path.c_str());
  });
  if (geteuid() == 0) {  // only root can give a file away
    refuses("belongs to user 12345", [&] { return chown(path.c_str(), 12345, 12345); });
  }
}

TEST(BinaryCache, WorksFromMemoryWhereItCannotWriteAndSaysSoOnce) {
  TempDir dir;
  WriteFile(dir / "file", "");  // a root that cannot be a directory, even for root
  int warnings = 0;
  BinaryCache cache(dir / "file/cache", [&](std::string_view text) {
    ++warnings;
    EXPECT_THAT(std::string(text), testing::HasSubstr("KVR_CACHE_DIR"));
  });
  auto a = SomeBinary("a"), b = SomeBinary("b");
  Fingerprint key_a = a->key, key_b = b->key;
  cache.Put(std::move(a), "");
  cache.Put(std::move(b), "");
  EXPECT_EQ(warnings, 1);
  EXPECT_FALSE(cache.on_disk());
  EXPECT_NE(cache.Get(key_a), nullptr);
  EXPECT_NE(cache.Get(key_b), nullptr);
}

TEST(BinaryCache, DegradesOnAFullDisk) {
  TempDir dir;
  // A file size limit fails the write half way, as a full disk does.
  rlimit saved{}, tight{};
  getrlimit(RLIMIT_FSIZE, &saved);
  tight = saved;
  tight.rlim_cur = 10;
  signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  int warnings = 0;
  BinaryCache cache(dir.path(), [&](std::string_view) { ++warnings; });
  auto binary = SomeBinary("a");
  cache.Put(binary, "");
  setrlimit(RLIMIT_FSIZE, &saved);
  EXPECT_EQ(warnings, 1);
  EXPECT_NE(cache.Get(binary->key), nullptr);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir.path()))
    EXPECT_FALSE(entry.is_regular_file()) << entry.path() << " was left behind";
}

TEST(BinaryCache, ListsWhatItHolds) {
  TempDir dir;
  BinaryCache cache(dir.path());
  auto binary = SomeBinary("a");
  cache.Put(binary, "op/v {X=1}");
  auto damaged = SomeBinary("b");
  cache.Put(damaged, "");
  WriteFile(cache.PathOf(damaged->key), "garbage");
  WriteFile(dir / "v2/aa/README", "not an entry");
  std::vector<BinaryCache::Info> list = cache.List();
  ASSERT_EQ(list.size(), 2u);
  const BinaryCache::Info& good = list[0].valid() ? list[0] : list[1];
  const BinaryCache::Info& bad = list[0].valid() ? list[1] : list[0];
  EXPECT_EQ(good.key, binary->key);
  EXPECT_EQ(good.label, "op/v {X=1}");
  EXPECT_EQ(good.bytes, 200);
  EXPECT_THAT(good.entries, testing::ElementsAre("k<1>", "m"));
  EXPECT_EQ(bad.key, damaged->key);
  EXPECT_FALSE(bad.valid());
}

TEST(BinaryCache, LosesNothingWhenManyWriteTheSameKeys) {
  TempDir dir;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      BinaryCache cache(dir.path());
      for (int i = 0; i < 16; ++i) cache.Put(SomeBinary(std::to_string(i)), "");
    });
  }
  for (std::thread& thread : threads) thread.join();
  BinaryCache cache(dir.path());
  for (int i = 0; i < 16; ++i) EXPECT_NE(cache.Get(FingerprintOf(std::to_string(i))), nullptr) << i;
  EXPECT_EQ(cache.List().size(), 16u);
}

TEST(DefaultCacheRoot, FollowsTheDocumentedOrder) {
  setenv("HOME", "/h", 1);
  unsetenv("XDG_CACHE_HOME");
  unsetenv("KVR_CACHE_DIR");
  EXPECT_EQ(DefaultCacheRoot(), "/h/.cache/kvr");
  setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(DefaultCacheRoot(), "/x/kvr");
  setenv("KVR_CACHE_DIR", "/k", 1);
  EXPECT_EQ(DefaultCacheRoot(), "/k");
}

}  // namespace
}  // namespace kvr
