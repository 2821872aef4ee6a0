// SPDX-License-Identifier: Apache-2.0
//
// The file system failing under the cache, one call at a time: callers get the right binary all the
// same, nothing half-written becomes visible, and nothing is left behind.
#include <errno.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <algorithm>
#include <functional>
#include <map>

#include "jit/cache_layer.h"
#include "tests/jit/cache_fixtures.h"

namespace kvr {
namespace {

using testing::HasSubstr;

// The real files, but for the calls that a test makes fail.
class FaultyFiles : public CacheFiles {
 public:
  // From its `skip`-th call on, `call` fails with `error`, `times` times.
  void Fail(const std::string& call, int error, int skip = 0, int times = 1 << 30) {
    const std::lock_guard<std::mutex> lock(mutex_);
    faults_[call] = {error, skip, times};
  }
  void Heal() {
    const std::lock_guard<std::mutex> lock(mutex_);
    faults_.clear();
  }
  size_t most_read = size_t{1} << 40;  // no read gives more
  std::function<void()> before_rename;

  int Open(const char* path, int flags, mode_t mode) override {
    const bool writes = (flags & O_ACCMODE) != O_RDONLY;
    const bool lock = std::string_view(path).substr(std::string_view(path).size() - 4) == "lock";
    return Fails(lock     ? "open lock"
                 : writes ? "create"
                          : "open")
               ? -1
               : CacheFiles::Open(path, flags, mode);
  }
  ssize_t Read(int fd, void* to, size_t size) override {
    return Fails("read") ? -1 : CacheFiles::Read(fd, to, std::min(size, most_read));
  }
  ssize_t Write(int fd, const void* from, size_t size) override {
    // A disk that fills takes some bytes first.
    return Fails("write") ? -1 : CacheFiles::Write(fd, from, std::min(size, size_t{64}));
  }
  int Sync(int fd) override { return Fails("sync") ? -1 : CacheFiles::Sync(fd); }
  int Rename(const char* from, const char* to) override {
    if (before_rename != nullptr) before_rename();
    return Fails("rename") ? -1 : CacheFiles::Rename(from, to);
  }
  int Unlink(const char* path) override { return Fails("unlink") ? -1 : CacheFiles::Unlink(path); }
  int MakeDirectory(const char* path) override {
    return Fails("mkdir") ? -1 : CacheFiles::MakeDirectory(path);
  }
  int LockByte(int fd, int64_t offset) override {
    return Fails("lock") ? -1 : CacheFiles::LockByte(fd, offset);
  }

 private:
  struct Fault {
    int error, skip, times;
  };
  bool Fails(const std::string& call) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto it = faults_.find(call);
    if (it == faults_.end()) return false;
    Fault& fault = it->second;
    if (fault.skip-- > 0 || fault.times-- <= 0) return false;
    errno = fault.error;
    return true;
  }
  std::mutex mutex_;
  std::map<std::string, Fault> faults_;
};

class CacheFaults : public testing::Test {
 protected:
  CacheOptions Options() {
    CacheOptions options;
    options.root = dir_ / "cache";
    options.files = &files_;
    options.warn = [this](std::string_view text) { warnings_.emplace_back(text); };
    return options;
  }
  // Builds config 0 and expects the right binary, whatever the files do.
  Built ExpectRight(BinaryCache& cache, const std::string& what) {
    CountingJit parts(std::make_unique<CountingCompiler>(), &cache);
    const absl::StatusOr<Built> built = BuildNumber(*parts.jit, 0);
    EXPECT_TRUE(built.ok()) << what << ": " << built.status();
    if (!built.ok()) return {};
    EXPECT_THAT(built->binary->bytes, HasSubstr(BlockOf(0))) << what;
    return *built;
  }
  int Regular() {
    int count = 0;
    if (!std::filesystem::exists(dir_ / "cache")) return 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_ / "cache")) {
      const std::string name = entry.path().filename();
      count += entry.is_regular_file() && name != "lock" && name != "trimmed";
    }
    return count;
  }
  FastDir dir_;
  FaultyFiles files_;
  std::vector<std::string> warnings_;
};

TEST_F(CacheFaults, AFullDiskAtEveryStepLeavesNothingAndServesFromMemory) {
  const struct {
    const char* call;
    int skips;  // try the first, the second ... call
  } steps[] = {{"mkdir", 4}, {"create", 1}, {"write", 8}, {"sync", 1}, {"rename", 1}};
  for (const int error : {ENOSPC, EROFS, EDQUOT, EACCES}) {
    for (const auto& step : steps) {
      for (int skip = 0; skip < step.skips; ++skip) {
        const std::string what = std::string(step.call) + " " + std::to_string(skip);
        std::filesystem::remove_all(dir_ / "cache");
        warnings_.clear();
        files_.Heal();
        BinaryCache cache(Options());
        files_.Fail(step.call, error, skip);
        const Built first = ExpectRight(cache, what);
        EXPECT_EQ(ExpectRight(cache, what).binary, first.binary) << what << ": from memory";
        EXPECT_EQ(Regular(), 0) << what << ": left behind";
        EXPECT_FALSE(cache.on_disk()) << what;
        EXPECT_EQ(std::count_if(warnings_.begin(), warnings_.end(),
                                [](const std::string& text) {
                                  return text.find("KVR_CACHE_DIR") != std::string::npos;
                                }),
                  1)
            << what;
      }
    }
  }
}

