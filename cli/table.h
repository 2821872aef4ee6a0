// SPDX-License-Identifier: Apache-2.0
//
// Tables that fit a terminal: columns sized to their content, the widest text column shortened
// with an ellipsis when the line would be wider than the terminal (never when output is a pipe).
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
  // `width` in character cells; 0: unlimited.
  std::string Render(int width) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// `text` and a line end, each line indented and at most `width` cells wide, broken at blanks; a
// word wider than that stands alone. 0: one line.
std::string Wrap(std::string_view text, int width, int indent);

// Of standard output; 0 when it is not a terminal.
int TerminalWidth();

// `text`, with an ellipsis at its end where it takes more than `width` cells.
std::string Fit(std::string_view text, int width);

std::string Count(size_t number, std::string_view noun);  // "1 entry", "2 entries", "0 configs"
std::string Bytes(int64_t bytes);                         // "54.2 KiB"
std::string Microseconds(double us);                      // "14.6 us", "3.20 ms"

}  // namespace kvr::cli
