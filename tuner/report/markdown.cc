// SPDX-License-Identifier: Apache-2.0
#include "core/strings.h"
#include "tuner/report/report.h"

namespace kvr::report {
namespace {

// Text that must not end a table's cell.
std::string Cell(std::string_view text) {
  std::string cell;
  for (char c : text) {
    if (c == '|') cell += '\\';
    cell += c == '\n' ? ' ' : c;
  }
  return cell;
}

void Section(std::string* out, std::string_view heading, const std::vector<std::string>& lines,
             std::string_view bullet = "") {
  if (lines.empty()) return;
  StrAppend(out, "\n## ", heading, "\n");
  std::string_view before = "\n";
  for (const std::string& line : lines) {
    StrAppend(out, before, bullet, line, "\n");
    if (!bullet.empty()) before = "";
  }
}

std::string Named(const Contestant& c) {
  return c.config.empty() ? c.variant : StrCat(c.variant, " {", c.config, "}");
}

void Rows(std::string* out, const Report& report) {
  if (report.rows.empty()) return;
  StrAppend(out, "\n## Results\n\n",
            "| shape | challenger | verdict | difference | interval | band | challenger µs | "
            "incumbent µs | incumbent |\n|---|---|---|--:|--:|--:|--:|--:|---|\n");
  for (const Row& row : report.rows) {
    StrAppend(out, "| ", Cell(row.axes), " | ", Cell(Named(row.challenger)), " | ", row.verdict,
              " (", row.kind, ", ", row.sessions, " × ", row.rounds, ")",
              row.reason.empty() ? "" : ": ", Cell(row.reason), " | ", PercentText(row.difference),
              " | ", IntervalText(row.low, row.high), " | ", BandText(row.band), " | ",
              MicrosecondsText(row.challenger_us), " | ", MicrosecondsText(row.incumbent_us), " | ",
              Cell(Named(row.incumbent)), " |\n");
  }
  StrAppend(out,
            "\nDifferences are of the challenger's time; negative is faster. Sessions × rounds "
            "stand beside each verdict.\n");
}

}  // namespace

std::string ToMarkdown(const Report& report) {
  std::string out = StrCat("# ", report.title, "\n");
  Section(&out, "What", report.what);
  Section(&out, "Why", report.why);
  Section(&out, "How", report.how);
  if (!report.environment.empty()) {
    StrAppend(&out, "\n## Environment\n\n| | |\n|---|---|\n");
    for (const auto& [name, value] : report.environment) {
      StrAppend(&out, "| ", Cell(name), " | ", Cell(value), " |\n");
    }
  }
  if (!report.baseline.empty()) Section(&out, "Baseline", {report.baseline});
  Rows(&out, report);
  Section(&out, "Noise", report.bands, "- ");
  for (const Funnel& funnel : report.funnels) {
    StrAppend(&out, "\n## Race at ", funnel.axes, "\n\n| stage | entered | kept | rounds |\n",
              "|---|--:|--:|--:|\n");
    for (const Funnel::Stage& stage : funnel.stages) {
      StrAppend(&out, "| ", Cell(stage.name), " | ", stage.entered, " | ", stage.kept, " | ",
                stage.rounds, " |\n");
    }
  }
  if (!report.conclusion.empty()) Section(&out, "Conclusion", {report.conclusion});
  Section(&out, "What did not work", report.negatives, "- ");
  return out;
}

}  // namespace kvr::report
