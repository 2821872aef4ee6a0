// SPDX-License-Identifier: Apache-2.0
#include "cli/table.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "core/names.h"
#include "core/strings.h"

namespace kvr::cli {
namespace {

constexpr int kGap = 2;             // blanks between columns
constexpr int kNarrowestText = 8;   // no column is made narrower
constexpr int kNoTerminal = 100;    // cells of a line in a file or a pipe
constexpr int kUnlimited = 100000;  // more than any text has

bool StartsCell(char c) { return (c & 0xC0) != 0x80; }  // UTF-8 continuation bytes take no cell

// Width in character cells.
int Cells(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), StartsCell));
}

// `text` in lines of at most `width` cells: broken at a blank, which goes, or behind one of `,;/`;
// where a line has neither, anywhere.
std::vector<std::string> Broken(std::string_view text, int width) {
  std::vector<std::string> lines;
  while (Cells(text) > width) {
    size_t end = 0, next = 0;  // of the line; where the rest begins
    int cells = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      if (StartsCell(text[i])) ++cells;
      if (cells > width && text[i] != ' ') {
        if (next == 0) end = next = i;
        break;
      }
      if (text[i] == ' ') {
        if (i == 0 || text[i - 1] != ' ') end = i;  // all blanks of a row go
        next = i + 1;
      } else if (text[i] == ',' || text[i] == ';' || text[i] == '/') {
        end = next = i + 1;
      }
    }
    if (end > 0) lines.emplace_back(text.substr(0, end));
    text.remove_prefix(next);
  }
  lines.emplace_back(text);
  return lines;
}

// The width below which Broken would have to break `text` anywhere.
int WidestPiece(std::string_view text) {
  int widest = 0, piece = 0;
  for (const char c : text) {
    piece = c == ' ' ? 0 : piece + (StartsCell(c) ? 1 : 0);
    widest = std::max(widest, piece);
    if (c == ',' || c == ';' || c == '/') piece = 0;
  }
  return widest;
}

}  // namespace

void Table::Row(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

Table Table::WithoutEmptyColumns() const {
  const auto shown = [&](size_t c) {
    return rows_.empty() || std::any_of(rows_.begin(), rows_.end(),
                                        [&](const auto& row) { return !row[c].empty(); });
  };
  Table table({});
  table.rows_.resize(rows_.size());
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (!shown(c)) continue;
    table.columns_.push_back(columns_[c]);
    for (size_t r = 0; r < rows_.size(); ++r) table.rows_[r].push_back(rows_[r][c]);
  }
  return table;
}

std::string Table::Render(int width) const { return WithoutEmptyColumns().RenderAll(width); }

std::string Table::RenderAll(int width) const {
  const size_t count = columns_.size();
  std::vector<int> widths(count), least(count);
  const auto measure = [&](size_t c, const std::string& cell) {
    widths[c] = std::max(widths[c], Cells(cell));
    const bool number = columns_[c].align == Align::kRight;
    least[c] = std::max({least[c], number ? widths[c] : WidestPiece(cell), kNarrowestText});
  };
  for (size_t c = 0; c < count; ++c) {
    measure(c, columns_[c].title);
    for (const auto& row : rows_) measure(c, row[c]);
  }
  const int gaps = kGap * (static_cast<int>(count) - 1);
  // The widest column above its floor; `count`: none is.
  const auto widest_above = [&](auto floor_of) {
    size_t widest = count;
    for (size_t c = 0; c < count; ++c) {
      if (widths[c] > floor_of(c) && (widest == count || widths[c] > widths[widest])) widest = c;
    }
    return widest;
  };
  while (width > 0 && std::accumulate(widths.begin(), widths.end(), gaps) > width) {
    size_t widest = widest_above([&](size_t c) { return least[c]; });
    if (widest == count) {  // no text has a place to be broken at: anywhere, then
      widest = widest_above([&](size_t c) {
        return columns_[c].align == Align::kRight ? widths[c] : kNarrowestText;
      });
    }
    if (widest == count) break;
    --widths[widest];
  }
  std::string out;
  const auto line = [&](auto cell_of) {
    std::vector<std::vector<std::string>> cells;
    size_t height = 1;
    for (size_t c = 0; c < count; ++c) {
      cells.push_back(Broken(cell_of(c), widths[c]));
      height = std::max(height, cells.back().size());
    }
    for (size_t i = 0; i < height; ++i) {
      std::string text;
      for (size_t c = 0; c < count; ++c) {
        const std::string cell = i < cells[c].size() ? cells[c][i] : "";
        const std::string pad(static_cast<size_t>(widths[c] - Cells(cell)), ' ');
        if (c > 0) text.append(kGap, ' ');
        text += columns_[c].align == Align::kRight ? pad + cell : cell + pad;
      }
      text.erase(text.find_last_not_of(' ') + 1);
      out += text + "\n";
    }
  };
  line([&](size_t c) { return columns_[c].title; });
  line([&](size_t c) { return std::string(static_cast<size_t>(widths[c]), '-'); });
  for (const auto& row : rows_) line([&](size_t c) { return row[c]; });
  return out;
}

