// SPDX-License-Identifier: Apache-2.0
#include "core/quality.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kvr {
namespace {

using ::testing::HasSubstr;

TEST(Quality, ReadsBackAsItWas) {
  const std::vector<QualityMeasure> measures = {
      {"y.cosine_difference", 1e-17}, {"y.relative_error", 0.1}, {"kept", -3}, {"count_2", 48.8}};
  const std::string text = QualityText(measures);
  EXPECT_EQ(text, "y.cosine_difference=1e-17,y.relative_error=0.1,kept=-3,count_2=48.8");
  const auto back = ParseQuality(text);
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_EQ(back->size(), measures.size());
  for (size_t i = 0; i < measures.size(); ++i) {
    EXPECT_EQ((*back)[i].name, measures[i].name);
    EXPECT_EQ((*back)[i].value, measures[i].value);
  }
  EXPECT_TRUE(ParseQuality("")->empty());
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isnan(ParseQuality(QualityText({{"a", infinite}}))->front().value));
}

TEST(Quality, WhatIsNoFigureIsAnError) {
  for (const char* text : {"a", "a=", "=1", "a=1,", "a=x", "a=1x", "a b=1", "a=inf", "a==1"}) {
    EXPECT_FALSE(ParseQuality(text).ok()) << text;
  }
  EXPECT_THAT(std::string(ParseQuality("a=x").status().message()), HasSubstr("'a=x'"));
}

TEST(Quality, MeanIsOfEachFigure) {
  QualityMean mean;
  EXPECT_TRUE(mean.mean().empty());
  mean.Add({{"a", 1}, {"b", 0.5}});
  mean.Add({{"a", 2}, {"b", 1}});
  EXPECT_EQ(QualityText(mean.mean()), "a=1.5,b=0.75");
}

TEST(Quality, ShortForms) {
  const std::vector<QualityMeasure> measures = {
      {"y.relative_error", 0.01234}, {"z.relative_error", 0.2}, {"relative_error", 5}};
  EXPECT_EQ(WorstErrorText(measures), "20 %");
  EXPECT_EQ(WorstErrorText({{"kept", 1}}), "-");
  for (const double none : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(WorstErrorText({{"y.relative_error", 0.1}, {"z.relative_error", none}}), "no bound");
  }
  EXPECT_EQ(QualityLine({{"y.relative_error", 0.012345}, {"kept", 1}}),
            "y.relative_error 0.0123, kept 1");
}

}  // namespace
}  // namespace kvr
