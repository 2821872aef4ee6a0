// SPDX-License-Identifier: Apache-2.0
//
// Names that people type: what a legal one looks like, and what to say when one is unknown: the
// nearest legal name by edit distance, and all legal ones.
//
//   return UnknownName("axis", "topkk", {"topk", "page_size"});
//   // INVALID_ARGUMENT: unknown axis 'topkk'
//   // fix: did you mean 'topk'? known: topk, page_size
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace kvr {

// [A-Za-z_][A-Za-z0-9_]*
bool IsIdentifier(std::string_view text);

// Text for an error message: quoted, control characters escaped, cut after 60 bytes.
std::string Quoted(std::string_view text);

int EditDistance(std::string_view a, std::string_view b);

// The legal name that `name` was probably meant to be; empty if none is near enough to say so.
std::string_view Nearest(std::string_view name, absl::Span<const std::string_view> legal);

// "did you mean 'topk'? known: topk, page_size", nearest first.
std::string SuggestNames(std::string_view name, absl::Span<const std::string_view> legal);

// kInvalidArgument; `kind` is the noun: "axis", "tunable", "dtype".
absl::Status UnknownName(std::string_view kind, std::string_view name,
                         absl::Span<const std::string_view> legal);

// A whole decimal integer: no blanks, no '+', no leading zeros; '-' only where `negative` says so.
absl::StatusOr<int64_t> ParseInteger(std::string_view text, bool negative);

// "a=1,b=2..4" as ("a", "1"), ("b", "2..4"), in order; empty text is no assignment. Each name once.
// The views point into `text`. Errors quote the piece and call the names `kind`.
absl::StatusOr<std::vector<std::pair<std::string_view, std::string_view>>> SplitAssignments(
    std::string_view text, std::string_view kind);

// "a=1,b=2" in order; empty text is no assignment. Errors quote the piece and call the names
// `kind`.
absl::StatusOr<std::vector<std::pair<std::string, int64_t>>> ParseAssignments(std::string_view text,
                                                                              std::string_view kind,
                                                                              bool negative);

}  // namespace kvr
