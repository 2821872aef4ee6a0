// SPDX-License-Identifier: Apache-2.0
#include "tuner/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tuner/report/plot.h"

namespace kvr::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

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
  EXPECT_EQ(PercentText(40), ">1000 %");
  EXPECT_EQ(IntervalText(NAN, std::log(1.1)), "? … +10.0 %");
  EXPECT_EQ(MicrosecondsText(9.876), "9.88");
  EXPECT_EQ(MicrosecondsText(123.45), "123.5");
}

TEST(Text, TellsBandsAsTheyAreStored) {
  EXPECT_EQ(BandText(0.0417), "±4.2 %");
  EXPECT_EQ(BandText(33.3), ">1000 %");
  EXPECT_EQ(SpreadText(0.004), "0.40 %");
  EXPECT_EQ(SpreadText(3e14), ">1000 %");
  EXPECT_EQ(LogText(-0.004), "-0.40");
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
  EXPECT_EQ(IntervalPlot({}), "");
  EXPECT_EQ(FunnelPlot({}), "");
  EXPECT_EQ(NoisePlot({}), "");
  const std::vector<Row> rows = Sample().rows;
  const std::string intervals = IntervalPlot(rows);
  EXPECT_THAT(intervals, HasSubstr("LOSS, +20.0 %"));
  EXPECT_THAT(intervals, Not(HasSubstr("INVALID, ")));  // no interval to draw
}

std::vector<Row> Usual() {
  return {RowOf("a", 0.06, "LOSS"), RowOf("b", 0.01, "EQUIVALENT"), RowOf("c", -0.03, "WIN")};
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Plots, AnAbsurdDifferenceIsAnArrowAndDoesNotPressTheOthersTogether) {
  std::vector<Row> rows = Usual();
  const std::string usual = IntervalPlot(rows);
  EXPECT_EQ(Count(usual, "<path"), 0u);
  rows.push_back(RowOf("d", 5, "LOSS"));
  EXPECT_LT(ReachOf(rows), 0.5);
  const std::string plot = IntervalPlot(rows);
  EXPECT_EQ(Count(plot, "<path"), 1u);
  EXPECT_EQ(Count(plot, "<circle"), 3u);
  EXPECT_THAT(plot, HasSubstr(">&gt;1000 %</text>"));
}

TEST(Plots, AnAbsurdBandIsAnArrow) {
  std::vector<Row> rows = Usual();
  rows[1].band = 33.33;
  EXPECT_LT(ReachOf(rows), 0.2);
  EXPECT_EQ(Count(IntervalPlot(rows), "class=\"beyond\""), 2u);
  const Noise good = {"a", "", 0.012, 0.004, 0.01, 3, 80, {-0.004, 0.002}, "d"};
  const Noise bad = {"b", "", 33.33, 3e14, 0.01, 3, 80, {-30, 0.002}, "d"};
  const std::string plot = NoisePlot({good, good, bad});
  EXPECT_THAT(plot, HasSubstr(">+1 %</text>"));
  EXPECT_EQ(Count(plot, "class=\"beyond\""), 2u);
  EXPECT_THAT(plot, HasSubstr("<title>&lt;-1000 %</title>"));
}

TEST(Plots, ChartsHaveScalesOfTheirOwn) {
  Report report;
  report.rows = Usual();
  const std::string alone = ToHtml(report);
  report.rows.push_back(RowOf("a", 2, "LOSS"));
  report.rows.back().challenger = {"w16", ""};
  const std::string plot = IntervalPlot(Usual());
  EXPECT_THAT(alone, HasSubstr(plot));
  EXPECT_THAT(ToHtml(report), HasSubstr(plot));
}

