// SPDX-License-Identifier: Apache-2.0
#include "cli/table.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/strings.h"

namespace kvr::cli {
namespace {

constexpr int kGap = 2;            // blanks between columns
constexpr int kNarrowestText = 8;  // a column is never shortened below this

// Width in character cells: UTF-8 continuation bytes take none.
int Cells(std::string_view text) {
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::string Fit(std::string_view text, int width) {
  if (Cells(text) <= width) return std::string(text);
  std::string out;
  int cells = 0;
  for (char c : text) {
    if ((c & 0xC0) != 0x80 && ++cells == width) break;
    out += c;
  }
  return out + "…";
}

void Table::Row(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::Render(int width) const {
  std::vector<int> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    int widest = Cells(columns_[c].title);
    for (const auto& row : rows_) widest = std::max(widest, Cells(row[c]));
    widths.push_back(widest);
  }
  const int gaps = kGap * (static_cast<int>(columns_.size()) - 1);
  while (width > 0 && std::accumulate(widths.begin(), widths.end(), gaps) > width) {
    auto widest = std::max_element(widths.begin(), widths.end());
    if (*widest <= kNarrowestText) break;
    --*widest;
  }
  std::string out;
  auto line = [&](auto cell_of) {
    std::string text;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string cell = Fit(cell_of(c), widths[c]);
      const std::string pad(static_cast<size_t>(widths[c] - Cells(cell)), ' ');
      if (c > 0) text.append(kGap, ' ');
      text += columns_[c].align == Align::kRight ? pad + cell : cell + pad;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  line([&](size_t c) { return columns_[c].title; });
  line([&](size_t c) { return std::string(static_cast<size_t>(widths[c]), '-'); });
  for (const auto& row : rows_) line([&](size_t c) { return row[c]; });
  return out;
}

std::string Wrap(std::string_view text, int width, int indent) {
  const std::string margin(static_cast<size_t>(indent), ' ');
  std::string out = margin;
  int used = indent;
  bool first = true;
  for (const std::string_view word : Split(text, ' ')) {
    if (!first && width > 0 && used + 1 + Cells(word) > width) {
      out += "\n" + margin;
      used = indent;
      first = true;
    }
    out += first ? "" : " ";
    out += word;
    used += Cells(word) + (first ? 0 : 1);
    first = false;
  }
  out.erase(out.find_last_not_of(' ') + 1);
  return out + "\n";
}

int TerminalWidth() {
  winsize size{};
  if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
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

}  // namespace kvr::cli
