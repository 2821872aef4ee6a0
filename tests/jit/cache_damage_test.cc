// SPDX-License-Identifier: Apache-2.0
//
// Whatever lies where an entry should: a miss, moved aside, said once, and the right binary is
// compiled and stored in its place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>

#include "tests/jit/cache_fixtures.h"

namespace kvr {
namespace {

using testing::HasSubstr;

class CacheDamage : public testing::Test {
 protected:
  CacheDamage() {
    BinaryCache cache(dir_.path());
    CountingJit first(std::make_unique<CountingCompiler>(), &cache);
    const absl::StatusOr<Built> built = BuildNumber(*first.jit, 0);
    EXPECT_TRUE(built.ok()) << built.status();
    right_ = built->binary->bytes;
    path_ = cache.PathOf(built->binary->key);
    whole_ = ReadFile(path_);
    EXPECT_GT(whole_.size(), 300u);
  }

  // What lies at path_ now is damaged: builds in another process's eyes, twice.
  void ExpectHealed(const std::string& what) {
    std::vector<std::string> warnings;
    const auto build = [&](BinaryCache& cache) {
      CountingJit parts(std::make_unique<CountingCompiler>(), &cache);
      const absl::StatusOr<Built> built = BuildNumber(*parts.jit, 0);
      ASSERT_TRUE(built.ok()) << what << ": " << built.status();
      EXPECT_EQ(built->binary->bytes, right_) << what;
      compiles_ += parts.compiler->compiles();
    };
    compiles_ = 0;
    BinaryCache cache(dir_.path(), [&](std::string_view text) { warnings.emplace_back(text); });
    build(cache);
    EXPECT_EQ(compiles_, 1) << what;
    EXPECT_EQ(cache.stats().corrupt, 1) << what;
    EXPECT_EQ(cache.stats().quarantined, 1) << what;
    EXPECT_THAT(warnings, testing::ElementsAre(HasSubstr("quarantine"))) << what;
    BinaryCache again(dir_.path());
    build(again);
    EXPECT_EQ(compiles_, 1) << what << ": stored again";
    EXPECT_EQ(ReadFile(path_), whole_) << what;
  }
  std::vector<std::string> Quarantined() { return NamesIn(dir_ / "quarantine"); }

  FastDir dir_;
  std::string right_, path_, whole_;
  int compiles_ = 0;
};

TEST_F(CacheDamage, TruncatedToAnyLengthClass) {
  const size_t all = whole_.size(), footer = 80, binary = right_.size();
  for (const size_t size :
       {size_t{0}, size_t{1}, footer - 1, footer, footer + 1, binary - 1, binary, binary + 1,
        all / 2, all - footer - 1, all - footer, all - footer + 8, all - 17, all - 16, all - 1}) {
    WriteFile(path_, whole_.substr(0, size));
    ExpectHealed("truncated to " + std::to_string(size));
  }
}

TEST_F(CacheDamage, OneBitFlippedAtAThousandPlaces) {
  std::mt19937 random(7);
  for (int i = 0; i < 1000; ++i) {
    std::string damaged = whole_;
    const size_t bit = random() % (whole_.size() * 8);
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    WriteFile(path_, damaged);
    ExpectHealed("bit " + std::to_string(bit));
    if (HasFailure()) break;
  }
  EXPECT_EQ(Quarantined().size(), kQuarantined) << "bounded";
}

TEST_F(CacheDamage, GrownOrForeign) {
  for (const std::string& content :
       {whole_ + "x", whole_ + whole_, std::string("#!/bin/sh\n"), std::string(5000, '\0')}) {
    WriteFile(path_, content);
    ExpectHealed("foreign, " + std::to_string(content.size()) + " bytes");
  }
  EXPECT_EQ(ReadFile(dir_ / "quarantine/" + Quarantined().front()), whole_ + "x")
      << "kept for people to look at";
}

TEST_F(CacheDamage, SomethingThatIsNoFile) {
  std::filesystem::remove(path_);
  std::filesystem::create_directories(path_ + "/inside/it");
  WriteFile(path_ + "/inside/it/file", "somebody's");
  ExpectHealed("a directory");
  EXPECT_EQ(ReadFile(dir_ / "quarantine/" + Quarantined().front() + "/inside/it/file"),
            "somebody's");
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  ExpectHealed("a pipe that nobody writes");
  std::filesystem::rename(path_, dir_ / "elsewhere");
  ASSERT_EQ(symlink((dir_ / "elsewhere").c_str(), path_.c_str()), 0);
  ExpectHealed("a link to a good entry");
  EXPECT_EQ(ReadFile(dir_ / "elsewhere"), whole_) << "what it pointed to is untouched";
  std::filesystem::remove(path_);
  ASSERT_EQ(symlink("nowhere", path_.c_str()), 0);
  ExpectHealed("a link to nothing");
}

TEST_F(CacheDamage, LargerThanAnyEntry) {
  ASSERT_EQ(truncate(path_.c_str(), int64_t{1} << 42), 0);  // sparse
  ExpectHealed("4 TiB");
}

TEST_F(CacheDamage, IsSaidOnceHoweverMuchThereIs) {
  BinaryCache filled(dir_.path());
  CountingJit first(std::make_unique<CountingCompiler>(), &filled);
  for (int i = 0; i < 8; ++i) {
    const Fingerprint key = (*BuildNumber(*first.jit, i)).binary->key;
    WriteFile(filled.PathOf(key), "");
  }
  int warnings = 0;
  BinaryCache cache(dir_.path(), [&](std::string_view) { ++warnings; });
  CountingJit second(std::make_unique<CountingCompiler>(), &cache);
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(BuildNumber(*second.jit, i).ok());
  EXPECT_EQ(warnings, 1);
  EXPECT_EQ(cache.stats().quarantined, 8);
}

TEST_F(CacheDamage, AGoodEntryThatReplacedTheDamagedOneStays) {
  const EntryStore store(dir_.path(), CacheFiles::System());
  BinaryCache cache(dir_.path());
  const Fingerprint key = cache.List().at(0).key;
  WriteFile(path_, "garbage");
  const CacheEntry damaged = store.Read(key, true);
  ASSERT_EQ(damaged.binary, nullptr);
  ASSERT_EQ(store.Write(key, whole_), 0);  // another process was faster
  EXPECT_FALSE(store.Quarantine(key, damaged));
  EXPECT_NE(cache.Get(key), nullptr);
}

// The root's own name is nothing special.
TEST(CachePaths, MayBeLongSpacedAndNotAscii) {
  for (const std::string& name :
       {std::string("with space"), std::string("grüße-日本語-кэш"), std::string("new\nline"),
        std::string(200, 'x'), "deep/" + std::string(150, 'y') + "/" + std::string(200, 'z')}) {
    FastDir dir;
    auto binary = SomeBinary("a");
    BinaryCache(dir / name).Put(binary, "op/v {}");
    BinaryCache cache(dir / name);
    EXPECT_NE(cache.Get(binary->key), nullptr) << name;
    EXPECT_EQ(cache.List().size(), 1u) << name;
    BinaryPtr published;
    EXPECT_NE(cache.Claim(FingerprintOf("b"), &published), nullptr) << name;
    WriteFile(cache.PathOf(binary->key), "damaged");
    EXPECT_EQ(BinaryCache(dir / name).Get(binary->key), nullptr) << name;
    EXPECT_EQ(cache.store().Quarantined().size(), 1u) << name;
  }
}

}  // namespace
}  // namespace kvr
