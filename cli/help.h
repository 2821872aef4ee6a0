// SPDX-License-Identifier: Apache-2.0
//
// What --help prints, in lines that fit a terminal, at most 100 cells. An app's subcommands inherit
// it, where it is set before they are added.
//
// Threading: the CLI's own thread only.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace kvr::cli {

class HelpText : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App* app) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  // The first paragraph of its description; the subcommand's own --help has the others.
  std::string make_subcommand(const CLI::App* sub) const override;
  // A line that is indented is a command: it is broken so that a shell takes it as it stands.
  std::string make_footer(const CLI::App* app) const override;
};

// `name` in a column of its own, `what` beside it, or below where the name is too wide. Both may be
// wrapped; `width` in character cells.
std::string HelpEntry(std::string_view name, std::string_view what, int width);
// "kvr ab OP --ship" in lines that end in a backslash, but for the last.
std::string HelpExample(std::string_view command, int width);

}  // namespace kvr::cli
