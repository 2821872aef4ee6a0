// SPDX-License-Identifier: Apache-2.0
#include "core/axes.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/core/samples.h"

namespace kvr {
namespace {

TEST(Axes, ParsesNamesAndValues) {
  EXPECT_EQ(*ParseAxes("num_tokens=96,topk=512"), (Axes{{"num_tokens", 96}, {"topk", 512}}));
  EXPECT_EQ(*ParseAxes("num_tokens=0"), (Axes{{"num_tokens", 0}}));
  EXPECT_TRUE(ParseAxes("")->empty());
}

TEST(Axes, MalformedTextIsRefusedWithTheFix) {
  EXPECT_THAT(ParseAxes("topk").status(), IsError(kInvalid, "'topk' has no '='", "name=value"));
  EXPECT_THAT(ParseAxes("topk=").status(), IsError(kInvalid, "axis 'topk'", "decimal integer"));
  EXPECT_THAT(ParseAxes("topk=1,topk=2").status(), IsError(kInvalid, "given twice", "once"));
  EXPECT_THAT(ParseAxes("topk=1,").status(), IsError(kInvalid, "empty piece", "trailing"));
  EXPECT_THAT(ParseAxes(",topk=1").status(), IsError(kInvalid, "empty piece", "leading"));
  EXPECT_THAT(ParseAxes("topk=-1").status(), IsError(kInvalid, "'-1'", "not negative"));
  EXPECT_THAT(ParseAxes("topk=+1").status(), IsError(kInvalid, "'+1'", "decimal"));
  EXPECT_THAT(ParseAxes("topk= 1").status(), IsError(kInvalid, "' 1'", "decimal"));
  EXPECT_THAT(ParseAxes("topk =1").status(), IsError(kInvalid, "'topk '", "without blanks"));
  EXPECT_THAT(ParseAxes("a=1, b=2").status(), IsError(kInvalid, "' b'", "without blanks"));
  EXPECT_THAT(ParseAxes("topk=1=2").status(), IsError(kInvalid, "'1=2'", "decimal"));
  EXPECT_THAT(ParseAxes("=1").status(), IsError(kInvalid, "''", "names are"));
}

TEST(Axes, ARangeStandsForEachOfItsValues) {
  const std::vector<Axes> shapes = *ExpandAxes("num_tokens=1..96,topk=512");
  ASSERT_EQ(shapes.size(), 96u);
  EXPECT_EQ(shapes.front(), (Axes{{"num_tokens", 1}, {"topk", 512}}));
  EXPECT_EQ(shapes.back(), (Axes{{"num_tokens", 96}, {"topk", 512}}));
  EXPECT_EQ(
      *ExpandAxes("a=0..1,b=5..6"),
      (std::vector<Axes>{
          {{"a", 0}, {"b", 5}}, {{"a", 0}, {"b", 6}}, {{"a", 1}, {"b", 5}}, {{"a", 1}, {"b", 6}}}));
  EXPECT_EQ(*ExpandAxes(""), std::vector<Axes>{{}});
  EXPECT_EQ(*ExpandAxes("a=7"), (std::vector<Axes>{{{"a", 7}}}));
  EXPECT_EQ(ExpandAxes("a=9223372036854775807..9223372036854775807")->size(), 1u);
}

TEST(Axes, WhatIsNoRangeOrTooLargeAOneIsRefused) {
  const absl::StatusCode out = absl::StatusCode::kOutOfRange;
  EXPECT_EQ(ExpandAxes("a=1..65536")->size(), static_cast<size_t>(kMaxShapes));
  EXPECT_THAT(ExpandAxes("a=1..65537").status(), IsError(out, "more than 65536 shapes", "fewer"));
  EXPECT_THAT(ExpandAxes("a=1..300,b=1..300").status(), IsError(out, "65536", "tuning key"));
  EXPECT_THAT(ExpandAxes("a=0..9223372036854775807").status(), IsError(out, "65536", "fewer"));
  EXPECT_THAT(ExpandAxes("a=2..1").status(), IsError(kInvalid, "'2..1' is empty", "1..96"));
  EXPECT_THAT(ExpandAxes("a=1..").status(), IsError(kInvalid, "axis 'a'", "decimal"));
  EXPECT_THAT(ExpandAxes("a=..4").status(), IsError(kInvalid, "axis 'a'", "decimal"));
  EXPECT_THAT(ExpandAxes("a=1...4").status(), IsError(kInvalid, "'.4'", "decimal"));
  EXPECT_THAT(ExpandAxes("a=1..4..8").status(), IsError(kInvalid, "'4..8'", "decimal"));
  EXPECT_THAT(ExpandAxes("a=1..4,a=2").status(), IsError(kInvalid, "given twice", "once"));
  EXPECT_THAT(ExpandAxes("a=1..96 b=2").status(), IsError(kInvalid, "'96 b=2'", "decimal"));
  EXPECT_THAT(ParseAxes("a=1..4").status(), IsError(kInvalid, "'1..4'", "decimal"));
}

TEST(Axes, TextRoundTrips) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 500; ++i) {
    Axes axes;
    for (uint64_t n = random() % 6; n > 0; --n) {
      std::string name(1 + random() % 8, '_');
      for (char& c : name) c = "abcXYZ_"[random() % 7];
      axes[name] = static_cast<int64_t>(random() >> (1 + random() % 63));
    }
    absl::StatusOr<Axes> parsed = ParseAxes(AxesText(axes));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, axes);
  }
}

TEST(Axes, AcceptedTextsAreExactlyTheCanonicalOnesUpToOrder) {
  // Random texts over the grammar's own characters: what parses prints back the same pieces.
  std::mt19937 random(3);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text(random() % 9, ' ');
    for (char& c : text) c = "ab=,019- "[random() % 9];
    absl::StatusOr<Axes> parsed = ParseAxes(text);
    if (!parsed.ok()) {
      EXPECT_FALSE(Fix(parsed.status()).empty()) << text;
      continue;
    }
    ++accepted;
    EXPECT_EQ(AxesText(*parsed).size(), text.size()) << text;
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace kvr
