// SPDX-License-Identifier: Apache-2.0
#include "plugins/toml_guard.h"

#include <algorithm>
#include <string>

#include "core/status.h"
#include "core/strings.h"
#include "plugins/manifest.h"

namespace kvr::bundle {
namespace {

// Behind the string that opens at `at`; a one-line string ends with its line at the latest.
size_t StringEnd(std::string_view text, size_t at) {
  const char quote = text[at];
  const std::string triple(3, quote);
  const bool multi = text.substr(at, 3) == triple;
  for (size_t i = at + (multi ? 3 : 1); i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (multi && text.substr(i, 3) == triple) {
      return i + 3;
    } else if (!multi && text[i] == quote) {
      return i + 1;
    } else if (!multi && text[i] == '\n') {
      return i;
    }
  }
  return text.size();
}

}  // namespace

absl::Status CheckDots(std::string_view text, std::string_view file) {
  int dots = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
    } else if (c == '"' || c == '\'') {
      i = StringEnd(text, i) - 1;
    } else if (c == '.' && ++dots > kMaxDots) {
      const auto line = 1 + std::count(text.begin(), text.begin() + i, '\n');
      return Invalid({std::string(file), static_cast<int>(line), 0},
                     StrCat("more than ", kMaxDots, " dotted keys"),
                     "a manifest nests two tables at most, as in [tunables.NAME]");
    }
  }
  return absl::OkStatus();
}

}  // namespace kvr::bundle
