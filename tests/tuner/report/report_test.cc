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

Row RowOf(const std::string& axes, double difference, const std::string& verdict) {
  Row row;
  row.axes = axes;
  row.incumbent = {"baseline", "W=4"};
  row.challenger = {"w8", "W=8"};
  row.incumbent_us = 10;
  row.challenger_us = 10 * std::exp(difference);
  row.difference = difference;
  row.low = difference - 0.01;
  row.high = difference + 0.01;
  row.band = 0.0119;
  row.verdict = verdict;
  row.kind = "ship";
  row.rounds = 20;
  row.sessions = 16;
  return row;
}

Report Sample() {
  Report report;
  report.title = "w8 <against> baseline";
  report.what = {"eight warps & more"};
  report.conclusion = {"w8 loses."};
  report.environment = {{"device", "NVIDIA H200"}};
  report.rows = {RowOf("num_tokens=8", std::log(1.2), "LOSS"),
                 RowOf("num_tokens=96", NAN, "INVALID")};
  report.rows[1].rounds = 3;
  report.rows[1].sessions = 1;
  report.rows[1].reason = "the clock | fell";
  report.samples = {{"num_tokens=8", {{"w8", {12, 12.1, NAN, 11.9}}}, {2}}};
  report.funnels = {{"num_tokens=8", {{"screen", 64, 40, 2}, {"final", 4, 1, 80}}}};
  report.scalings = {{"num_tokens", "topk=512", {{"w8", {{1, 9}, {8, 12}}}}, {{1, 2}, {8, 3}}}};
  report.negatives = {"BLOCK_T=32 does not fit"};
  report.noise = {{"num_tokens=8", "", 0.012, 0.004, 0.01, 3, 80, {-0.004, 0.002, NAN}, "d"}};
  report.reported = {{"C=8", {"a", ""}, {"b", ""}, "tok/s", {-8.2, 1}, 7, "LOSS", "why", "who"}};
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
  EXPECT_THAT(text, HasSubstr("| num_tokens | w8 µs | floor µs |"));
  EXPECT_THAT(text, HasSubstr("| num_tokens=8 | ±1.2 % | 0.40 % | 3 × 80 | -0.40, +0.20, ? | d |"));
  EXPECT_THAT(text, HasSubstr("| LOSS | -8.2 %, +1 % | tok/s | ±7.0 % | why | who |"));
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
  EXPECT_EQ(SamplePlot({"x", {{"a", {NAN}}}, {}}), "");
  EXPECT_EQ(ScalingPlot({"x", "", {}, {}}), "");
  EXPECT_EQ(IntervalPlot({}, 1), "");
  EXPECT_EQ(FunnelPlot({}), "");
  EXPECT_EQ(NoisePlot({}), "");
  const std::vector<Row> rows = Sample().rows;
  const std::string intervals = IntervalPlot(rows, ReachOf(rows));
  EXPECT_THAT(intervals, HasSubstr("LOSS, +20.0 %"));
  EXPECT_THAT(intervals, Not(HasSubstr("INVALID, ")));  // no interval to draw
}

TEST(Plots, ReachToEveryDifferenceButNotToEveryIntervalsEnd) {
  std::vector<Row> rows = {RowOf("a", 0.06, "LOSS"), RowOf("b", 0.01, "INCONCLUSIVE")};
  rows[1].high = 3;
  EXPECT_GT(ReachOf(rows), 0.06);
  EXPECT_LT(ReachOf(rows), 0.3);
}

TEST(Plots, StraySamplesDoNotPressTheOthersIntoALine) {
  std::vector<double> us(100, 10.0);
  for (size_t i = 0; i < us.size(); ++i) us[i] += 0.01 * static_cast<double>(i % 7);
  us[50] = 500;
  EXPECT_THAT(SamplePlot({"x", {{"a", us}}, {}}), HasSubstr("1 sample lies beyond"));
}

}  // namespace
}  // namespace kvr::report
