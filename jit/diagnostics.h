// SPDX-License-Identifier: Apache-2.0
//
// A compiler's messages, brought home: to the contributor's own file, line and column, with the
// line quoted and a caret. Every compiler builds its error with CompileError, so all read alike:
//
//   split.cu:12:9: error: identifier "foo" is undefined
//     foo = 1;
//     ^
//
// Threading: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "jit/unit.h"

namespace kvr {

struct Diagnostic {
  enum class Severity { kError, kWarning, kNote };
  Severity severity = Severity::kError;
  std::string file;  // as the compiler names it: a unit header's name; empty: nowhere
  int line = 0;      // from 1; 0: unknown
  int column = 0;    // in what the compiler saw; 0: unknown
  std::string message;
  std::string quoted;  // the line as the compiler quotes it, if it does: generated lines stand
                       // under the author's numbers and are known by their text
};

// `content`'s line quoted under "file:line:column: error: message" with a caret, no colours.
std::string RenderDiagnostic(std::string_view file, std::string_view content, int line, int column,
                             Diagnostic::Severity severity, std::string_view message);

// The same for a compiler's message about `unit`: generated assertions, replaced placeholders and
// includes moved to the unit's head are mapped back, the author's line is quoted.
std::string RenderDiagnostic(const Unit& unit, const Diagnostic& diagnostic);

// kInvalidArgument with the first errors of `diagnostics` (and the notes that follow each), or
// with `log` if there are none. What starts with "file:line:column: ". `offered` says which headers
// the compiler has, for the fix of an #include that finds none: "the host device has <cmath>".
absl::Status CompileError(const Unit& unit, absl::Span<const Diagnostic> diagnostics,
                          std::string_view log, std::string_view offered = {});

}  // namespace kvr