TEST_F(CacheFaults, WhatANetworkFileSystemSaysInPassingIsTriedOnceMore) {
  for (const int error : {ESTALE, EIO, ENOENT}) {
    for (const char* call : {"create", "write", "sync", "rename"}) {
      std::filesystem::remove_all(dir_ / "cache");
      files_.Heal();
      BinaryCache cache(Options());
      files_.Fail(call, error, 0, 1);
      ExpectRight(cache, call);
      EXPECT_TRUE(cache.on_disk()) << call << " " << strerror(error);
      EXPECT_EQ(cache.stats().written, 1) << call;
      EXPECT_EQ(Regular(), 1) << call;
      files_.Fail(call, error);  // and for good
      std::filesystem::remove_all(dir_ / "cache");
      BinaryCache broken(Options());
      ExpectRight(broken, call);
      EXPECT_FALSE(broken.on_disk()) << call;
      EXPECT_EQ(Regular(), 0) << call;
    }
  }
  EXPECT_TRUE(std::all_of(warnings_.begin(), warnings_.end(), [](const std::string& text) {
    return text.find("cannot be written") != std::string::npos;
  }));
}

TEST_F(CacheFaults, ADirectoryRemovedUnderTheWriterIsMadeAgain) {
  BinaryCache cache(Options());
  bool removed = false;
  files_.before_rename = [&] {
    if (!std::exchange(removed, true)) std::filesystem::remove_all(dir_ / "cache");
  };
  ExpectRight(cache, "removed");
  EXPECT_TRUE(removed);
  EXPECT_TRUE(cache.on_disk());
  EXPECT_EQ(Regular(), 1);
}

TEST_F(CacheFaults, ShortReadsGiveTheWholeEntry) {
  auto binary = SomeBinary("a", 5000);
  BinaryCache(Options()).Put(binary, "");
  for (const size_t most : {1, 7, 4096}) {
    files_.most_read = most;
    const BinaryPtr got = BinaryCache(Options()).Get(binary->key);
    ASSERT_NE(got, nullptr) << most;
    EXPECT_EQ(got->bytes, binary->bytes);
  }
}

TEST_F(CacheFaults, AnErrorWhileReadingIsAMissAndCondemnsNoEntry) {
  ExpectRight(*std::make_unique<BinaryCache>(Options()), "fill");
  const auto expect_miss = [&](const char* call, int error) {
    BinaryCache cache(Options());
    files_.Fail(call, error);
    EXPECT_FALSE(ExpectRight(cache, call).cache_hit);
    files_.Heal();
    EXPECT_EQ(cache.stats().quarantined, 0) << call;
    EXPECT_TRUE(ExpectRight(*std::make_unique<BinaryCache>(Options()), "healed").cache_hit);
  };
  for (const int error : {EIO, ESTALE}) expect_miss("read", error);
  for (const int error : {EMFILE, ENFILE, EACCES, EIO}) expect_miss("open", error);
}

TEST_F(CacheFaults, ALockThatCannotBeHadChangesNothingAndIsSaidOnce) {
  const struct {
    const char* call;
    int error;
  } faults[] = {{"open lock", EACCES}, {"open lock", EROFS}, {"open lock", ENOENT},
                {"lock", ENOLCK},      {"lock", EINVAL},     {"lock", EBADF}};
  for (const auto& fault : faults) {
    std::filesystem::remove_all(dir_ / "cache");
    warnings_.clear();
    files_.Heal();
    files_.Fail(fault.call, fault.error);
    BinaryCache cache(Options());
    CountingJit parts(std::make_unique<CountingCompiler>(), &cache);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(BuildNumber(*parts.jit, i).ok());
    EXPECT_THAT(warnings_, testing::ElementsAre(HasSubstr("without it"))) << fault.call;
    EXPECT_EQ(cache.stats().lock_failures, 3);
    EXPECT_EQ(cache.stats().written, 3);
  }
}

