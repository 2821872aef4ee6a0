// SPDX-License-Identifier: Apache-2.0
#include "core/names.h"

#include <gtest/gtest.h>

#include <random>

#include "core/strings.h"
#include "tests/core/samples.h"

namespace kvr {
namespace {

TEST(Names, EditDistanceIsAMetricOnRandomWords) {
  std::mt19937 random(1);
  auto word = [&random] {
    std::string text(random() % 7, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int i = 0; i < 2000; ++i) {
    std::string a = word(), b = word(), c = word();
    EXPECT_EQ(EditDistance(a, b), EditDistance(b, a));
    EXPECT_EQ(EditDistance(a, b) == 0, a == b);
    EXPECT_LE(EditDistance(a, c), EditDistance(a, b) + EditDistance(b, c));
  }
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
}

TEST(Names, UnknownNameNamesTheNearestAndListsAll) {
  EXPECT_THAT(UnknownName("axis", "num_token", {"topk", "num_tokens"}),
              IsError(kInvalid, "unknown axis 'num_token'",
                      "did you mean 'num_tokens'? known: num_tokens, topk"));
  EXPECT_THAT(UnknownName("axis", "zebra", {"topk", "num_tokens"}),
              IsError(kInvalid, "'zebra'", "known: "));
  EXPECT_EQ(Nearest("zebra", {"topk", "num_tokens"}), "");
  EXPECT_EQ(Nearest("block_h", {"TARGET_CTAS", "BLOCK_H"}), "BLOCK_H");
}

TEST(Names, QuotedEscapesAndCuts) {
  EXPECT_EQ(Quoted("a\nb"), "'a\\nb'");
  EXPECT_EQ(Quoted(std::string(100, 'x')), "'" + std::string(60, 'x') + "...'");
}

TEST(Names, ParseIntegerTakesWholeDecimalsOnly) {
  EXPECT_EQ(*ParseInteger("0", false), 0);
  EXPECT_EQ(*ParseInteger("9223372036854775807", false), INT64_MAX);
  EXPECT_EQ(*ParseInteger("-9223372036854775808", true), INT64_MIN);
  for (std::string_view bad : {"", "-", "+1", " 1", "1 ", "-1", "1e3", "0x10", "1.0", "007"}) {
    EXPECT_FALSE(ParseInteger(bad, false).ok()) << bad;
  }
  EXPECT_THAT(ParseInteger("9223372036854775808", false).status(),
              IsError(absl::StatusCode::kOutOfRange, "too large", "64-bit"));
}

TEST(Names, IdentifiersAreAsciiAndDoNotStartWithADigit) {
  for (std::string_view good : {"a", "_", "BLOCK_H", "x9"}) EXPECT_TRUE(IsIdentifier(good));
  for (std::string_view bad : {"", "9x", "a-b", "a b", "\xc3\xa4"}) EXPECT_FALSE(IsIdentifier(bad));
}

TEST(Strings, SplitKeepsEmptyPiecesAndTrimTakesBlanks) {
  EXPECT_THAT(Split("a,,b,", ','), testing::ElementsAre("a", "", "b", ""));
  EXPECT_THAT(Split("", ','), testing::ElementsAre(""));
  EXPECT_EQ(Trim(" \ta b\r\n"), "a b");
  EXPECT_EQ(Trim("  "), "");
}

}  // namespace
}  // namespace kvr
