// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/strings.h"
#include "tuner/report/plot.h"
#include "tuner/report/report.h"
#include "tuner/report/style.h"

namespace kvr::report {
namespace {

constexpr std::string_view kPageStyle =
    R"css(body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 84rem; background: var(--ground);
  color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1rem; font-weight: 600; margin: 1.2rem 0 .3rem; }
p, ul { margin: .5rem 0; } p { max-width: 66rem; } ul { padding-left: 1.2rem; } li { margin: .3rem 0; }
@media (min-width: 68rem) { .many { columns: 2; column-gap: 2.5rem; }
  .many > p, .many > li { break-inside: avoid; } .many > p:first-child { margin-top: 0; } }
.verdict { border-left: 4px solid var(--rule); padding: .1rem 0 .1rem .9rem; font-size: 1.05rem; }
.plots { display: grid; gap: .4rem 2rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 27rem), 1fr)); }
.pair { display: grid; gap: .3rem 2rem; align-items: start; }
@media (min-width: 68rem) { .pair { grid-template-columns: 22rem minmax(0, 1fr); } }
.wide { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .28rem .55rem .28rem 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; } th { color: var(--soft); font-weight: 600; }
.n { text-align: right; } td.n { white-space: nowrap; } .k { white-space: nowrap; }
@media (max-width: 40rem) { .stack, .stack tbody { display: block; } .stack .head { display: none; }
  .stack tr { display: grid; grid-template-columns: repeat(8, minmax(0, 1fr)); gap: 0 .4rem;
    padding: .4rem 0; border-bottom: 1px solid var(--rule); }
  .stack td { grid-column: span 5; padding: 0; border: 0; text-align: left; white-space: normal; }
  .stack td:nth-child(-n+2), .stack td:nth-child(5) { grid-column: span 3; }
  .stack td:nth-child(n+6) { grid-column: span 4; }
  .stack td:nth-child(3) { grid-column: span 2; text-align: right; }
  .stack td[data-of]::before { content: attr(data-of) " "; color: var(--soft); }
  .stack td:empty { visibility: hidden; } }
td.v { font-weight: 600; } small { font-weight: 400; color: var(--soft); }
.win { color: var(--win); } .loss { color: var(--loss); } .same { color: var(--same); }
figure { margin: .3rem 0 .8rem; min-width: 0; max-width: 38rem; }
figcaption { font-size: .875rem; font-weight: 600; margin-bottom: .2rem; }
.keys { font-size: .8rem; color: var(--soft); padding-left: .3rem; }
.keys span { margin-right: 1rem; } .keys i { display: inline-block; width: .7em; height: .7em;
  margin-right: .35em; } .keys .kf { height: 0; border-top: 2px dashed var(--soft); width: 1.4em;
  vertical-align: .3em; }
.k0 { background: var(--s0); } .k1 { background: var(--s1); } .k2 { background: var(--s2); }
.k3 { background: var(--s3); } .k4 { background: var(--s4); } .k5 { background: var(--s5); }
svg { width: 100%; height: auto; display: block; }
)css";

// Long names of shapes and configs may break after each of their parts.
std::string Breakable(std::string_view text) {
  std::string out;
  const std::string escaped = Escaped(text);
  for (size_t i = 0; i < escaped.size(); ++i) {
    out += escaped[i];
    if (escaped[i] == ',' && i + 1 < escaped.size() && escaped[i + 1] != ' ') out += "<wbr/>";
  }
  return out;
}

// Side by side where the page is wide: lines stay readable.
std::string_view Columns(const std::vector<std::string>& texts) {
  return texts.size() > 1 ? " class=\"many\"" : "";
}

void Paragraphs(std::string* out, std::string_view heading, const std::vector<std::string>& texts) {
  if (texts.empty()) return;
  StrAppend(out, "<h2>", heading, "</h2>\n<div", Columns(texts), ">\n");
  for (const std::string& text : texts) StrAppend(out, "<p>", Breakable(text), "</p>\n");
  StrAppend(out, "</div>\n");
}

