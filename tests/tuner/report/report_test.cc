// SPDX-License-Identifier: Apache-2.0
#include "tuner/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tuner/report/plot.h"

namespace kvr::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Report Sample() {
  Report report;
  report.title = "w8 <against> baseline";
  report.what = {"eight warps & more"};
  report.conclusion = "w8 loses.";
  report.environment = {{"device", "NVIDIA H200"}};
  report.rows = {
      {"num_tokens=8",
       {"baseline", "W=4"},
       {"w8", "W=8"},
       10,
       12,
       std::log(1.2),
       std::log(1.19),
       std::log(1.21),
       0.0119,
       "LOSS",
       "ship",
       "",
       20,
       16},
      {"num_tokens=96",
       {"baseline", "W=4"},
       {"w8", "W=8"},
       10,
       NAN,
       NAN,
       NAN,
       NAN,
       0.0119,
       "INVALID",
       "ship",
       "the clock | fell",
       3,
       1},
  };
  report.samples = {{"num_tokens=8", {{"w8", {12, 12.1, NAN, 11.9}}}}};
  report.funnels = {{"num_tokens=8", {{"screen", 64, 40, 2}, {"final", 4, 1, 80}}}};
  report.scalings = {{"num_tokens", "topk=512", {{"w8", {{1, 9}, {8, 12}}}}, {{1, 2}, {8, 3}}}};
  report.negatives = {"BLOCK_T=32 does not fit"};
  return report;
}

TEST(Text, ReadsAsPercentOfTime) {
  EXPECT_EQ(PercentText(std::log(0.9)), "-10.0 %");
  EXPECT_EQ(PercentText(std::log(1.25)), "+25.0 %");
  EXPECT_EQ(PercentText(-1e-5), "0.0 %");
  EXPECT_EQ(PercentText(INFINITY), "?");
  EXPECT_EQ(IntervalText(NAN, std::log(1.1)), "? … +10.0 %");
  EXPECT_EQ(MicrosecondsText(9.876), "9.88");
  EXPECT_EQ(MicrosecondsText(123.45), "123.5");
}

TEST(Markdown, HasEveryPartAndKeepsTheLosers) {
  const std::string text = ToMarkdown(Sample());
  EXPECT_THAT(text, HasSubstr("| num_tokens=8 | w8 {W=8} | LOSS (ship, 16 × 20) | +20.0 % |"));
  EXPECT_THAT(text, HasSubstr("INVALID (ship, 1 × 3): the clock \\| fell"));
  EXPECT_THAT(text, HasSubstr("| screen | 64 | 40 | 2 |"));
  EXPECT_THAT(text, HasSubstr("- BLOCK_T=32 does not fit"));
  EXPECT_THAT(text, HasSubstr("## Conclusion\n\nw8 loses.\n"));
}

TEST(Html, StandsAloneAndEscapes) {
  const std::string page = ToHtml(Sample());
  EXPECT_THAT(page, HasSubstr("w8 &lt;against&gt; baseline"));
  EXPECT_THAT(page, HasSubstr("eight warps &amp; more"));
  for (const char* outside : {"<script", "http://", "https://", "src=", "@import"}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
  EXPECT_THAT(page, Not(HasSubstr("nan")));
  EXPECT_THAT(page, Not(HasSubstr("inf")));
}

TEST(Plots, DrawWhatIsKnownAndNothingElse) {
  EXPECT_EQ(SamplePlot({"x", {{"a", {NAN}}}}), "");
  EXPECT_EQ(ScalingPlot({"x", "", {}, {}}), "");
  const std::string intervals = IntervalPlot(Sample().rows);
  EXPECT_THAT(intervals, HasSubstr("LOSS: +20.0 %"));
  EXPECT_THAT(intervals, Not(HasSubstr("INVALID:")));  // no interval to draw
  Samples many{"x", {{"a", std::vector<double>(100000, 1.0)}}};
  EXPECT_LT(SamplePlot(many).size(), 200u * kMaxDots);
}

}  // namespace
}  // namespace kvr::report
