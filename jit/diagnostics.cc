// SPDX-License-Identifier: Apache-2.0
#include "jit/diagnostics.h"

#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/raw_ostream.h>

#include <algorithm>
#include <optional>

#include "core/status.h"
#include "jit/includes.h"
#include "jit/scan.h"

namespace kvr {
namespace {

// A template's error can repeat a type of many kilobytes in each of a hundred notes.
constexpr size_t kMostErrors = 8;
constexpr int kMostNotes = 4;
constexpr size_t kLongestMessage = 500;

llvm::StringRef Ref(std::string_view text) { return {text.data(), text.size()}; }

llvm::SourceMgr::DiagKind KindOf(Diagnostic::Severity severity) {
  switch (severity) {
    case Diagnostic::Severity::kError:
      return llvm::SourceMgr::DK_Error;
    case Diagnostic::Severity::kWarning:
      return llvm::SourceMgr::DK_Warning;
    case Diagnostic::Severity::kNote:
      return llvm::SourceMgr::DK_Note;
  }
  return llvm::SourceMgr::DK_Error;
}

const BundleFile* FindFile(const Unit& unit, std::string_view name) {
  for (const BundleFile& file : unit.files)
    if (file.name == name) return &file;
  return nullptr;
}

// A column of the rendered line as a column of the author's.
int OriginalColumn(const BundleFile& file, int line, int column) {
  int shift = 0;  // what the substitutions before `column` took away
  for (const Substitution& s : file.substitutions) {
    if (s.line != line || s.column > column) continue;
    if (column < s.column + s.rendered_size) return s.column + shift;
    shift += s.original_size - s.rendered_size;
  }
  return column + shift;
}

std::string Shortened(const std::string& message) {
  return message.size() <= kLongestMessage ? message : message.substr(0, kLongestMessage) + "...";
}

std::string_view ShownName(const BundleFile& file) {
  return file.path.empty() ? file.name : file.path;
}

// The generated check that `diagnostic` is about.
const UnitAssertion* FindAssertion(const Unit& unit, const Diagnostic& diagnostic) {
  for (const UnitAssertion& assertion : unit.assertions)
    if (diagnostic.message.find(assertion.message) != std::string::npos) return &assertion;
  return nullptr;
}

struct AuthorsInclude {
  const BundleFile* file;
  LineColumn at;  // the delimiter
  bool quoted;
};

// Where the bundle includes `name` first.
std::optional<AuthorsInclude> FindInclude(const Unit& unit, std::string_view name) {
  for (const BundleFile& file : unit.files)
    for (const IncludeDirective& include : ScanIncludes(*file.original))
      if (include.name == name)
        return AuthorsInclude{&file, LineColumnAt(*file.original, include.begin - 1),
                              include.quoted};
  return std::nullopt;
}

// The author's include that was moved to line `line` of the unit's text.
std::optional<AuthorsInclude> MovedInclude(const Unit& unit, int line) {
  const std::vector<IncludeDirective> includes = ScanIncludes(LineAt(unit.text, line));
  if (includes.empty()) return std::nullopt;
  return FindInclude(unit, includes[0].name);
}

std::string MissingIncludeFix(const Unit& unit, const std::string& name, std::string_view offered) {
  const std::optional<AuthorsInclude> include = FindInclude(unit, name);
  if (include && include->quoted) {
    return "'" + name +
           "' is no file of the bundle's or the SDK's: list it under `headers`, or correct the "
           "name";
  }
  std::string fix = "<" + name + "> is no file of the bundle's, the SDK's or the compiler's";
  if (!offered.empty()) (fix += "; ") += offered;
  return fix + ". List a file of the bundle's own under `headers`";
}

}  // namespace

std::string RenderDiagnostic(std::string_view file, std::string_view content, int line, int column,
                             Diagnostic::Severity severity, std::string_view message) {
  std::string out;
  llvm::raw_string_ostream stream(out);
  std::string_view text = LineAt(content, line);
  // Without a line to quote, or a place in it to point at, print what there is.
  if (text.empty()) column = 0;
  std::string_view quoted = column > 0 ? text : std::string_view();
  const llvm::SourceMgr sources;
  const llvm::SMDiagnostic diagnostic(sources, llvm::SMLoc(), Ref(file), line > 0 ? line : -1,
                                      column > 0 ? column - 1 : -1, KindOf(severity), Ref(message),
                                      Ref(quoted), {});
  diagnostic.print(nullptr, stream, /*ShowColors=*/false);
  if (column <= 0 && !text.empty()) stream << Ref(text) << "\n";
  stream.flush();
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

std::string RenderDiagnostic(const Unit& unit, const Diagnostic& diagnostic) {
  if (const UnitAssertion* assertion = FindAssertion(unit, diagnostic)) {
    const BundleFile* file = FindFile(unit, assertion->site.file);
    return RenderDiagnostic(file != nullptr ? ShownName(*file) : assertion->site.file,
                            file != nullptr ? std::string_view(*file->original) : "",
                            assertion->site.line, assertion->site.column, diagnostic.severity,
                            assertion->message);
  }
  if (diagnostic.file == kUnitFileName) {
    if (const std::optional<AuthorsInclude> include = MovedInclude(unit, diagnostic.line)) {
      return RenderDiagnostic(ShownName(*include->file), *include->file->original, include->at.line,
                              include->at.column, diagnostic.severity,
                              Shortened(diagnostic.message));
    }
  }
  const BundleFile* file = FindFile(unit, diagnostic.file);
  int column = diagnostic.column;
  if (diagnostic.quoted.find(kSignatureCheck) != std::string::npos) {
    column = 0;
    for (const SourceSite& site : unit.entry_sites)
      if (site.file == diagnostic.file && site.line == diagnostic.line) column = site.column;
  } else if (file != nullptr && column > 0) {
    column = OriginalColumn(*file, diagnostic.line, column);
  }
  if (file != nullptr) {
    return RenderDiagnostic(ShownName(*file), *file->original, diagnostic.line, column,
                            diagnostic.severity, Shortened(diagnostic.message));
  }
  std::string_view content;
  if (const UnitHeader* header = unit.Header(diagnostic.file)) content = *header->content;
  if (diagnostic.file == kUnitFileName) content = unit.text;
  return RenderDiagnostic(diagnostic.file.empty() ? unit.name : diagnostic.file, content,
                          diagnostic.line, column, diagnostic.severity,
                          Shortened(diagnostic.message));
}

absl::Status CompileError(const Unit& unit, absl::Span<const Diagnostic> diagnostics,
                          std::string_view log, std::string_view offered) {
  std::vector<std::string> shown;
  size_t errors = 0;
  bool wanted = false;  // notes belong to the message before them
  int notes = 0;
  const Diagnostic* first = nullptr;
  for (const Diagnostic& diagnostic : diagnostics) {
    if (diagnostic.severity == Diagnostic::Severity::kError) {
      if (first == nullptr) first = &diagnostic;
      wanted = ++errors <= kMostErrors;
      // A generated check says all there is to say.
      notes = FindAssertion(unit, diagnostic) != nullptr ? kMostNotes : 0;
    } else if (diagnostic.severity == Diagnostic::Severity::kWarning || ++notes > kMostNotes) {
      wanted = false;
    }
    // How a generated check came to be instantiated tells the author nothing.
    if (!wanted || diagnostic.message.find(kSignatureCheck) != std::string::npos) continue;
    std::string text = RenderDiagnostic(unit, diagnostic);
    if (std::find(shown.begin(), shown.end(), text) == shown.end()) shown.push_back(text);
  }
  std::string what;
  for (const std::string& text : shown) (what += what.empty() ? "" : "\n") += text;
  if (what.empty()) {
    while (!log.empty() && (log.back() == '\n' || log.back() == ' ')) log.remove_suffix(1);
    what = "the compiler refused " + unit.name + (log.empty() ? " and said nothing" : ":\n");
    what += log;
  }
  if (errors > kMostErrors) what += "\n... and " + std::to_string(errors - kMostErrors) + " more";

  std::string fix = "correct the first error; the others may follow from it";
  if (errors <= 1) fix = "correct it in the bundle's source, or in what variant.toml says of it";
  for (const std::string& name : unit.missing) {
    if (first == nullptr) break;
    // "cannot open source file "x"", "'x' file not found"
    for (const char* quote : {"\"", "'"})
      if (first->message.find(quote + name + quote) != std::string::npos)
        fix = MissingIncludeFix(unit, name, offered);
  }
  return Error(absl::StatusCode::kInvalidArgument, what, fix);
}

}  // namespace kvr
