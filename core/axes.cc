// SPDX-License-Identifier: Apache-2.0
#include "core/axes.h"

#include <utility>

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {

absl::StatusOr<Axes> ParseAxes(std::string_view text) {
  KVR_ASSIGN_OR_RETURN(auto pairs, ParseAssignments(text, "axis", /*negative=*/false));
  return Axes(pairs.begin(), pairs.end());
}

absl::StatusOr<std::vector<Axes>> ExpandAxes(std::string_view text) {
  KVR_ASSIGN_OR_RETURN(const auto pieces, SplitAssignments(text, "axis"));
  struct Range {
    std::string_view name;
    int64_t first, last;
  };
  std::vector<Range> ranges;
  int64_t shapes = 1;
  for (const auto& [name, value] : pieces) {
    const size_t dots = value.find("..");
    const std::string_view last_text =
        dots == std::string_view::npos ? value : value.substr(dots + 2);
    const absl::StatusOr<int64_t> first = ParseInteger(value.substr(0, dots), /*negative=*/false);
    const absl::StatusOr<int64_t> last = ParseInteger(last_text, /*negative=*/false);
    for (const absl::Status& status : {first.status(), last.status()}) {
      if (!status.ok()) return WithContext(StrCat("axis '", name, "'"), status);
    }
    if (*first > *last) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("axis '", name, "': the range ", Quoted(value), " is empty"),
                   "write the smaller value first, as in 1..96");
    }
    if (*last - *first >= kMaxShapes || (shapes *= *last - *first + 1) > kMaxShapes) {
      return Error(absl::StatusCode::kOutOfRange,
                   StrCat(Quoted(text), " stands for more than ", kMaxShapes, " shapes"),
                   "name fewer: shapes of one tuning key launch alike, so one of each key will do");
    }
    ranges.push_back({name, *first, *last});
  }
  std::vector<Axes> expanded(1);
  for (const Range& range : ranges) {
    std::vector<Axes> next;
    next.reserve(expanded.size() * static_cast<size_t>(range.last - range.first + 1));
    for (const Axes& axes : expanded) {
      for (int64_t i = 0; i <= range.last - range.first; ++i) {
        next.emplace_back(axes).emplace(range.name, range.first + i);
      }
    }
    expanded = std::move(next);
  }
  return expanded;
}

std::string AxesText(const Axes& axes) { return JoinPairs(axes); }

}  // namespace kvr