TEST_F(CacheFaults, ALockHeldTooLongIsWaitedForOnce) {
  CacheOptions options = Options();
  options.lock_wait = std::chrono::milliseconds(30);
  BinaryCache cache(options);
  std::vector<Fingerprint> keys;
  std::vector<std::unique_ptr<KeyLock>> held;
  CountingJit parts(std::make_unique<CountingCompiler>(), &cache);
  for (int i = 0; i < 3; ++i) {
    const auto key =
        parts.jit->Key(ScaleOp(), ScaleVariant(), {{"BLOCK", 32 + i}, {"UNROLL", 1}}, "host");
    ASSERT_TRUE(key.ok());
    held.push_back(std::make_unique<KeyLock>(CacheFiles::System(), dir_ / "cache/v2", *key,
                                             std::chrono::milliseconds(0)));
    ASSERT_EQ(held.back()->outcome(), KeyLock::Outcome::kHeld);
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(BuildNumber(*parts.jit, i).ok());
  EXPECT_EQ(parts.compiler->compiles(), 3);
  EXPECT_EQ(cache.stats().lock_failures, 3);
  EXPECT_THAT(warnings_, testing::ElementsAre(HasSubstr("held by another process")));
  // The same key again, free now, is locked again.
  held.clear();
  BinaryPtr published;
  EXPECT_NE(cache.Claim(FingerprintOf("free"), &published), nullptr);
}

TEST_F(CacheFaults, LocksOfDifferentKeysDoNotMeet) {
  const auto take = [&](const std::string& seed) {
    return std::make_unique<KeyLock>(CacheFiles::System(), dir_ / "cache/v2", FingerprintOf(seed),
                                     std::chrono::milliseconds(0));
  };
  auto first = take("a");
  EXPECT_EQ(first->outcome(), KeyLock::Outcome::kHeld);
  EXPECT_EQ(take("b")->outcome(), KeyLock::Outcome::kHeld);
  EXPECT_EQ(take("a")->outcome(), KeyLock::Outcome::kTimedOut);
  first.reset();
  EXPECT_EQ(take("a")->outcome(), KeyLock::Outcome::kHeld);
}

TEST_F(CacheFaults, AQuarantineThatCannotBeMadeIsStillAMissThatHeals) {
  const Built built = ExpectRight(*std::make_unique<BinaryCache>(Options()), "fill");
  const std::string path = BinaryCache(Options()).PathOf(built.binary->key);
  WriteFile(path, "garbage");
  WriteFile(dir_ / "cache/quarantine", "a file in its place");
  BinaryCache cache(Options());
  EXPECT_FALSE(ExpectRight(cache, "no quarantine").cache_hit);
  EXPECT_EQ(cache.stats().quarantined, 0);
  EXPECT_TRUE(ExpectRight(*std::make_unique<BinaryCache>(Options()), "healed").cache_hit);
}

TEST_F(CacheFaults, ARealFullDisk) {
  const std::string mount_point = dir_ / "small";
  std::filesystem::create_directory(mount_point);
  if (mount("tmpfs", mount_point.c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "mounting takes root: " << strerror(errno);
  }
  {
    CacheOptions options = Options();
    options.root = mount_point + "/cache";
    options.files = nullptr;
    BinaryCache cache(options);
    std::vector<BinaryPtr> put;
    for (int i = 0; i < 8; ++i) {
      put.push_back(SomeBinary(std::to_string(i), 20000));
      cache.Put(put.back(), "");
    }
    EXPECT_GT(cache.stats().written, 0);
    EXPECT_EQ(cache.stats().write_failures, 1) << "then it no longer tries";
    EXPECT_THAT(warnings_, testing::ElementsAre(HasSubstr("No space left")));
    for (const BinaryPtr& binary : put) EXPECT_NE(cache.Get(binary->key), nullptr);
    BinaryCache fresh(options);
    for (const BinaryCache::Info& info : fresh.List()) EXPECT_TRUE(info.valid());
    EXPECT_EQ(static_cast<int64_t>(fresh.List().size()), cache.stats().written);
  }
  umount(mount_point.c_str());
}

TEST_F(CacheFaults, AReadOnlyFileSystemServesWhatItHas) {
  const std::string mount_point = dir_ / "sealed";
  std::filesystem::create_directory(mount_point);
  if (mount("tmpfs", mount_point.c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "mounting takes root: " << strerror(errno);
  }
  {
    CacheOptions options = Options();
    options.root = mount_point + "/cache";
    options.files = nullptr;
    const Built built = ExpectRight(*std::make_unique<BinaryCache>(options), "fill");
    const std::string path = BinaryCache(options).PathOf(built.binary->key);
    ASSERT_EQ(mount("", mount_point.c_str(), "", MS_REMOUNT | MS_RDONLY, ""), 0) << errno;
    BinaryCache cache(options);
    EXPECT_TRUE(ExpectRight(cache, "sealed").cache_hit);
    EXPECT_THAT(warnings_, testing::IsEmpty()) << "nothing was to be written";
    CountingJit parts(std::make_unique<CountingCompiler>(), &cache);
    EXPECT_TRUE(BuildNumber(*parts.jit, 1).ok());
    EXPECT_FALSE(cache.on_disk());
    EXPECT_EQ(warnings_.size(), 2u) << "the lock and the entry";
  }
  umount(mount_point.c_str());
}

}  // namespace
}  // namespace kvr