void List(std::string* out, std::string_view heading, const std::vector<std::string>& texts) {
  if (texts.empty()) return;
  StrAppend(out, "<h2>", heading, "</h2>\n<ul", Columns(texts), ">\n");
  for (const std::string& text : texts) StrAppend(out, "<li>", Breakable(text), "</li>\n");
  StrAppend(out, "</ul>\n");
}

std::string Figure(std::string_view caption, const std::string& plot) {
  if (plot.empty()) return "";
  return StrCat("<figure>\n",
                caption.empty() ? "" : StrCat("<figcaption>", Escaped(caption), "</figcaption>\n"),
                plot, "</figure>\n");
}

void Figures(std::string* out, std::string_view heading, const std::vector<std::string>& figures) {
  std::string all;
  for (const std::string& figure : figures) all += figure;
  if (all.empty()) return;
  StrAppend(out, "<h2>", heading, "</h2>\n<div class=\"plots\">\n", all, "</div>\n");
}

std::string_view VerdictClass(std::string_view verdict) {
  return verdict == "WIN" ? "win" : verdict == "LOSS" ? "loss" : "same";
}

// A comparison's intervals beside its figures; `rows` differ in the shape alone.
void Comparison(std::string* out, const std::vector<Row>& rows) {
  const Row& first = rows.front();
  StrAppend(out, "<h3>", Escaped(Named(first.challenger)), " against ",
            Escaped(Named(first.incumbent)), first.where.empty() ? "" : ", ", Escaped(first.where),
            ": ", Escaped(first.kind), "</h3>\n<div class=\"pair\">\n",
            Figure("", IntervalPlot(rows)),
            "<div class=\"wide\"><table class=\"stack\">\n<tr class=\"head\"><th>shape</th>"
            "<th>verdict</th><th class=\"n\">difference</th><th class=\"n\">interval</th>"
            "<th class=\"n\">band</th><th class=\"n\">challenger µs</th>"
            "<th class=\"n\">incumbent µs</th></tr>\n");
  for (const Row& row : rows) {
    StrAppend(
        out, "<tr><td>", Breakable(row.axes), "</td><td class=\"v ", VerdictClass(row.verdict),
        "\">", Escaped(row.verdict), " <small class=\"k\">", row.sessions, " × ", row.rounds,
        "</small>",
        row.reason.empty() ? "" : StrCat("<br/><small>", Escaped(row.reason), "</small>"),
        row.quality.empty()
            ? ""
            : StrCat("<br/><small>against the exact result: ", Escaped(row.quality), "</small>"),
        "</td>");
    StrAppend(out, "<td class=\"n\">", Escaped(PercentText(row.difference)), "</td>");
    const std::pair<std::string_view, std::string> figures[] = {
        {"interval", IntervalText(row.low, row.high)},
        {"band", BandText(row.band)},
        {"challenger µs", MicrosecondsText(row.challenger_us)},
        {"incumbent µs", MicrosecondsText(row.incumbent_us)}};
    for (const auto& [of, figure] : figures) {
      StrAppend(out, "<td class=\"n\" data-of=\"", of, "\">", Escaped(figure), "</td>");
    }
    StrAppend(out, "</tr>\n");
  }
  StrAppend(out, "</table></div>\n</div>\n");
}

void Results(std::string* out, const std::vector<Row>& rows) {
  if (rows.empty()) return;
  StrAppend(out,
            "<h2>Results</h2>\n<p>Differences are of the challenger's time; negative is "
            "faster. The noise band is shaded. Sessions × rounds stand beside each "
            "verdict.</p>\n");
  const auto key = [](const Row& row) {
    return std::make_tuple(Named(row.challenger), Named(row.incumbent), row.where, row.kind);
  };
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    while (end < rows.size() && key(rows[end]) == key(rows[begin])) ++end;
    const auto at = [&](size_t i) { return rows.begin() + static_cast<std::ptrdiff_t>(i); };
    Comparison(out, {at(begin), at(end)});
  }
}

