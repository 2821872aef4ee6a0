// SPDX-License-Identifier: Apache-2.0
//
// Damage to a real shared library: never a crash, always either whole or refused with a reason.
#include <algorithm>
#include <array>
#include <random>

#include "plugins/files.h"
#include "plugins/section.h"
#include "tests/plugins/plugin_fixture.h"

namespace kvr {
namespace {

class LibraryFuzz : public testing::Test {
 protected:
  // Whole means: what came out is what went in, for all a reader can tell.
  bool Accepted(const std::string& content) const {
    const absl::StatusOr<bundle::PluginSection> section = bundle::ReadPluginSection(content);
    if (section.ok()) {
      EXPECT_FALSE(section->name.empty());
      EXPECT_FALSE(section->files.empty());
      for (const auto& [name, file] : section->files) {
        EXPECT_TRUE(bundle::CheckFileName(name).ok());
        EXPECT_LE(file.size(), content.size());
      }
      return true;
    }
    EXPECT_FALSE(What(section.status()).empty());
    EXPECT_FALSE(Fix(section.status()).empty()) << section.status();
    return false;
  }

  size_t Pick(size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random_); }

  const std::string library_ = ReadFile(FixturePlugin("kvr_test_demo"));
  // --gtest_shuffle --gtest_repeat=N tries other damage.
  std::mt19937 random_{20261130u +
                       static_cast<unsigned>(testing::UnitTest::GetInstance()->random_seed())};
};

TEST_F(LibraryFuzz, TruncatedAtEveryRecordAndAround) {
  ASSERT_TRUE(Accepted(library_));
  for (const char* magic : {"KVRPLUG1", "KVRFILE1"}) {
    for (size_t at = library_.find(magic); at != std::string::npos;
         at = library_.find(magic, at + 1)) {
      for (size_t end = at - 9; end < at + 40; ++end)
        EXPECT_FALSE(Accepted(library_.substr(0, end)));
    }
  }
  for (size_t end = 0; end < 200; ++end) EXPECT_FALSE(Accepted(library_.substr(0, end)));
  for (int round = 0; round < 2000; ++round) Accepted(library_.substr(0, Pick(library_.size())));
}

TEST_F(LibraryFuzz, FlippedBits) {
  const size_t section = library_.find("KVRPLUG1");
  const size_t headers = library_.size() - std::min<size_t>(library_.size(), 3000);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = library_;
    const size_t flips = 1 + Pick(4);
    for (size_t i = 0; i < flips; ++i) {
      // Anywhere, in the file's header, in the records, in the section headers at the end.
      const size_t at = std::array{Pick(damaged.size()), Pick(64), section + Pick(2000),
                                   headers + Pick(damaged.size() - headers)}[Pick(4)];
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << Pick(8)));
    }
    refused += Accepted(damaged) ? 0 : 1;
  }
  EXPECT_GT(refused, 2000);
}

TEST_F(LibraryFuzz, FieldsOfHeadersReplacedByExtremes) {
  constexpr uint64_t kExtremes[] = {
      0, 1, 7, 0xffff, 0x7fffffff, 0xffffffff, ~uint64_t{0} - 7, ~uint64_t{0}, uint64_t{1} << 63};
  const size_t headers = library_.size() - std::min<size_t>(library_.size(), 3000);
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = library_;
    const size_t at = std::array{Pick(60), headers + Pick(library_.size() - headers - 8)}[Pick(2)];
    const uint64_t value = kExtremes[Pick(std::size(kExtremes))];
    damaged.replace(at, 8, reinterpret_cast<const char*>(&value), 8);
    Accepted(damaged);
  }
}

}  // namespace
}  // namespace kvr
