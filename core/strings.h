// SPDX-License-Identifier: Apache-2.0
//
// Abseil's string helpers for std::string_view. Debian builds Abseil with its own string_view,
// which converts neither to nor from the standard one; KVR speaks std::string_view everywhere and
// converts here. StrCat and StrAppend take what absl::StrCat takes, and std::string_view.
//
// Threading: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace kvr {

inline absl::string_view AbslView(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view StdView(absl::string_view text) { return {text.data(), text.size()}; }

namespace strings_internal {
template <typename T>
decltype(auto) Arg(const T& value) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return AbslView(value);
  } else {
    return (value);
  }
}
}  // namespace strings_internal

template <typename... T>
std::string StrCat(const T&... parts) {
  return absl::StrCat(strings_internal::Arg(parts)...);
}

template <typename... T>
void StrAppend(std::string* text, const T&... parts) {
  absl::StrAppend(text, strings_internal::Arg(parts)...);
}

// Elements are whatever StrCat takes.
template <typename Range>
std::string StrJoin(const Range& range, std::string_view separator) {
  std::string result;
  bool first = true;
  for (const auto& element : range) {
    if (!first) result.append(separator);
    first = false;
    StrAppend(&result, element);
  }
  return result;
}

// "name=value,name=value" of a map.
template <typename Map>
std::string JoinPairs(const Map& map) {
  std::string result;
  for (const auto& [name, value] : map) {
    StrAppend(&result, result.empty() ? "" : ",", name, "=", value);
  }
  return result;
}

// Every piece, empty ones too; "" is one empty piece.
inline std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (size_t begin = 0;;) {
    size_t end = text.find(separator, begin);
    pieces.push_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) return pieces;
    begin = end + 1;
  }
}

// Without blanks, tabs and line ends at either side.
inline std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

}  // namespace kvr