// The labels below the rows: where each is centred, and how long it is.
TEST(Plots, TicksDoNotOverlap) {
  for (double difference : {0.01, 0.06, 0.2, 0.34, 0.5, 1.0, 2.0, 9.0}) {
    const std::vector<Row> rows = {RowOf("num_tokens=1", difference, "LOSS")};
    const std::string plot = IntervalPlot(rows);
    std::vector<std::pair<double, double>> labels;
    const std::string mark = "class=\"t mid\">";
    for (size_t at = plot.find(mark); at != std::string::npos; at = plot.find(mark, at + 1)) {
      const std::string text = plot.substr(at + mark.size(), plot.find('<', at) - at - mark.size());
      if (text.find("time") != std::string::npos) continue;
      const size_t x = plot.rfind("x=\"", at) + 3;
      labels.emplace_back(std::stod(plot.substr(x)), 6.5 * static_cast<double>(text.size()));
    }
    std::sort(labels.begin(), labels.end());
    EXPECT_GE(labels.size(), difference < 0.5 ? 5u : 3u) << difference;
    for (size_t i = 1; i < labels.size(); ++i) {
      EXPECT_GT(labels[i].first - labels[i].second / 2,
                labels[i - 1].first + labels[i - 1].second / 2)
          << difference;
    }
  }
}

TEST(Plots, LongLabelsAreShortenedInTheMiddleWithAllOfThemAsTooltip) {
  const std::string axes =
      "head_dim_ckv=512,head_dim_kpe=64,num_pages=512,num_qo_heads=16,num_tokens=1,page_size=64";
  const std::vector<Row> rows = {RowOf(axes, 0.06, "LOSS")};
  const std::string plot = IntervalPlot(rows);
  EXPECT_THAT(plot, HasSubstr("tokens=1,page_size=64<title>" + axes + "</title></text>"));
  EXPECT_THAT(plot, HasSubstr(">head_dim_ckv=512"));
  EXPECT_THAT(plot, HasSubstr("…"));
  EXPECT_THAT(NoisePlot({{axes, "", 0.012, 0, 0, 3, 80, {}, "d"}}),
              HasSubstr("<title>" + axes + "</title></text>"));
}

TEST(Plots, ALineFarFromTheIncumbentsDoesNotPressTheOthersTogether) {
  Scaling scaling{"n", "", {{"baseline", {{1, 9}, {8, 12}}}, {"w8", {{1, 9e9}, {8, 13}}}}, {}};
  const std::string plot = ScalingPlot(scaling);
  EXPECT_EQ(Count(plot, "z\" class=\"f1\""), 1u);
  EXPECT_EQ(Count(plot, "<circle"), 3u);
}

TEST(Plots, APictureIsAFileOfItsOwn) {
  Scaling scaling{
      "n", "", {{"a<b", {{1, 9}, {8, 12}}}, {"w8", {{1, 8}, {8, 13}}}}, {{1, 2}, {8, 4}}};
  const std::string picture = ScalingPicture(scaling, "time & n");
  EXPECT_THAT(picture, StartsWith("<svg xmlns="));
  EXPECT_THAT(picture, HasSubstr("<title>time &amp; n</title>"));
  EXPECT_THAT(picture, HasSubstr(">a&lt;b</text>"));
  // Colours as values: viewers that know no CSS variables would paint all black.
  EXPECT_THAT(picture, HasSubstr(".f1 { fill: #b85c00; }"));
  EXPECT_THAT(picture, Not(HasSubstr("var(")));
  EXPECT_EQ(Count(picture, "<circle"), 4u);
  EXPECT_EQ(Count(picture, "<div"), 0u);
  EXPECT_EQ(Count(picture, "<g "), Count(picture, "</g>"));
  EXPECT_EQ(ScalingPicture({"n", "", {}, {}}, "nothing"), "");
}

TEST(Html, ShowsShapeVerdictAndDifferenceFirstOnATelephone) {
  const std::string page = ToHtml(Sample());
  EXPECT_THAT(page, HasSubstr("<table class=\"stack\">"));
  EXPECT_THAT(page, HasSubstr("data-of=\"interval\">"));
  EXPECT_LT(page.find("<td>num_tokens=8</td><td class=\"v loss\">"), page.find("data-of=\""));
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
