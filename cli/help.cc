// SPDX-License-Identifier: Apache-2.0
#include "cli/help.h"

#include <algorithm>

#include "cli/table.h"
#include "core/strings.h"

namespace kvr::cli {
namespace {

constexpr int kWidest = 100;      // longer lines are hard to read
constexpr int kColumn = 30;       // of what names mean
constexpr int kMargin = 2;        // before a name
constexpr int kHanging = 4;       // further, where it goes on
constexpr int kContinuation = 2;  // the blank and the backslash

int Width() { return std::min(TerminalWidth(), kWidest); }

std::string Paragraphs(std::string_view text, int width, int indent) {
  std::string out;
  for (const std::string_view line : Split(text, '\n')) out += Wrap(line, width, indent);
  return out;
}

// `text`, which ends a line, with `between` at the end of each line before it.
std::string Joined(std::string text, std::string_view between) {
  for (size_t at = 0; (at = text.find('\n', at)) + 1 < text.size(); at += between.size()) {
    text.replace(at, 1, between);
  }
  return text;
}

}  // namespace

std::string HelpEntry(std::string_view name, std::string_view what, int width) {
  const int column = std::min(kColumn, width / 3);
  std::string head =
      Joined(Wrap(name, width - kHanging, kMargin), "\n" + std::string(kHanging, ' '));
  if (what.empty()) return head;
  std::string body = Paragraphs(what, width, column);
  const size_t end = head.find('\n');
  if (end + 1 == head.size() && end < static_cast<size_t>(column)) {
    return body.replace(0, end, head, 0, end);  // the column's margin is blank
  }
  return head + body;
}

std::string HelpExample(std::string_view command, int width) {
  return Joined(Wrap(command, width - kContinuation - kHanging, kMargin),
                " \\\n" + std::string(kHanging, ' '));
}

std::string HelpText::make_description(const CLI::App* app) const {
  std::string text = Formatter::make_description(app);
  if (text.ends_with('\n')) text.pop_back();
  return text.empty() ? text : Paragraphs(text, Width(), 0);
}

std::string HelpText::make_option(const CLI::Option* option, bool is_positional) const {
  return HelpEntry(make_option_name(option, is_positional) + make_option_opts(option),
                   make_option_desc(option), Width());
}

std::string HelpText::make_subcommand(const CLI::App* sub) const {
  const std::string what = sub->get_description();
  return HelpEntry(sub->get_display_name(true), what.substr(0, what.find('\n')), Width());
}

std::string HelpText::make_footer(const CLI::App* app) const {
  const std::string footer = app->get_footer();
  if (footer.empty()) return footer;
  std::string out;
  for (const std::string_view line : Split(footer, '\n')) {
    const bool command = line.starts_with(' ');
    out += command ? HelpExample(line.substr(line.find_first_not_of(' ')), Width())
                   : Wrap(line, Width(), 0);
  }
  return out;
}

}  // namespace kvr::cli
