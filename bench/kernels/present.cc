// SPDX-License-Identifier: Apache-2.0
//
// A document for people: tables that fit a terminal, and plots of time over what it depends on.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "bench/kernels/result.h"
#include "core/strings.h"
#include "tuner/report/plot.h"

namespace kvr::bench {
namespace {

using Cells = std::vector<std::string>;

bool IsMoe(const Json& row) { return row.contains("active_experts"); }
double RooflineUs(const Json& row) { return row.at(IsMoe(row) ? "stream_us" : "gather_us"); }
bool IsExact(const Json& row) { return row.at("semantics") == "exact"; }

// Columns as wide as their widest cell; the first cells of the first line are titles. All but the
// columns named in `left` are figures.
std::string Aligned(const std::vector<Cells>& lines, const std::vector<size_t>& left) {
  std::vector<size_t> widths;
  for (const Cells& line : lines) {
    widths.resize(std::max(widths.size(), line.size()));
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string out;
  for (const Cells& line : lines) {
    std::string text;
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string pad(widths[i] - line[i].size(), ' ');
      const bool is_left = std::find(left.begin(), left.end(), i) != left.end();
      StrAppend(&text, i == 0 ? "" : "  ", is_left ? line[i] + pad : pad + line[i]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    StrAppend(&out, text, "\n");
  }
  return out;
}

std::string Number(const Json& value) {
  return value.is_number_float() ? absl::StrFormat("%g", value.get<double>())
                                 : StrCat(value.get<int64_t>());
}

Cells ShapeTitles(bool moe) {
  return moe ? Cells{"shape", "tokens", "experts"} : Cells{"heads", "topk", "tokens"};
}

Cells ShapeCells(const Json& row) {
  if (IsMoe(row)) {
    return {row.at("shape"), Number(row.at("num_tokens")), Number(row.at("active_experts"))};
  }
  return {Number(row.at("num_qo_heads")), Number(row.at("topk")), Number(row.at("num_tokens"))};
}

// Rows of one shape stand together, in the order measured.
std::vector<std::vector<const Json*>> ByShape(const Json& document) {
  std::vector<std::vector<const Json*>> shapes;
  for (const Json& row : document.at("rows")) {
    if (shapes.empty() || shapes.back().front()->at("axes") != row.at("axes")) {
      shapes.emplace_back();
    }
    shapes.back().push_back(&row);
  }
  return shapes;
}

// Who was selected, else the fastest exact one; null: none is exact.
const Json* BestOf(const std::vector<const Json*>& rows) {
  const Json* best = nullptr;
  for (const Json* row : rows) {
    if (!IsExact(*row)) continue;
    if (row->at("selected") == true) return row;
    if (best == nullptr || row->at("us") < best->at("us")) best = row;
  }
  return best;
}

// What a reader of a row's time must know.
std::string Remark(const Json& document, const Json& row) {
  if (row.contains("trouble")) return " (in trouble)";
  if (row.contains("cut_short")) return " (cut short)";
  const bool host = document.at("environment").at("target") == "host";  // nothing is cold there
  return host || row.at("cold") == true ? "" : " (L2 not cold)";
}

// Has the document rows of the whole model beside those of a smaller one?
bool IsWholeToo(const Json& document, const std::string& shape) {
  const Json& rows = document.at("rows");
  return std::any_of(rows.begin(), rows.end(), [&](const Json& row) {
    return row.at("shape") == shape && !row.contains("scaled");
  });
}

std::string PercentOf(double share) { return absl::StrFormat("%+.2f %%", 100 * share); }

}  // namespace

std::string ShapeTable(const Json& document) {
  const std::vector<std::vector<const Json*>> shapes = ByShape(document);
  if (shapes.empty()) return "nothing was measured\n";
  const bool moe = IsMoe(*shapes.front().front());
  Cells titles = ShapeTitles(moe);
  for (const char* title : {moe ? "stream us" : "gather us", "best us", "x", "over us", "A/A"}) {
    titles.emplace_back(title);
  }
  titles.emplace_back("variant");
  std::vector<Cells> lines = {titles};
  for (const std::vector<const Json*>& rows : shapes) {
    const Json* best = BestOf(rows);
    if (best == nullptr) continue;
    const double us = best->at("us"), floor = RooflineUs(*best);
    std::string aa = "-";
    for (const Json* row : rows) {
      if (row->contains("aa")) aa = PercentOf(row->at("aa"));
    }
    Cells line = ShapeCells(*best);
    line.push_back(absl::StrFormat("%.2f", floor));
    line.push_back(absl::StrFormat("%.2f", us));
    line.push_back(absl::StrFormat("%.2f", us / floor));
    line.push_back(absl::StrFormat("%.2f", us - floor));
    line.push_back(aa);
    line.push_back(best->at("variant").get<std::string>() + Remark(document, *best));
    lines.push_back(std::move(line));
  }
  return Aligned(lines, moe ? std::vector<size_t>{0, titles.size() - 1}
                            : std::vector<size_t>{titles.size() - 1});
}

std::string RowTable(const Json& document) {
  if (document.at("rows").empty()) return "nothing was measured\n";
  const bool moe = IsMoe(document.at("rows").front());
  Cells titles = ShapeTitles(moe);
  for (const char* title : {moe ? "stream us" : "gather us", "us", "x", "spread", "A/A"}) {
    titles.emplace_back(title);
  }
  for (const char* title : {"variant", "config"}) titles.emplace_back(title);
  std::vector<Cells> lines = {titles};
  for (const Json& row : document.at("rows")) {
    const double us = row.at("us"), floor = RooflineUs(row);
    Cells line = ShapeCells(row);
    line.push_back(absl::StrFormat("%.2f", floor));
    line.push_back(absl::StrFormat("%.2f", us));
    line.push_back(absl::StrFormat("%.2f", us / floor));
    line.push_back(row.at("spread").is_number()
                       ? absl::StrFormat("%.2f %%", 100 * row.at("spread").get<double>())
                       : "-");
    line.push_back(row.contains("aa") ? PercentOf(row.at("aa")) : "-");
    line.push_back(StrCat(row.at("variant").get<std::string>(),
                          row.at("selected") == true ? " *" : "", Remark(document, row)));
    line.push_back(row.at("config"));
    lines.push_back(std::move(line));
  }
  const size_t last = titles.size() - 1;
  return Aligned(
      lines, moe ? std::vector<size_t>{0, last - 1, last} : std::vector<size_t>{last - 1, last});
}

std::vector<Plot> PlotsOf(const Json& document) {
  const std::string op = document.at("op");
  struct Group {
    std::string name, title, axis;
    std::vector<const Json*> rows;
  };
  std::map<std::string, Group> groups;
  for (const Json& row : document.at("rows")) {
    if (row.contains("trouble")) continue;
    Group group;
    if (IsMoe(row)) {
      const std::string shape = row.at("shape"), scaled = row.value("scaled", "");
      const bool both = !scaled.empty() && IsWholeToo(document, shape);
      group = {StrCat(op, "-", shape, both ? "-scaled" : ""),
               StrCat(op, ", ", shape, both ? StrCat(", ", scaled) : ""),
               "active_experts",
               {}};
    } else {
      const std::string heads = Number(row.at("num_qo_heads")), topk = Number(row.at("topk"));
      group = {StrCat(op, "-h", heads, "-k", topk),
               StrCat(op, ", ", heads, " heads, topk ", topk),
               "num_tokens",
               {}};
    }
    groups.try_emplace(group.name, group).first->second.rows.push_back(&row);
  }
  std::vector<Plot> plots;
  for (const auto& [name, group] : groups) {
    report::Scaling scaling{group.axis, "", {}, {}};
    std::map<double, double> floor;
    std::map<std::string, std::map<double, double>> lines;
    std::map<std::string, int> selected;
    for (const Json* row : group.rows) {
      const double x = row->at(group.axis);
      const std::string variant = row->at("variant");
      floor[x] = RooflineUs(*row);
      lines[variant][x] = row->at("us");
      selected[variant] += row->at("selected") == true ? 1 : 0;
    }
    std::vector<std::string> order;
    for (const auto& [variant, points] : lines) order.push_back(variant);
    std::sort(order.begin(), order.end(), [&](const std::string& a, const std::string& b) {
      return std::make_pair(-selected[a], a) < std::make_pair(-selected[b], b);
    });
    for (const std::string& variant : order) {
      scaling.lines.push_back({variant, {}});
      for (const auto& [x, us] : lines[variant]) scaling.lines.back().points.push_back({x, us});
    }
    for (const auto& [x, us] : floor) scaling.floor.push_back({x, us});
    plots.push_back({name, report::ScalingPicture(scaling, group.title)});
  }
  return plots;
}

}  // namespace kvr::bench
