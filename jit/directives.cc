// SPDX-License-Identifier: Apache-2.0
#include "jit/directives.h"

#include <algorithm>
#include <utility>

#include "core/status.h"
#include "jit/diagnostics.h"
#include "jit/scan.h"

namespace kvr {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\r'; }
// '$' and everything beyond ASCII may stand in identifiers.
bool IsWord(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || IsDigit(c) || c == '_' || c == '$' ||
         static_cast<unsigned char>(c) >= 0x80;
}

constexpr std::string_view kDirectives[] = {"#include", "#include_next", "#import", "#embed"};
// Of the host's assembler, in the text of an asm statement.
constexpr std::string_view kAssembly[] = {".incbin", ".include"};
constexpr std::string_view kQueries[] = {"__has_include", "__has_include_next", "__has_embed"};

// The preprocessor's tokens, as far as they decide where a directive is. `at_` always stands on a
// character that is left once lines are spliced.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {
    if (text_.substr(0, 3) == "\xef\xbb\xbf") at_ = 3;
    at_ = Unspliced(at_);
  }

  std::vector<FileReference> Run() {
    bool head = true;  // nothing but blanks and comments on this line so far
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') {
        head = true;
        Advance();
      } else if (IsBlank(c)) {
        Advance();
      } else if (c == '/' && SkipComment()) {
      } else if (head && (c == '#' || (c == '%' && Next() == ':'))) {
        head = false;
        ReadDirective();
      } else if (c == '"' || c == '\'') {
        head = false;
        const size_t begin = at_;
        SkipQuoted();
        NoteAssembly(begin);
      } else if (IsDigit(c) || (c == '.' && IsDigit(Next()))) {
        head = false;
        SkipNumber();
      } else if (IsWord(c)) {
        head = ReadWord(head);
      } else {
        head = false;
        Advance();
      }
    }
    return std::move(found_);
  }

 private:
  // `i`, or what follows the backslash-newlines there.
  size_t Unspliced(size_t i) const {
    while (i < text_.size() && text_[i] == '\\') {
      size_t newline = i + 1 < text_.size() && text_[i + 1] == '\r' ? i + 2 : i + 1;
      if (newline >= text_.size() || text_[newline] != '\n') break;
      i = newline + 1;
    }
    return i;
  }
  char At(size_t i) const { return i < text_.size() ? text_[i] : '\0'; }
  char Next() const { return At(Unspliced(at_ + 1)); }
  void Advance() { at_ = Unspliced(at_ + 1); }

  // The comment that starts here, if one does; a line comment's newline stays.
  bool SkipComment() {
    const char next = Next();
    if (next == '/') {
      while (at_ < text_.size() && text_[at_] != '\n') Advance();
      return true;
    }
    if (next != '*') return false;
    Advance();
    Advance();
    for (at_ = std::min(text_.find('*', at_), text_.size()); at_ < text_.size();
         at_ = std::min(text_.find('*', at_ + 1), text_.size())) {
      if (Next() != '/') continue;
      Advance();
      Advance();
      break;
    }
    return true;
  }

  void SkipBlanks() {
    while (true) {
      if (IsBlank(At(at_))) {
        Advance();
      } else if (At(at_) != '/' || !SkipComment()) {
        return;
      }
    }
  }

  // A newline ends an unterminated literal.
  void SkipQuoted() {
    const char quote = text_[at_];
    for (Advance(); at_ < text_.size() && text_[at_] != '\n'; Advance()) {
      if (text_[at_] == quote) return Advance();
      if (text_[at_] == '\\') Advance();
      if (At(at_) == '\n') return;
    }
  }

  void SkipRawString() {
    const size_t open = text_.find_first_of("( )\\\t\v\f\n", at_ + 1);
    if (At(open) != '(' || open - at_ > 17) return SkipQuoted();
    std::string close = ")";
    (close += text_.substr(at_ + 1, open - at_ - 1)) += '"';
    const size_t end = text_.find(close, open);
    at_ = end == text_.npos ? text_.size() : Unspliced(end + close.size());
  }

  // The literal that began at `begin` and ends here may be assembly that names a file.
  void NoteAssembly(size_t begin) {
    std::string literal(text_.substr(begin, at_ - begin));
    for (char& c : literal) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    for (std::string_view directive : kAssembly) {
      const size_t found = literal.find(directive);
      if (found == literal.npos || IsWord(At(begin + found + directive.size()))) continue;
      if (At(begin + found + directive.size()) == '.') continue;  // "see x.include.md"
      found_.push_back({directive, "", false, begin, begin});
    }
  }

  // 0x1p-3, 1'000'000: a quote between digits opens no literal.
  void SkipNumber() {
    while (IsWord(At(at_)) || At(at_) == '.' || (At(at_) == '\'' && IsWord(Next()))) Advance();
  }

  // Valid until the next call.
  std::string_view Word() {
    size_t begin = at_;
    while (IsWord(At(at_))) ++at_;
    if (Unspliced(at_) == at_) return text_.substr(begin, at_ - begin);
    word_ = text_.substr(begin, at_ - begin);
    at_ = Unspliced(at_);
    for (; IsWord(At(at_)); Advance()) word_ += text_[at_];
    return word_;
  }

  // The <...> or "..." here, or nothing where the name is anything else.
  void ReadName(std::string_view keyword, size_t site) {
    FileReference reference{keyword, "", false, site, at_};
    const char open = At(at_);
    if (open == '<' || open == '"') {
      size_t close = text_.find_first_of(open == '"' ? "\"\n" : ">\n", at_ + 1);
      if (At(close) == (open == '"' ? '"' : '>')) {
        reference.name = std::string(text_.substr(at_ + 1, close - at_ - 1));
        reference.quoted = open == '"';
        reference.begin = at_ + 1;
        at_ = Unspliced(close + 1);
      }
    }
    found_.push_back(std::move(reference));
  }

  void ReadDirective() {
    const size_t site = at_;
    if (text_[at_] == '%') Advance();
    Advance();
    SkipBlanks();
    const std::string_view word = Word();
    for (std::string_view directive : kDirectives) {
      if (word != directive.substr(1)) continue;
      SkipBlanks();
      return ReadName(directive, site);
    }
    if (word == "ifdef" || word == "ifndef" || word == "elifdef" || word == "elifndef") {
      SkipBlanks();
      Word();
    }
  }

  // Returns whether a directive of C++'s modules may still follow on this line.
  bool ReadWord(bool head) {
    const size_t site = at_;
    const std::string_view word = Word();
    if (word == "R" || word == "LR" || word == "uR" || word == "UR" || word == "u8R") {
      if (At(at_) == '"') SkipRawString();
      NoteAssembly(site);
    } else if (word == "defined") {
      SkipBlanks();
      if (At(at_) == '(') Advance();
      SkipBlanks();
      Word();
    } else if (head && word == "export") {
      return true;
    } else if (head && word == "import") {
      SkipBlanks();
      if (At(at_) == '<' || At(at_) == '"') ReadName("import", site);
    } else if (word.substr(0, 6) == "__has_") {
      for (std::string_view query : kQueries) {
        if (word != query) continue;
        SkipBlanks();
        if (At(at_) == '(') Advance();
        SkipBlanks();
        ReadName(query, site);
        break;
      }
    }
    return false;
  }

  const std::string_view text_;
  size_t at_ = 0;
  std::string word_;
  std::vector<FileReference> found_;
};

