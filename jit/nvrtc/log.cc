// SPDX-License-Identifier: Apache-2.0
#include "jit/nvrtc/log.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "jit/scan.h"

namespace kvr {
namespace {

constexpr std::string_view kNameMap = "__nv_name_map";

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

int ToInt(std::string_view digits) {
  int value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

// "error: message", "warning #177-D: message".
std::optional<Diagnostic> ParseMessage(std::string_view rest) {
  Diagnostic diagnostic;
  size_t colon = rest.find(": ");
  if (colon == rest.npos) return std::nullopt;
  std::string_view kind = rest.substr(0, colon);
  if (kind.find("error") != kind.npos) {
    diagnostic.severity = Diagnostic::Severity::kError;
  } else if (StartsWith(kind, "warning") || StartsWith(kind, "remark")) {
    diagnostic.severity = Diagnostic::Severity::kWarning;
  } else if (StartsWith(kind, "note")) {
    diagnostic.severity = Diagnostic::Severity::kNote;
  } else {
    return std::nullopt;
  }
  diagnostic.message = std::string(rest.substr(colon + 2));
  return diagnostic;
}

// "split.cu(12): " and a message, or "At end of source: " and one, which has no file: the note
// after it has.
std::optional<Diagnostic> ParseHeader(std::string_view line) {
  constexpr std::string_view kEnd = "At end of source: ";
  if (StartsWith(line, kEnd)) return ParseMessage(line.substr(kEnd.size()));
  size_t close = line.find("): ");
  if (close == line.npos) return std::nullopt;
  size_t open = line.rfind('(', close);
  if (open == line.npos || open == 0 || open + 1 == close) return std::nullopt;
  std::string_view digits = line.substr(open + 1, close - open - 1);
  if (digits.find_first_not_of("0123456789") != digits.npos) return std::nullopt;
  std::optional<Diagnostic> diagnostic = ParseMessage(line.substr(close + 3));
  if (!diagnostic) return std::nullopt;
  diagnostic->file = std::string(line.substr(0, open));
  diagnostic->line = ToInt(digits);
  return diagnostic;
}

// `instantiation of "T g(T) [with T=int]" at line 2 of split.cu`, as a note.
std::optional<Diagnostic> ParseContext(std::string_view line, const std::string& file) {
  size_t first = line.find_first_not_of(' ');
  size_t at = line.rfind(" at line ");
  if (first == line.npos || at == line.npos || first < 8) return std::nullopt;
  std::string_view digits = line.substr(at + 9);
  size_t end = digits.find_first_not_of("0123456789");
  Diagnostic note;
  note.severity = Diagnostic::Severity::kNote;
  note.line = ToInt(digits.substr(0, end));
  std::string_view rest = end == digits.npos ? std::string_view() : digits.substr(end);
  note.file = StartsWith(rest, " of ") ? std::string(rest.substr(4)) : file;
  std::string_view what = line.substr(first, at - first);
  if (StartsWith(what, "detected during ")) what.remove_prefix(16);
  note.message = "in " + std::string(what);
  return note;
}

// The kernel whose mangled name is `symbol`: it contains the name with its length before it.
int EntryOfSymbol(const Unit& unit, std::string_view symbol) {
  for (size_t i = 0; i < unit.entries.size(); ++i) {
    std::string_view name = UnqualifiedName(unit.entries[i]);
    std::string mangled = std::to_string(name.size()) + std::string(name);
    if (symbol == name || symbol.find(mangled) != symbol.npos) return static_cast<int>(i);
  }
  return -1;
}

// Text between the first pair of single quotes.
std::string_view Quoted(std::string_view text) {
  size_t open = text.find('\'');
  size_t close = open == text.npos ? open : text.find('\'', open + 1);
  return close == text.npos ? std::string_view() : text.substr(open + 1, close - open - 1);
}

// "ptxas error   : Entry function '_Z1kPi' uses too much shared data (...)" or
// "ptxas application ptx input, line 26; error   : Instruction 'wgmma.fence' not supported ...".
// Placed at the kernel, or where the bundle spells the instruction.
std::optional<Diagnostic> ParseAssembler(std::string_view line, const Unit& unit) {
  bool fatal = line.find(" fatal ") != line.npos;
  size_t kind = fatal ? line.find(" fatal ") : line.find(" error ");
  size_t colon = kind == line.npos ? kind : line.find(": ", kind);
  if (colon == line.npos) return std::nullopt;
  std::string_view message = line.substr(colon + 2);
  if (StartsWith(message, "Ptx assembly aborted")) return std::nullopt;  // says nothing new
  Diagnostic diagnostic;
  diagnostic.message = "assembler: " + std::string(message);
  std::string_view token = Quoted(message);
  if (int entry = EntryOfSymbol(unit, token); entry >= 0) {
    const SourceSite& site = unit.entry_sites[static_cast<size_t>(entry)];
    diagnostic.file = site.file;
    diagnostic.line = site.line;
    diagnostic.column = site.column;
    diagnostic.message += " (kernel " + unit.entries[static_cast<size_t>(entry)] + ")";
    return diagnostic;
  }
  for (const BundleFile& file : unit.files) {
    size_t at = token.empty() ? std::string::npos : file.original->find(token);
    if (at == std::string::npos) continue;
    LineColumn where = LineColumnAt(*file.original, at);
    diagnostic.file = file.name;
    diagnostic.line = where.line;
    diagnostic.column = where.column;
    break;
  }
  return diagnostic;
}

int64_t NumberBefore(std::string_view line, std::string_view unit) {
  size_t at = line.find(unit);
  if (at == line.npos) return -1;
  size_t begin = at;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int64_t value = -1;
  std::from_chars(line.data() + begin, line.data() + at, value);
  return value;
}

// Errors about the name expressions themselves; `unit` knows where the entry comes from.
void PlaceNameMapErrors(const Unit& unit, std::vector<Diagnostic>* diagnostics) {
  auto is_name_map = [](const Diagnostic& d) { return StartsWith(d.file, kNameMap); };
  bool others = std::any_of(diagnostics->begin(), diagnostics->end(), [&](const Diagnostic& d) {
    return d.severity == Diagnostic::Severity::kError && !is_name_map(d);
  });
  if (others) {  // they follow from those
    diagnostics->erase(std::remove_if(diagnostics->begin(), diagnostics->end(), is_name_map),
                       diagnostics->end());
    return;
  }
  for (Diagnostic& diagnostic : *diagnostics) {
    if (!is_name_map(diagnostic)) continue;
    // Line n + 1 of the map is the n-th name expression.
    size_t entry = diagnostic.line >= 2 ? static_cast<size_t>(diagnostic.line - 2) : 0;
    diagnostic.file.clear();
    diagnostic.line = diagnostic.column = 0;
    if (entry >= unit.entries.size()) continue;
    diagnostic.message = "entry \"" + unit.entries[entry] + "\": " + diagnostic.message;
    const SourceSite& site = unit.entry_sites[entry];
    diagnostic.file = site.file;
    diagnostic.line = site.line;
    diagnostic.column = site.column;
  }
}

}  // namespace

NvrtcLog ParseNvrtcLog(std::string_view log, const Unit& unit) {
  NvrtcLog result;
  const std::vector<std::string_view> lines = Lines(log);
  std::string function;
  bool open = false;  // the lines at hand belong to the last diagnostic
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string_view line = lines[i];
    if (StartsWith(line, "ptxas") || StartsWith(line, "nvlink")) {
      open = false;
      constexpr std::string_view kProperties = "Function properties for ";
      constexpr std::string_view kEntry = "Compiling entry function '";
      if (size_t at = line.find(kProperties); at != line.npos) {
        function = std::string(line.substr(at + kProperties.size()));
      } else if (line.find(kEntry) != line.npos) {
        function = std::string(Quoted(line));
      } else if (line.find("bytes spill stores") != line.npos) {
        result.kernels[function].spill_bytes =
            std::max<int64_t>(NumberBefore(line, " bytes spill stores"), 0) +
            std::max<int64_t>(NumberBefore(line, " bytes spill loads"), 0);
      } else if (line.find(" Used ") != line.npos) {
        // Without static shared memory the line leaves it out.
        result.kernels[function].smem_static =
            std::max<int64_t>(NumberBefore(line, " bytes smem"), 0);
      } else if (std::optional<Diagnostic> diagnostic = ParseAssembler(line, unit)) {
        result.diagnostics.push_back(*std::move(diagnostic));
      }
      if (StartsWith(line, "ptxas info") || StartsWith(line, "ptxas         .")) continue;
    } else if (std::optional<Diagnostic> diagnostic = ParseHeader(line)) {
      if (open && result.diagnostics.back().file.empty()) {
        result.diagnostics.back().file = diagnostic->file;
        result.diagnostics.back().line = diagnostic->line;
      }
      result.diagnostics.push_back(*std::move(diagnostic));
      open = true;
    } else if (line.empty()) {
      open = false;
    } else if (open && !result.diagnostics.empty()) {
      size_t caret = line.find_first_not_of(' ');
      Diagnostic& last = result.diagnostics.back();
      if (caret != line.npos && line.substr(caret) == "^") {
        // Under the source line, both indented by two.
        last.column = std::max(static_cast<int>(caret) - 1, 0);
        if (i > 0) last.quoted = std::string(lines[i - 1]);
      } else if (std::optional<Diagnostic> note = ParseContext(line, last.file)) {
        result.diagnostics.push_back(*std::move(note));
      }
    }
    ((result.rest += line)) += '\n';
  }
  PlaceNameMapErrors(unit, &result.diagnostics);
  return result;
}

}  // namespace kvr