void SinglesSection(std::string* out, const std::vector<Singles>& all) {
  if (all.empty()) return;
  StrAppend(out,
            "<h2>One choice for all keys</h2>\n<p>What is selected for each key against one choice "
            "for all of them. Differences are of its own choice's time; negative is faster. The "
            "noise band is shaded. Rounds stand beside each verdict.</p>\n");
  for (const Singles& singles : all) {
    std::vector<Row> measured;
    std::string table;
    for (const Row& row : singles.rows) {
      if (row.rounds > 0) measured.push_back(row);
      StrAppend(&table, "<tr><td>", Breakable(row.axes), "</td><td>",
                Breakable(Named(row.challenger)), "</td><td class=\"v ", VerdictClass(row.verdict),
                "\">", Escaped(row.verdict), " <small class=\"k\">", row.rounds, "</small>",
                row.reason.empty() ? "" : StrCat("<br/><small>", Escaped(row.reason), "</small>"),
                "</td>");
      for (const std::string& figure :
           {PercentText(row.difference), IntervalText(row.low, row.high), BandText(row.band),
            MicrosecondsText(row.challenger_us), MicrosecondsText(row.incumbent_us)}) {
        StrAppend(&table, "<td class=\"n\">", Escaped(figure), "</td>");
      }
      table += "</tr>\n";
    }
    StrAppend(out, "<h3>", Breakable(Named(singles.single)), " for all",
              singles.keys.empty() ? "" : " of ", Escaped(singles.keys),
              singles.where.empty() ? "" : ", ", Escaped(singles.where),
              "</h3>\n<div class=\"pair\">\n", Figure("", IntervalPlot(measured)),
              "<div class=\"wide\"><table>\n<tr><th>key</th><th>its own choice</th>"
              "<th>verdict</th><th class=\"n\">difference</th><th class=\"n\">interval</th>"
              "<th class=\"n\">band</th><th class=\"n\">its own µs</th>"
              "<th class=\"n\">one for all µs</th></tr>\n",
              table, "</table></div>\n</div>\n");
  }
}

// The plot beside its figures.
void Scaled(std::string* out, const Scaling& scaling) {
  const ScalingTable table = Tabulated(scaling);
  StrAppend(out, "<h2>Time over ", Escaped(scaling.axis), scaling.rest.empty() ? "" : ", ",
            Escaped(scaling.rest), "</h2>\n<p>", Escaped(kScalingNote),
            "</p>\n<div class=\"pair\">\n", Figure("", ScalingPlot(scaling)),
            "<div class=\"wide\"><table>\n<tr><th class=\"n\">", Escaped(scaling.axis), "</th>");
  for (const std::string& column : table.columns) {
    StrAppend(out, "<th class=\"n\">", Escaped(column), "</th>");
  }
  StrAppend(out, "</tr>\n");
  for (const auto& [x, cells] : table.rows) {
    StrAppend(out, "<tr><td class=\"n\">", x, "</td>");
    for (const std::string& cell : cells) StrAppend(out, "<td class=\"n\">", cell, "</td>");
    StrAppend(out, "</tr>\n");
  }
  StrAppend(out, "</table></div>\n</div>\n");
}

void NoiseSection(std::string* out, const std::vector<Noise>& noise) {
  if (noise.empty()) return;
  StrAppend(out, "<h2>Noise</h2>\n<div class=\"pair\">\n", Figure("", NoisePlot(noise)),
            "<div class=\"wide\"><table>\n<tr><th>shape</th><th class=\"n\">band</th>"
            "<th class=\"n\">of a session</th><th class=\"n\">sessions × rounds</th>"
            "<th>date</th></tr>\n");
  for (const Noise& n : noise) {
    StrAppend(out, "<tr><td>", Breakable(n.axes), n.where.empty() ? "" : ", ", Escaped(n.where),
              "</td><td class=\"n\">", Escaped(BandText(n.band)), "</td><td class=\"n\">",
              Escaped(SpreadText(n.sigma)), "</td><td class=\"n\">", n.sessions, " × ", n.rounds,
              "</td><td class=\"k\">", Escaped(n.date), "</td></tr>\n");
  }
  StrAppend(out, "</table></div>\n</div>\n");
}