// What is wrong with `reference` in a bundle's file, and what would be right; "" if nothing is.
std::pair<std::string, std::string> Objection(const FileReference& reference) {
  const std::string keyword(reference.keyword);
  const std::string in_bundle = "put the file into the bundle and list it under headers";
  if (keyword == "#embed" || keyword == "__has_embed" || keyword == ".incbin") {
    return {"a bundle may not use " + keyword + ": what it reads is not part of the binary's key",
            "write the data as an array in a header of the bundle"};
  }
  if (keyword != "#include" && keyword != "__has_include") {
    return {"a bundle may not use " + keyword + ": what it reads is not part of the binary's key",
            in_bundle + ", then #include it by its name there"};
  }
  if (reference.name.empty()) {
    return {keyword +
                " does not spell the file's name: what it reads would not be part of the "
                "binary's key",
            "write a literal name, as in " + std::string(keyword == "#include"
                                                             ? "#include \"tile.cuh\""
                                                             : "__has_include(\"tile.cuh\")")};
  }
  if (reference.name.front() == '/') {
    return {keyword + " of an absolute path: what lies there is not part of the binary's key",
            in_bundle + ", then name it as it is named there"};
  }
  return {};
}

}  // namespace

std::vector<FileReference> FindFileReferences(std::string_view text) { return Scanner(text).Run(); }

absl::Status CheckFileReferences(const Unit& unit) {
  for (const UnitHeader& header : unit.headers) {
    for (const FileReference& reference : FindFileReferences(*header.content)) {
      const auto [what, fix] = Objection(reference);
      if (what.empty()) continue;
      const LineColumn at = LineColumnAt(*header.content, reference.site);
      return Error(absl::StatusCode::kInvalidArgument,
                   RenderDiagnostic(unit, {Diagnostic::Severity::kError, header.name, at.line,
                                           at.column, what, ""}),
                   fix);
    }
  }
  return absl::OkStatus();
}

}  // namespace kvr
