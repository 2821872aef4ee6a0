// SPDX-License-Identifier: Apache-2.0
//
// What a LoadReport tells people.
#include <algorithm>
#include <map>
#include <set>

#include "core/status.h"
#include "core/strings.h"
#include "registry/dispatcher.h"

namespace kvr {
namespace {

constexpr size_t kListed = 8;  // values that do not follow each other

std::string Answer(const LoadItem& item) {
  if (!item.status.ok()) return StrCat("not ready: ", What(item.status));
  return StrCat(item.variant, " {", ConfigText(item.config), "}, ", item.why, ", ",
                !item.is_compiled ? std::string("brought by the variant")
                : item.cache_hit
                    ? std::string("cache hit")
                    : StrCat("compiled in ", static_cast<int64_t>(item.compile_ms), " ms"));
}

// "1..96", or "1|2|4|8".
std::string ValuesText(const std::set<int64_t>& values) {
  const int64_t first = *values.begin(), last = *values.rbegin();
  if (first == last) return StrCat(first);
  if (last - first + 1 == static_cast<int64_t>(values.size())) return StrCat(first, "..", last);
  std::string text;
  size_t listed = 0;
  for (const int64_t value : values) {
    if (listed++ == kListed) return StrCat(text, "|...|", last);
    StrAppend(&text, text.empty() ? "" : "|", value);
  }
  return text;
}

// The shapes of one line: "{num_tokens=1..96,topk=512}".
std::string ShapesText(const std::vector<const LoadItem*>& items) {
  std::map<std::string, std::set<int64_t>> values;
  for (const LoadItem* item : items) {
    for (const auto& [axis, value] : item->axes) values[axis].insert(value);
  }
  std::string text;
  for (const auto& [axis, of_axis] : values) {
    StrAppend(&text, text.empty() ? "" : ",", axis, "=", ValuesText(of_axis));
  }
  const std::string count = items.size() > 1 ? StrCat(" (", items.size(), " shapes)") : "";
  return StrCat("{", text, "}", count);
}

}  // namespace

bool LoadReport::ready() const {
  return std::all_of(items.begin(), items.end(), [](const LoadItem& i) { return i.status.ok(); });
}

std::string LoadReport::Text() const {
  if (unchanged) return "unchanged: that generation serves already\n";
  struct Line {
    std::string answer;
    std::vector<const LoadItem*> items;
  };
  std::vector<Line> lines;  // in the order of their first shapes
  std::map<std::pair<Axes, std::string>, size_t> line_of;
  for (const LoadItem& item : items) {
    std::string answer = Answer(item);
    const auto [at, is_new] = line_of.try_emplace({item.key, answer}, lines.size());
    if (is_new) lines.push_back({std::move(answer), {}});
    lines[at->second].items.push_back(&item);
  }
  std::string text;
  for (const Line& line : lines) {
    StrAppend(&text, ShapesText(line.items), ": ", line.answer, "\n");
  }
  if (!fallback.ok()) StrAppend(&text, "no baseline to fall back to: ", What(fallback), "\n");
  return text;
}

}  // namespace kvr