void ReportedSection(std::string* out, const std::vector<Reported>& reported) {
  if (reported.empty()) return;
  StrAppend(out,
            "<h2>Reported elsewhere</h2>\n<p>Read against the band alone; of the unit, higher "
            "is better.</p>\n<div class=\"wide\"><table>\n<tr><th>shape</th>"
            "<th>challenger</th><th>incumbent</th><th>verdict</th><th class=\"n\">reported"
            "</th><th>unit</th><th class=\"n\">band</th><th>remark</th><th>source</th></tr>\n");
  for (const Reported& r : reported) {
    StrAppend(out, "<tr><td>", Breakable(r.axes), "</td><td>", Escaped(Named(r.challenger)),
              "</td><td>", Escaped(Named(r.incumbent)), "</td><td class=\"v ",
              VerdictClass(r.verdict), "\">", Escaped(r.verdict), "</td><td class=\"n\">",
              PercentsText(r.percents), "</td><td>", Escaped(r.unit), "</td><td class=\"n\">",
              absl::StrFormat("±%.1f %%", r.band_percent), "</td><td>", Escaped(r.remark),
              "</td><td>", Escaped(r.source), "</td></tr>\n");
  }
  StrAppend(out, "</table></div>\n");
}

}  // namespace

std::string ToHtml(const Report& report) {
  std::string out = StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>",
      Escaped(report.title), "</title>\n<style>\n", kPalette, kPageStyle, kPictureStyle,
      "</style>\n</head>\n<body>\n<h1>", Escaped(report.title), "</h1>\n");
  if (!report.conclusion.empty()) {
    StrAppend(&out, "<div class=\"verdict\"><div", Columns(report.conclusion), ">\n");
    for (const std::string& text : report.conclusion)
      StrAppend(&out, "<p>", Breakable(text), "</p>\n");
    StrAppend(&out, "</div></div>\n");
  }
  Paragraphs(&out, "What", report.what);
  Paragraphs(&out, "Why", report.why);
  Results(&out, report.rows);
  SinglesSection(&out, report.singles);
  for (const Scaling& scaling : report.scalings) Scaled(&out, scaling);
  std::vector<std::string> figures;
  for (const Samples& samples : report.samples) {
    figures.push_back(Figure(samples.title, SamplePlot(samples)));
  }
  Figures(&out, "Samples in the order taken", figures);
  figures.clear();
  for (const Funnel& funnel : report.funnels) {
    figures.push_back(Figure(funnel.title, FunnelPlot(funnel)));
  }
  Figures(&out, "Races: configs that each stage kept", figures);
  List(&out, "Regret", report.regret);
  NoiseSection(&out, report.noise);
  List(&out, "Selected", report.published);
  List(&out, "What did not work", report.negatives);
  ReportedSection(&out, report.reported);
  Paragraphs(&out, "How", report.how);
  Paragraphs(&out, "Baseline", report.baseline);
  if (!report.environment.empty()) {
    StrAppend(&out, "<h2>Environment</h2>\n<div class=\"wide\"><table>\n");
    for (const auto& [name, value] : report.environment) {
      StrAppend(&out, "<tr><th class=\"k\">", Escaped(name), "</th><td>", Escaped(value),
                "</td></tr>\n");
    }
    StrAppend(&out, "</table></div>\n");
  }
  return out + "</body>\n</html>\n";
}

}  // namespace kvr::report
