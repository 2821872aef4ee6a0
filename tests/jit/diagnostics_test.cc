// SPDX-License-Identifier: Apache-2.0
//
// What an author reads when a compiler speaks of text that KVR made.
#include "jit/diagnostics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/status.h"
#include "jit/template.h"
#include "tests/jit/fixtures.h"

namespace kvr {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const Config kConfig = {{"BLOCK", 128}, {"UNROLL", 4}, {"TARGET_CTAS", 1}};

std::string Text(std::string_view view) { return std::string(view); }

TEST(CompileError, ShowsAMovedIncludeWhereTheAuthorHasIt) {
  Variant variant = ScaleVariant();
  variant.sources[0].content = "// Scales.\n\n#include <cstdint>\n  #include <vector>\n" +
                               std::string(variant.sources[0].content);
  auto unit = RenderUnit(ScaleOp(), variant, kConfig);
  ASSERT_TRUE(unit.ok()) << unit.status();
  ASSERT_THAT(unit->text, StartsWith("#include <cstdint>\n#include <vector>\n"));
  unit->missing = {"vector"};
  for (const char* message :
       {"'vector' file not found", "cannot open source file \"vector\" (no such file)"}) {
    const absl::Status status =
        CompileError(*unit, {{Diagnostic::Severity::kError, "kvr_unit.cu", 2, 10, message, ""}}, "",
                     "this one has <cmath>");
    EXPECT_THAT(Text(What(status)),
                AllOf(StartsWith("scale.cu:4:12: error: "), HasSubstr("#include <vector>")));
    EXPECT_THAT(Text(Fix(status)), AllOf(HasSubstr("<vector>"), HasSubstr("this one has <cmath>"),
                                         HasSubstr("`headers`")));
  }
}

TEST(CompileError, TellsToListAFileOfTheBundle) {
  Variant variant = ScaleVariant();
  variant.headers.clear();
  auto unit = RenderUnit(ScaleOp(), variant, kConfig);
  ASSERT_TRUE(unit.ok()) << unit.status();
  unit->missing = {"tile.cuh"};
  const absl::Status status = CompileError(
      *unit, {{Diagnostic::Severity::kError, "scale.cu", 5, 10, "'tile.cuh' file not found", ""}},
      "", "this one has <cmath>");
  EXPECT_THAT(Text(Fix(status)),
              AllOf(HasSubstr("'tile.cuh'"), HasSubstr("list it under `headers`"),
                    Not(HasSubstr("<cmath>"))));
}

TEST(CompileError, AddsNoNotesToAGeneratedCheck) {
  auto unit = RenderUnit(ScaleOp(), ScaleVariant(), kConfig);
  ASSERT_TRUE(unit.ok()) << unit.status();
  const Diagnostic failed{Diagnostic::Severity::kError,
                          "scale.cu",
                          9,
                          1,
                          "static assertion failed: " + unit->assertions[0].message,
                          ""};
  const Diagnostic note{Diagnostic::Severity::kNote,        "scale.cu", 9, 1,
                        "expression evaluates to '3 == 2'", ""};
  EXPECT_THAT(Text(What(CompileError(*unit, {failed, note}, ""))), Not(HasSubstr("3 == 2")));
  const Diagnostic other{Diagnostic::Severity::kError, "scale.cu", 12, 1, "no such thing", ""};
  EXPECT_THAT(Text(What(CompileError(*unit, {failed, other, note}, ""))), HasSubstr("3 == 2"));
}

TEST(RenderUnit, RefusesATemplateWithoutArguments) {
  Variant variant = ScaleVariant();
  variant.plan.kernels[0].entry = "scale";
  const absl::Status status = RenderUnit(ScaleOp(), variant, kConfig).status();
  EXPECT_THAT(Text(What(status)),
              AllOf(StartsWith("variant.toml:40"), HasSubstr("scale (scale.cu:9) is a template")));
  EXPECT_THAT(Text(Fix(status)), HasSubstr("scale<...>"));
  // An overload that is none may be what is meant.
  variant.sources[0].content = std::string(variant.sources[0].content) +
                               "__global__ void scale(const __nv_bfloat16* x, float alpha) {}\n";
  EXPECT_TRUE(RenderUnit(ScaleOp(), variant, kConfig).ok());
}

}  // namespace
}  // namespace kvr
