// SPDX-License-Identifier: Apache-2.0
#include "core/names.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

// Long typed garbage is cut before the quadratic comparison.
constexpr size_t kMaxCompared = 128;

}  // namespace

bool IsIdentifier(std::string_view text) {
  if (text.empty() || absl::ascii_isdigit(static_cast<unsigned char>(text[0]))) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return c == '_' || absl::ascii_isalnum(static_cast<unsigned char>(c));
  });
}

std::string Quoted(std::string_view text) {
  constexpr size_t kMax = 60;
  std::string shown = absl::CHexEscape(AbslView(text.substr(0, kMax)));
  return StrCat("'", shown, text.size() > kMax ? "..." : "", "'");
}

int EditDistance(std::string_view a, std::string_view b) {
  a = a.substr(0, kMaxCompared);
  b = b.substr(0, kMaxCompared);
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      int above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string_view Nearest(std::string_view name, absl::Span<const std::string_view> legal) {
  std::string lower = absl::AsciiStrToLower(AbslView(name.substr(0, kMaxCompared)));
  std::string_view best;
  int best_distance = std::numeric_limits<int>::max();
  for (std::string_view candidate : legal) {
    int distance = EditDistance(lower, absl::AsciiStrToLower(AbslView(candidate)));
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  // A third of the letters wrong, or two swapped, is a typing error; more is another word.
  const int tolerated = static_cast<int>(lower.size() + 2) / 3;
  return best_distance <= tolerated ? best : std::string_view();
}

std::string SuggestNames(std::string_view name, absl::Span<const std::string_view> legal) {
  if (legal.empty()) return "none is known here";
  std::vector<std::pair<int, size_t>> order;  // distance, position
  for (size_t i = 0; i < legal.size(); ++i) order.emplace_back(EditDistance(name, legal[i]), i);
  std::sort(order.begin(), order.end());
  std::vector<std::string_view> sorted;
  for (const auto& [distance, position] : order) sorted.push_back(legal[position]);
  std::string_view nearest = Nearest(name, legal);
  if (nearest.empty()) return StrCat("known: ", StrJoin(sorted, ", "));
  return StrCat("did you mean '", nearest, "'? known: ", StrJoin(sorted, ", "));
}

absl::Status UnknownName(std::string_view kind, std::string_view name,
                         absl::Span<const std::string_view> legal) {
  return Error(absl::StatusCode::kInvalidArgument, StrCat("unknown ", kind, " ", Quoted(name)),
               SuggestNames(name, legal));
}

absl::StatusOr<int64_t> ParseInteger(std::string_view text, bool negative) {
  std::string_view digits = text;
  if (negative && !digits.empty() && digits[0] == '-') digits.remove_prefix(1);
  bool all_digits = !digits.empty() && std::all_of(digits.begin(), digits.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
  if (!all_digits) {
    const bool minus =
        !negative && text.size() > 1 && text[0] == '-' && ParseInteger(text, true).ok();
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat(Quoted(text), minus ? " is negative" : " is no integer"),
                 negative ? "give a decimal integer, as in 16 or -1"
                          : "give a decimal integer that is not negative, as in 512");
  }
  if (digits.size() > 1 && digits[0] == '0') {
    return Error(absl::StatusCode::kInvalidArgument, StrCat(Quoted(text), " has leading zeros"),
                 "write the number without them: numbers are decimal");
  }
  int64_t value = 0;
  if (!absl::SimpleAtoi(AbslView(text), &value)) {
    return Error(absl::StatusCode::kOutOfRange, StrCat(Quoted(text), " is too large"),
                 "values are signed 64-bit integers");
  }
  return value;
}

absl::StatusOr<std::vector<std::pair<std::string_view, std::string_view>>> SplitAssignments(
    std::string_view text, std::string_view kind) {
  std::vector<std::pair<std::string_view, std::string_view>> result;
  if (text.empty()) return result;
  std::set<std::string_view> seen;
  for (std::string_view piece : Split(text, ',')) {
    if (piece.empty()) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("empty piece between commas in ", Quoted(text)),
                   "write name=value,name=value without leading, trailing or double commas");
    }
    size_t equals = piece.find('=');
    if (equals == std::string_view::npos) {
      return Error(absl::StatusCode::kInvalidArgument, StrCat(Quoted(piece), " has no '='"),
                   "write name=value, as in topk=512");
    }
    std::string_view name = piece.substr(0, equals);
    if (!IsIdentifier(name)) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat(Quoted(name), " in ", Quoted(piece), " is no ", kind, " name"),
                   "names are letters, digits and '_', without blanks");
    }
    if (!seen.insert(name).second) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat(kind, " '", name, "' is given twice in ", Quoted(text)),
                   "give each name once");
    }
    result.emplace_back(name, piece.substr(equals + 1));
  }
  return result;
}

absl::StatusOr<std::vector<std::pair<std::string, int64_t>>> ParseAssignments(std::string_view text,
                                                                              std::string_view kind,
                                                                              bool negative) {
  KVR_ASSIGN_OR_RETURN(const auto pieces, SplitAssignments(text, kind));
  std::vector<std::pair<std::string, int64_t>> result;
  for (const auto& [name, value_text] : pieces) {
    absl::StatusOr<int64_t> value = ParseInteger(value_text, negative);
    if (!value.ok()) return WithContext(StrCat(kind, " '", name, "'"), value.status());
    result.emplace_back(name, *value);
  }
  return result;
}

}  // namespace kvr
