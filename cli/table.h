// SPDX-License-Identifier: Apache-2.0
//
// Text and tables that fit a terminal, or 100 cells where there is none. Nothing is cut off: what
// is too wide goes on in the next line, a cell of a table within its column.
//
// Threading: a Table belongs to one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvr::cli {

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void Row(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  // `width` in character cells; 0: unlimited. A column without any text is left out. Columns are as
  // wide as their content; where a line would be too wide, text is broken at blanks and behind
  // commas, semicolons and slashes, numbers (columns aligned to the right) are not.
  std::string Render(int width) const;

 private:
  Table WithoutEmptyColumns() const;
  std::string RenderAll(int width) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// `text` and a line end, each line indented and at most `width` cells wide, broken at blanks, a
// word wider than that behind its commas; what has none stands alone. 0: one line. Of a text of
// several lines the first is wrapped, and the others, a compiler's with its caret say, are
// indented.
std::string Wrap(std::string_view text, int width, int indent);

// Of standard output; where it is not a terminal: COLUMNS, else 100.
int TerminalWidth();

std::string Count(size_t number, std::string_view noun);  // "1 entry", "2 entries", "0 configs"
std::string Bytes(int64_t bytes);                         // "54.2 KiB"
std::string Microseconds(double us);                      // "14.6 us", "3.20 ms"
std::string Minute(std::string rfc3339);                  // "2026-11-30 23:42"

}  // namespace kvr::cli
