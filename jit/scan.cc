// SPDX-License-Identifier: Apache-2.0
#include "jit/scan.h"

#include <algorithm>

namespace kvr {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool IsWord(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || IsDigit(c) || c == '_';
}

void Blank(std::string* out, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i)
    if ((*out)[i] != '\n') (*out)[i] = ' ';
}

// The end of the // comment that starts at `i`: a newline that no backslash continues.
size_t LineCommentEnd(std::string_view text, size_t i) {
  for (; i < text.size(); ++i)
    if (text[i] == '\n' && text[i - 1] != '\\') return i;
  return text.size();
}

// One past the literal that starts with the quote at `i`; a newline ends an unterminated one.
size_t QuotedEnd(std::string_view text, size_t i) {
  char quote = text[i];
  for (++i; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      return i + 1;
    } else if (text[i] == '\n') {
      return i;
    }
  }
  return text.size();
}

// One past the raw string whose quote is at `i`: R"delimiter( ... )delimiter".
size_t RawEnd(std::string_view text, size_t i) {
  size_t open = text.find('(', i);
  if (open == std::string_view::npos || open - i > 17) return QuotedEnd(text, i);
  std::string close(1, ')');
  (close += text.substr(i + 1, open - i - 1)) += '"';
  size_t end = text.find(close, open);
  return end == std::string_view::npos ? text.size() : end + close.size();
}

// Is the ' at `i` a digit separator (1'000) rather than a character literal?
bool IsDigitSeparator(std::string_view text, size_t i) {
  size_t begin = i;
  while (begin > 0 && (IsWord(text[begin - 1]) || text[begin - 1] == '\'')) --begin;
  return begin < i && IsDigit(text[begin]);
}

size_t SkipSpace(std::string_view code, size_t i) {
  while (i < code.size() && IsSpace(code[i])) ++i;
  return i;
}

// The matching ')' of the '(' at `open`, or npos.
size_t MatchingParen(std::string_view code, size_t open) {
  int depth = 0;
  for (size_t i = open; i < code.size(); ++i) {
    if (code[i] == '(') ++depth;
    if (code[i] == ')' && --depth == 0) return i;
  }
  return std::string_view::npos;
}

std::string Squeeze(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (!IsSpace(c)) {
      out += c;
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

// Is `word` in `code` as a word of its own, outside preprocessor lines?
bool HasWord(std::string_view code, std::string_view word) {
  for (size_t at = code.find(word); at != code.npos; at = code.find(word, at + 1)) {
    if (at > 0 && IsWord(code[at - 1])) continue;
    if (at + word.size() < code.size() && IsWord(code[at + word.size()])) continue;
    size_t line = at;
    do {  // back over continued lines
      line = line == 0 ? code.npos : code.rfind('\n', line - 1);
    } while (line != code.npos && line > 0 && code[line - 1] == '\\');
    size_t first = SkipSpace(code, line == code.npos ? 0 : line);
    if (code[first] != '#') return true;
  }
  return false;
}

std::vector<KernelDefinition::Parameter> SplitParameters(std::string_view text,
                                                         std::string_view code, size_t begin,
                                                         size_t end) {
  std::vector<KernelDefinition::Parameter> parameters;
  int depth = 0;
  size_t start = begin;
  for (size_t i = begin; i <= end; ++i) {
    char c = i < end ? code[i] : ',';
    if (c == '(' || c == '[' || c == '{' || c == '<') ++depth;
    if (c == ')' || c == ']' || c == '}' || c == '>') --depth;
    if (i < end && (c != ',' || depth > 0)) continue;
    size_t first = SkipSpace(code, start);
    if (first < i) {
      parameters.push_back({Squeeze(code.substr(first, i - first)), LineColumnAt(text, first)});
    }
    start = i + 1;
  }
  return parameters;
}

}  // namespace

std::string BlankNonCode(std::string_view text) {
  std::string out(text);
  size_t i = 0;
  while (i < text.size()) {
    char c = text[i];
    size_t end = i + 1;
    if (c == '/' && i + 1 < text.size() && text[i + 1] == '/') {
      end = LineCommentEnd(text, i + 2);
      Blank(&out, i, end);
    } else if (c == '/' && i + 1 < text.size() && text[i + 1] == '*') {
      size_t close = text.find("*/", i + 2);
      end = close == std::string_view::npos ? text.size() : close + 2;
      Blank(&out, i, end);
    } else if (c == '"') {
      bool raw = i > 0 && text[i - 1] == 'R' &&
                 (i < 2 || !IsWord(text[i - 2]) || text[i - 2] == 'u' || text[i - 2] == 'U' ||
                  text[i - 2] == 'L' || text[i - 2] == '8');
      end = raw ? RawEnd(text, i) : QuotedEnd(text, i);
      Blank(&out, i + 1, end > i + 1 ? end - 1 : end);
    } else if (c == '\'' && !IsDigitSeparator(text, i)) {
      end = QuotedEnd(text, i);
      Blank(&out, i + 1, end > i + 1 ? end - 1 : end);
    }
    i = std::max(end, i + 1);
  }
  return out;
}

LineColumn LineColumnAt(std::string_view text, size_t offset) {
  std::string_view before = text.substr(0, offset);
  size_t newline = before.rfind('\n');
  int line = 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n'));
  size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
  return {line, static_cast<int>(offset - line_start) + 1};
}

std::string_view LineAt(std::string_view text, int line) {
  size_t begin = 0;
  for (int i = 1; i < line; ++i) {
    size_t newline = text.find('\n', begin);
    if (newline == std::string_view::npos) return {};
    begin = newline + 1;
  }
  std::string_view rest = text.substr(std::min(begin, text.size()));
  rest = rest.substr(0, rest.find('\n'));
  if (!rest.empty() && rest.back() == '\r') rest.remove_suffix(1);
  return rest;
}

std::string_view UnqualifiedName(std::string_view entry) {
  entry = entry.substr(0, entry.find('<'));
  size_t end = entry.size();
  while (end > 0 && IsSpace(entry[end - 1])) --end;
  size_t begin = end;
  while (begin > 0 && IsWord(entry[begin - 1])) --begin;
  return entry.substr(begin, end - begin);
}

std::vector<KernelDefinition> FindKernels(std::string_view text, std::string_view name) {
  std::vector<KernelDefinition> found;
  if (name.empty()) return found;
  const std::string blanked = BlankNonCode(text);
  const std::string_view code = blanked;
  for (size_t at = code.find(name); at != code.npos; at = code.find(name, at + 1)) {
    if (at > 0 && IsWord(code[at - 1])) continue;
    size_t open = SkipSpace(code, at + name.size());
    if (open >= code.size() || code[open] != '(') continue;
    // The declaration this name stands in begins after the last ';', '{' or '}' before it.
    size_t before = code.find_last_of(";{}", at);
    size_t begin = before == code.npos ? 0 : before + 1;
    std::string_view words = code.substr(begin, at - begin);
    if (words.find("__global__") == words.npos) continue;
    size_t close = MatchingParen(code, open);
    if (close == code.npos) continue;
    KernelDefinition kernel;
    size_t after = SkipSpace(code, close + 1);
    kernel.is_definition = after < code.size() && code[after] == '{';
    kernel.is_template = HasWord(words, "template");
    kernel.name = LineColumnAt(text, at);
    kernel.parameters = SplitParameters(text, code, open + 1, close);
    found.push_back(std::move(kernel));
  }
  return found;
}

}  // namespace kvr