std::string Wrap(std::string_view text, int width, int indent) {
  const std::string margin(static_cast<size_t>(indent), ' ');
  if (const size_t end = text.find('\n'); end != text.npos) {
    std::string whole = Wrap(text.substr(0, end), width, indent);
    for (const std::string_view line : Split(text.substr(end + 1), '\n')) {
      StrAppend(&whole, line.empty() ? "" : margin, line, "\n");
    }
    return whole;
  }
  const int room = width > 0 ? std::max(1, width - indent) : kUnlimited;
  std::string out = margin;
  int used = 0;
  const auto add = [&](std::string_view piece, bool blank) {
    const int cells = Cells(piece);
    if (used > 0 && used + (blank ? 1 : 0) + cells > room) {
      out += "\n" + margin;
      used = 0;
    }
    if (used > 0 && blank) {
      out += ' ';
      ++used;
    }
    out += piece;
    used += cells;
  };
  bool first = true;
  for (std::string_view word : Split(text, ' ')) {
    bool blank = !first;
    first = false;
    const bool too_wide = Cells(word) > room;
    for (size_t end; too_wide && (end = word.find(',') + 1) > 0 && end < word.size();) {
      add(word.substr(0, end), blank);
      word.remove_prefix(end);
      blank = false;
    }
    add(word, blank);
  }
  out.erase(out.find_last_not_of(' ') + 1);
  return out + "\n";
}

int TerminalWidth() {
  winsize size{};
  if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return size.ws_col;
  }
  const char* const columns = std::getenv("COLUMNS");
  const absl::StatusOr<int64_t> given =
      ParseInteger(columns == nullptr ? "" : columns, /*negative=*/false);
  return given.ok() && *given > 0 && *given < kUnlimited ? static_cast<int>(*given) : kNoTerminal;
}

std::string Count(size_t number, std::string_view noun) {
  if (number == 1) return StrCat("1 ", noun);
  return noun.back() == 'y' ? StrCat(number, " ", noun.substr(0, noun.size() - 1), "ies")
                            : StrCat(number, " ", noun, "s");
}

std::string Bytes(int64_t bytes) {
  if (bytes < 1024) return absl::StrFormat("%d B", bytes);
  if (bytes < 1024 * 1024) return absl::StrFormat("%.1f KiB", bytes / 1024.0);
  if (bytes < int64_t{1024} * 1024 * 1024) return absl::StrFormat("%.1f MiB", bytes / 1048576.0);
  return absl::StrFormat("%.1f GiB", bytes / 1073741824.0);
}

std::string Microseconds(double us) {
  if (us < 1000) return absl::StrFormat("%.2f us", us);
  if (us < 1e6) return absl::StrFormat("%.2f ms", us / 1e3);
  return absl::StrFormat("%.2f s", us / 1e6);
}

std::string Minute(std::string rfc3339) {
  std::replace(rfc3339.begin(), rfc3339.end(), 'T', ' ');
  return rfc3339.substr(0, 16);
}

}  // namespace kvr::cli
