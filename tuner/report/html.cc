// SPDX-License-Identifier: Apache-2.0
#include "core/strings.h"
#include "tuner/report/plot.h"
#include "tuner/report/report.h"

namespace kvr::report {
namespace {

// Series colours keep their contrast on both grounds and stay apart for the colour-blind (Okabe and
// Ito's, darkened or lightened a little).
constexpr std::string_view kStyle = R"css(
:root { color-scheme: light dark; --ground: #fff; --ink: #1a1c20; --soft: #5d6470; --rule: #e3e6ea;
  --band: #dfe5ee; --win: #08704a; --loss: #b3401a; --same: #5d6470;
  --s0: #0067a5; --s1: #b85c00; --s2: #0b7a5b; --s3: #a0467b; --s4: #7a6a00; --s5: #45505e; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171b; --ink: #e7e9ec; --soft: #9aa3af;
  --rule: #2b3037; --band: #2a3240; --win: #3fc795; --loss: #ff8a5c; --same: #9aa3af;
  --s0: #5ab4f0; --s1: #f0a04b; --s2: #3fc795; --s3: #e08cbd; --s4: #d8c64a; --s5: #a9b4c2; } }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 68rem; background: var(--ground);
  color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
h3 { font-size: 1rem; color: var(--soft); font-weight: 600; margin: 1.4rem 0 .3rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; } th { color: var(--soft); font-weight: 600; }
td.n, th.n { text-align: right; white-space: nowrap; }
td.v { font-weight: 600; white-space: nowrap; } td.v small { font-weight: 400; color: var(--soft); }
.win { color: var(--win); } .loss { color: var(--loss); } .same { color: var(--same); }
figure { margin: .5rem 0 1.5rem; overflow-x: auto; }
svg { width: 100%; min-width: 34rem; height: auto; display: block; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
svg .l { fill: var(--ink); } svg .mid { text-anchor: middle; } svg .end { text-anchor: end; }
svg .grid { stroke: var(--rule); } svg .zero { stroke: var(--soft); }
svg .band { fill: var(--band); } svg .whisker { stroke-width: 2.5; stroke-linecap: round; }
svg .whisker.win { stroke: var(--win); } svg .whisker.loss { stroke: var(--loss); }
svg .whisker.same { stroke: var(--same); }
svg .dot.win { fill: var(--win); } svg .dot.loss { fill: var(--loss); }
svg .dot.same { fill: var(--same); }
svg .line { fill: none; stroke-width: 2; }
svg .floor { fill: none; stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 5 4; }
svg .f0 { fill: var(--s0); } svg .f1 { fill: var(--s1); } svg .f2 { fill: var(--s2); }
svg .f3 { fill: var(--s3); } svg .f4 { fill: var(--s4); } svg .f5 { fill: var(--s5); }
svg .c0 { stroke: var(--s0); } svg .c1 { stroke: var(--s1); } svg .c2 { stroke: var(--s2); }
svg .c3 { stroke: var(--s3); } svg .c4 { stroke: var(--s4); } svg .c5 { stroke: var(--s5); }
)css";

void Paragraphs(std::string* out, std::string_view heading, const std::vector<std::string>& texts) {
  if (texts.empty()) return;
  StrAppend(out, "<h2>", heading, "</h2>\n");
  for (const std::string& text : texts) StrAppend(out, "<p>", Escaped(text), "</p>\n");
}

void List(std::string* out, std::string_view heading, const std::vector<std::string>& texts) {
  if (texts.empty()) return;
  StrAppend(out, "<h2>", heading, "</h2>\n<ul>\n");
  for (const std::string& text : texts) StrAppend(out, "<li>", Escaped(text), "</li>\n");
  StrAppend(out, "</ul>\n");
}

void Figure(std::string* out, std::string_view heading, const std::string& svg) {
  if (svg.empty()) return;
  StrAppend(out, "<h3>", Escaped(heading), "</h3>\n<figure>\n", svg, "</figure>\n");
}

std::string Named(const Contestant& c) {
  return c.config.empty()
             ? Escaped(c.variant)
             : StrCat(Escaped(c.variant), "<br><small>", Escaped(c.config), "</small>");
}

void Rows(std::string* out, const std::vector<Row>& rows) {
  if (rows.empty()) return;
  StrAppend(out, "<h2>Results</h2>\n");
  Figure(out, "Difference by shape; the noise band is shaded", IntervalPlot(rows));
  StrAppend(out,
            "<div class=\"wide\"><table>\n<tr><th>shape</th><th>challenger</th><th>verdict</th>"
            "<th class=\"n\">difference</th><th class=\"n\">interval</th><th class=\"n\">band</th>"
            "<th class=\"n\">challenger µs</th><th class=\"n\">incumbent µs</th>"
            "<th>incumbent</th></tr>\n");
  for (const Row& row : rows) {
    const std::string_view css = row.verdict == "WIN"    ? "win"
                                 : row.verdict == "LOSS" ? "loss"
                                                         : "same";
    StrAppend(out, "<tr><td>", Escaped(row.axes), "</td><td>", Named(row.challenger),
              "</td><td class=\"v ", css, "\">", Escaped(row.verdict), "<br><small>",
              Escaped(row.kind), ", ", row.sessions, " × ", row.rounds,
              row.reason.empty() ? "" : "<br>", Escaped(row.reason), "</small></td>");
    for (const std::string& figure :
         {PercentText(row.difference), IntervalText(row.low, row.high), BandText(row.band),
          MicrosecondsText(row.challenger_us), MicrosecondsText(row.incumbent_us)}) {
      StrAppend(out, "<td class=\"n\">", figure, "</td>");
    }
    StrAppend(out, "<td>", Named(row.incumbent), "</td></tr>\n");
  }
  StrAppend(out,
            "</table></div>\n<p>Differences are of the challenger's time; negative is faster. "
            "Sessions × rounds stand beside each verdict.</p>\n");
}

}  // namespace

std::string ToHtml(const Report& report) {
  std::string out = StrCat(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
      Escaped(report.title), "</title>\n<style>", kStyle, "</style>\n</head>\n<body>\n<h1>",
      Escaped(report.title), "</h1>\n");
  if (!report.conclusion.empty()) StrAppend(&out, "<p>", Escaped(report.conclusion), "</p>\n");
  Paragraphs(&out, "What", report.what);
  Paragraphs(&out, "Why", report.why);
  Rows(&out, report.rows);
  for (const Scaling& scaling : report.scalings) {
    Figure(&out,
           StrCat("Time over ", scaling.axis, scaling.rest.empty() ? "" : ", ", scaling.rest,
                  scaling.floor.empty() ? "" : "; dashed: the least that memory allows"),
           ScalingPlot(scaling));
  }
  if (!report.samples.empty()) StrAppend(&out, "<h2>Samples</h2>\n");
  for (const Samples& samples : report.samples) {
    Figure(&out, StrCat(samples.axes, ": in the order taken"), SamplePlot(samples));
  }
  if (!report.funnels.empty()) StrAppend(&out, "<h2>Races</h2>\n");
  for (const Funnel& funnel : report.funnels) Figure(&out, funnel.axes, FunnelPlot(funnel));
  List(&out, "Noise", report.bands);
  List(&out, "What did not work", report.negatives);
  Paragraphs(&out, "How", report.how);
  if (!report.baseline.empty()) Paragraphs(&out, "Baseline", {report.baseline});
  if (!report.environment.empty()) {
    StrAppend(&out, "<h2>Environment</h2>\n<div class=\"wide\"><table>\n");
    for (const auto& [name, value] : report.environment) {
      StrAppend(&out, "<tr><th>", Escaped(name), "</th><td>", Escaped(value), "</td></tr>\n");
    }
    StrAppend(&out, "</table></div>\n");
  }
  return out + "</body>\n</html>\n";
}

}  // namespace kvr::report
