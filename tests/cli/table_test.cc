// SPDX-License-Identifier: Apache-2.0
#include "cli/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "core/strings.h"

namespace kvr::cli {
namespace {

using Align = Table::Align;

TEST(Table, IsAsWideAsItsContentWhereThatFits) {
  Table table({{"name"}, {"us", Align::kRight}});
  table.Row({"w8", "9.75"});
  table.Row({"baseline"});
  EXPECT_EQ(table.Render(80),
            "name        us\n"
            "--------  ----\n"
            "w8        9.75\n"
            "baseline\n");
}

TEST(Table, LeavesOutAColumnWithoutText) {
  Table table({{"variant"}, {"shape"}, {"us", Align::kRight}});
  EXPECT_EQ(table.Render(80), "variant  shape  us\n-------  -----  --\n");
  table.Row({"w8", "", "9"});
  EXPECT_EQ(table.Render(80), "variant  us\n-------  --\nw8        9\n");
}

TEST(Table, GoesOnInTheNextLineOfTheColumnAndLosesNothing) {
  Table table({{"variant"}, {"config"}, {"us", Align::kRight}});
  table.Row({"baseline", "BLOCK_H=16,MIN_CHUNK=16,TARGET_CTAS=128", "609.98"});
  EXPECT_EQ(table.Render(42),
            "variant   config                        us\n"
            "--------  ------------------------  ------\n"
            "baseline  BLOCK_H=16,MIN_CHUNK=16,  609.98\n"
            "          TARGET_CTAS=128\n");
}

TEST(Table, BreaksWordsOnlyWhereItMust) {
  Table table({{"digest"}, {"of"}});
  table.Row({"0123456789abcdef0123", "a path/with parts"});
  EXPECT_EQ(table.Render(30),
            "digest                of\n"
            "--------------------  --------\n"
            "0123456789abcdef0123  a path/\n"
            "                      with\n"
            "                      parts\n");
  EXPECT_EQ(table.Render(20),
            "digest      of\n"
            "----------  --------\n"
            "0123456789  a path/\n"
            "abcdef0123  with\n"
            "            parts\n");
}

TEST(Table, BreaksAtARowOfBlanksAsAtOne) {
  for (const char* cell : {"12345678   nextword", "   12345678 nextword", "12345678 nextword   "}) {
    for (int width = 8; width <= 24; ++width) {
      Table table({{"text"}});
      table.Row({cell});
      for (std::string_view line : Split(table.Render(width), '\n')) {
        EXPECT_LE(line.size(), static_cast<size_t>(width)) << cell << " in " << width;
      }
    }
  }
}

TEST(Table, NeverBreaksNumbers) {
  Table table({{"a", Align::kRight}, {"b", Align::kRight}});
  table.Row({"123456789012345", "123456789012345"});
  EXPECT_THAT(table.Render(20), testing::HasSubstr("123456789012345  123456789012345\n"));
}

TEST(Table, CountsCellsNotBytes) {
  Table table({{"spread"}});
  table.Row({"±1.0 % ±2.0 % ±3.0 %"});
  EXPECT_EQ(table.Render(13),
            "spread\n"
            "-------------\n"
            "±1.0 % ±2.0 %\n"
            "±3.0 %\n");
}

TEST(Wrap, BreaksAtBlanksAndIndentsEveryLine) {
  EXPECT_EQ(Wrap("one two three", 9, 2), "  one two\n  three\n");
  EXPECT_EQ(Wrap("one two three", 0, 2), "  one two three\n");
}

TEST(Wrap, BreaksAWordThatIsTooWideBehindItsCommas) {
  EXPECT_EQ(Wrap("same as {BLOCK_H=16,BLOCK_T=16,WARPS=4} here", 26, 2),
            "  same as {BLOCK_H=16,\n  BLOCK_T=16,WARPS=4} here\n");
  EXPECT_EQ(Wrap("{A=1,B=2,C=3,D=4,E=5}", 10, 0), "{A=1,B=2,\nC=3,D=4,\nE=5}\n");
  EXPECT_EQ(Wrap("see /a/very/long/path/that/stays", 12, 0), "see\n/a/very/long/path/that/stays\n");
}

TEST(Wrap, LeavesWhatFollowsTheFirstLineAsItLinesUp) {
  EXPECT_EQ(Wrap("failed: x.cu:1:5: error: what\nint  a  b;\n     ^\n\nlast", 20, 2),
            "  failed: x.cu:1:5:\n  error: what\n  int  a  b;\n       ^\n\n  last\n");
}

TEST(TerminalWidth, IsSaidByColumnsWhereThereIsNoTerminal) {
  if (isatty(STDOUT_FILENO)) GTEST_SKIP() << "this is a terminal";
  for (const auto& [columns, width] :
       {std::pair("132", 132), {"", 100}, {"wide", 100}, {"0", 100}}) {
    setenv("COLUMNS", columns, 1);
    EXPECT_EQ(TerminalWidth(), width) << columns;
  }
  unsetenv("COLUMNS");
  EXPECT_EQ(TerminalWidth(), 100);
}

}  // namespace
}  // namespace kvr::cli
