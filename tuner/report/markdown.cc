// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_format.h"
#include "core/strings.h"
#include "tuner/report/report.h"

namespace kvr::report {
namespace {

// Text that stays text: names may hold what Markdown reads as markup, and a table's cell ends at a
// bar or a line's end. Braces, commas and the like are left readable.
std::string Plain(std::string_view text) {
  std::string plain;
  for (char c : text) {
    if (c == '<') {
      plain += "&lt;";
    } else if (c == '&') {
      plain += "&amp;";
    } else if (c == '\n' || c == '\r') {
      plain += ' ';
    } else {
      if (c == '|' || c == '*' || c == '`' || c == '[' || c == ']' || c == '\\') plain += '\\';
      plain += c;
    }
  }
  return plain;
}

void Section(std::string* out, std::string_view heading, const std::vector<std::string>& lines,
             std::string_view bullet = "") {
  if (lines.empty()) return;
  StrAppend(out, "\n## ", heading, "\n");
  std::string_view before = "\n";
  for (const std::string& line : lines) {
    StrAppend(out, before, bullet, Plain(line), "\n");
    if (!bullet.empty()) before = "";
  }
}

void Rows(std::string* out, const Report& report) {
  if (report.rows.empty()) return;
  const bool any_quality = std::any_of(report.rows.begin(), report.rows.end(),
                                       [](const Row& row) { return !row.quality.empty(); });
  StrAppend(out, "\n## Results\n\n",
            "| shape | challenger | verdict | difference | interval | band | challenger µs | "
            "incumbent µs | incumbent |",
            any_quality ? " against the exact result |" : "",
            "\n|---|---|---|--:|--:|--:|--:|--:|---|", any_quality ? "---|" : "", "\n");
  for (const Row& row : report.rows) {
    StrAppend(out, "| ", Plain(row.axes), row.where.empty() ? "" : ", ", Plain(row.where), " | ",
              Plain(Named(row.challenger)), " | ", Plain(row.verdict), " (", Plain(row.kind), ", ",
              row.sessions, " × ", row.rounds, ")", row.reason.empty() ? "" : ": ",
              Plain(row.reason), " | ", PercentText(row.difference), " | ",
              IntervalText(row.low, row.high), " | ", BandText(row.band), " | ",
              MicrosecondsText(row.challenger_us), " | ", MicrosecondsText(row.incumbent_us), " | ",
              Plain(Named(row.incumbent)), " |",
              any_quality ? StrCat(" ", Plain(row.quality), " |") : "", "\n");
  }
  StrAppend(out,
            "\nDifferences are of the challenger's time; negative is faster. Sessions × rounds "
            "stand beside each verdict.\n");
}

void AllSingles(std::string* out, const std::vector<Singles>& all) {
  if (all.empty()) return;
  StrAppend(out, "\n## One choice for all keys\n");
  for (const Singles& singles : all) {
    StrAppend(out, "\n", Plain(Named(singles.single)), " for all",
              singles.keys.empty() ? "" : " of ", Plain(singles.keys),
              singles.where.empty() ? "" : ", ", Plain(singles.where),
              ":\n\n| key | its own choice | verdict | difference | interval | band | its own µs | "
              "one for all µs |\n|---|---|---|--:|--:|--:|--:|--:|\n");
    for (const Row& row : singles.rows) {
      StrAppend(out, "| ", Plain(row.axes), " | ", Plain(Named(row.challenger)), " | ",
                Plain(row.verdict), row.rounds > 0 ? StrCat(" (", row.rounds, ")") : "",
                row.reason.empty() ? "" : ": ", Plain(row.reason), " | ",
                PercentText(row.difference), " | ", IntervalText(row.low, row.high), " | ",
                BandText(row.band), " | ", MicrosecondsText(row.challenger_us), " | ",
                MicrosecondsText(row.incumbent_us), " |\n");
    }
  }
  StrAppend(out,
            "\nDifferences are of its own choice's time; negative is faster. Rounds stand beside "
            "each verdict.\n");
}

void Reports(std::string* out, const std::vector<Reported>& reported) {
  if (reported.empty()) return;
  StrAppend(out, "\n## Reported elsewhere\n\n",
            "| shape | challenger | incumbent | verdict | reported | unit | band | remark | source "
            "|\n|---|---|---|---|--:|---|--:|---|---|\n");
  for (const Reported& r : reported) {
    StrAppend(out, "| ", Plain(r.axes), " | ", Plain(Named(r.challenger)), " | ",
              Plain(Named(r.incumbent)), " | ", Plain(r.verdict), " | ", PercentsText(r.percents),
              " | ", Plain(r.unit), " | ", absl::StrFormat("±%.1f %%", r.band_percent), " | ",
              Plain(r.remark), " | ", Plain(r.source), " |\n");
  }
  StrAppend(out, "\nRead against the band alone; of the unit, higher is better.\n");
}

void Noises(std::string* out, const std::vector<Noise>& noise) {
  if (noise.empty()) return;
  StrAppend(out, "\n## Noise\n\n",
            "| shape | band | of a session | sessions × rounds | session medians | date |\n"
            "|---|--:|--:|--:|---|---|\n");
  for (const Noise& n : noise) {
    std::string medians;
    for (double median : n.medians) {
      StrAppend(&medians, medians.empty() ? "" : ", ", LogText(median));
    }
    StrAppend(out, "| ", Plain(n.axes), n.where.empty() ? "" : ", ", Plain(n.where), " | ",
              BandText(n.band), " | ", SpreadText(n.sigma), " | ", n.sessions, " × ", n.rounds,
              " | ", medians, " | ", Plain(n.date), " |\n");
  }
  StrAppend(out, "\nThe incumbent against itself, in percent.\n");
}

void Scalings(std::string* out, const std::vector<Scaling>& scalings) {
  for (const Scaling& scaling : scalings) {
    const ScalingTable table = Tabulated(scaling);
    StrAppend(out, "\n## Time over ", Plain(scaling.axis), scaling.rest.empty() ? "" : ", ",
              Plain(scaling.rest), "\n\n| ", Plain(scaling.axis), " |");
    for (const std::string& column : table.columns) StrAppend(out, " ", Plain(column), " |");
    StrAppend(out, "\n|--:|");
    for (size_t i = 0; i < table.columns.size(); ++i) StrAppend(out, "--:|");
    StrAppend(out, "\n");
    for (const auto& [x, cells] : table.rows) {
      StrAppend(out, "| ", x, " | ", StrJoin(cells, " | "), " |\n");
    }
    StrAppend(out, "\n", kScalingNote, "\n");
    if (!scaling.floor.empty()) {
      StrAppend(out, "\nThe floor: the bytes that any kernel must move, at the memory's speed.\n");
    }
  }
}

}  // namespace

std::string ToMarkdown(const Report& report) {
  std::string out = StrCat("# ", Plain(report.title), "\n");
  Section(&out, "Conclusion", report.conclusion);
  Section(&out, "What", report.what);
  Section(&out, "Why", report.why);
  Section(&out, "How", report.how);
  if (!report.environment.empty()) {
    StrAppend(&out, "\n## Environment\n\n| | |\n|---|---|\n");
    for (const auto& [name, value] : report.environment) {
      StrAppend(&out, "| ", Plain(name), " | ", Plain(value), " |\n");
    }
  }
  Section(&out, "Baseline", report.baseline);
  Rows(&out, report);
  AllSingles(&out, report.singles);
  Scalings(&out, report.scalings);
  Noises(&out, report.noise);
  for (const Funnel& funnel : report.funnels) {
    StrAppend(&out, "\n## Race at ", Plain(funnel.title),
              "\n\n| stage | entered | kept | rounds |\n|---|--:|--:|--:|\n");
    for (const Funnel::Stage& stage : funnel.stages) {
      StrAppend(&out, "| ", Plain(stage.name), " | ", stage.entered, " | ", stage.kept, " | ",
                stage.rounds, " |\n");
    }
  }
  Section(&out, "Regret", report.regret, "- ");
  Section(&out, "Selected", report.published, "- ");
  Section(&out, "What did not work", report.negatives, "- ");
  Reports(&out, report.reported);
  return out;
}

}  // namespace kvr::report
