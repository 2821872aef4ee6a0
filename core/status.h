// SPDX-License-Identifier: Apache-2.0
//
// The one error vocabulary: absl::Status with the canonical code that fits, and a message of two
// parts: *what* is wrong (and where), and the *fix* that would make it right. The CLI prints one
// line of each; `--json` gives the same parts as data.
//
// Threading: pure functions. Errors are values; no function of KVR throws across a house's border.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kvr {

// Error(kInvalidArgument, "axis 'topk' is 0", "give a positive integer, as in topk=512")
absl::Status Error(absl::StatusCode code, std::string_view what, std::string_view fix);

// The same, placed in a file the contributor wrote: "variant.toml:12:9: what". Line and column
// count from 1; 0 leaves them out.
absl::Status ErrorAt(absl::StatusCode code, std::string_view file, int line, int column,
                     std::string_view what, std::string_view fix);

// The two parts of a status made by Error(). A status made elsewhere is all "what", no fix.
std::string_view What(const absl::Status& status);
std::string_view Fix(const absl::Status& status);

// Same code and fix, with `context` + ": " in front of the what.
absl::Status WithContext(std::string_view context, const absl::Status& status);

}  // namespace kvr

#define KVR_CONCAT_INNER_(a, b) a##b
#define KVR_CONCAT_(a, b) KVR_CONCAT_INNER_(a, b)

#define KVR_RETURN_IF_ERROR(expr)                               \
  do {                                                          \
    if (absl::Status kvr_status_ = (expr); !kvr_status_.ok()) { \
      return kvr_status_;                                       \
    }                                                           \
  } while (false)

// KVR_ASSIGN_OR_RETURN(Config config, ParseConfig(text, tunables));
#define KVR_ASSIGN_OR_RETURN(lhs, expr) \
  KVR_ASSIGN_OR_RETURN_IMPL_(KVR_CONCAT_(kvr_statusor_, __LINE__), lhs, expr)
#define KVR_ASSIGN_OR_RETURN_IMPL_(result, lhs, expr) \
  auto result = (expr);                               \
  if (!result.ok()) {                                 \
    return std::move(result).status();                \
  }                                                   \
  lhs = *std::move(result)
