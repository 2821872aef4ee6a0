// SPDX-License-Identifier: Apache-2.0
#include "jit/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/status.h"
#include "jit/diagnostics.h"
#include "tests/jit/fixtures.h"

namespace kvr {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const Config kConfig = {{"BLOCK", 128}, {"UNROLL", 4}, {"TARGET_CTAS", 1}};

std::string Text(std::string_view view) { return std::string(view); }

TEST(RenderUnit, PutsIncludesThenTunablesThenSourcesThenChecks) {
  auto unit = RenderUnit(ScaleOp(), ScaleVariant(), kConfig);
  ASSERT_TRUE(unit.ok()) << unit.status();
  EXPECT_THAT(unit->text, StartsWith(R"golden(#include <cuda_bf16.h>
#include <cstdint>
inline constexpr int BLOCK = 128;
inline constexpr int UNROLL = 4;
#include "scale.cu"
namespace kvr_signature {
)golden"));
  EXPECT_THAT(unit->text, EndsWith(R"golden(}  // namespace kvr_signature
template <class F, bool = kvr_signature::Same<F, void (*)(const __nv_bfloat16*, float, float*, __nv_bfloat16*, int, long long)>::value> struct kvr_signature_check_0 { static constexpr bool made = true; };
template <class... P> struct kvr_signature_check_0<void (*)(P...), false> {
#line 9 "scale.cu"
static_assert(sizeof...(P) == 6, "kernel 'scale' takes 6 parameters, but the manifest passes 6: x, alpha, workspace.partial, y, i32(n), i64(n)");
#line 9 "scale.cu"
static_assert(kvr_signature::Takes<6, 0, const __nv_bfloat16*, P...>::value, "kernel 'scale': parameter 1 is 'const __nv_bfloat16* __restrict__ x', but the manifest passes 'x', which needs 'const __nv_bfloat16*'");
#line 9 "scale.cu"
static_assert(kvr_signature::Takes<6, 1, float, P...>::value, "kernel 'scale': parameter 2 is 'float alpha', but the manifest passes 'alpha', which needs 'float'");
#line 10 "scale.cu"
static_assert(kvr_signature::Takes<6, 2, float*, P...>::value || kvr_signature::Takes<6, 2, const float*, P...>::value, "kernel 'scale': parameter 3 is 'float* partial', but the manifest passes 'workspace.partial', which needs 'float*' or 'const float*'");
#line 11 "scale.cu"
static_assert(kvr_signature::Takes<6, 3, __nv_bfloat16*, P...>::value, "kernel 'scale': parameter 4 is '__nv_bfloat16* y', but the manifest passes 'y', which needs '__nv_bfloat16*'");
#line 11 "scale.cu"
static_assert(kvr_signature::Takes<6, 4, int, P...>::value, "kernel 'scale': parameter 5 is 'int n', but the manifest passes 'i32(n)', which needs 'int'");
#line 12 "scale.cu"
static_assert(kvr_signature::Takes<6, 5, long long, P...>::value, "kernel 'scale': parameter 6 is 'int64_t elements', but the manifest passes 'i64(n)', which needs 'long long'");
 static constexpr bool made = true; };
#line 9 "scale.cu"
static_assert(kvr_signature_check_0<decltype(&scale<BLOCK, UNROLL>)>::made);
)golden"));
  EXPECT_THAT(unit->entries, testing::ElementsAre("scale<BLOCK, UNROLL>"));
  EXPECT_EQ(unit->entry_sites[0].file, "scale.cu");
}

TEST(RenderUnit, IsTheSameTextForEveryNamePathAndLaunchTunable) {
  Variant variant = ScaleVariant();
  auto a = RenderUnit(ScaleOp(), variant, kConfig);
  variant.name = "other";
  variant.plugin = "elsewhere";
  variant.directory = "/some/where";
  variant.sources[0].path = "/some/where/scale.cu";
  auto b = RenderUnit(ScaleOp(), variant, {{"BLOCK", 128}, {"UNROLL", 4}, {"TARGET_CTAS", 2}});
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->text, b->text);
  EXPECT_THAT(b->text, Not(HasSubstr("/some")));
}

TEST(RenderUnit, ReplacesPlaceholdersAndLeavesBracesOfCppAlone) {
  Variant variant = ScaleVariant();
  variant.sources[0].content += "constexpr int a[1][1] = {{7}}; S s{{ n }}; // {{ BLOCK }}\n";
  auto unit = RenderUnit(ScaleOp(), variant, kConfig);
  ASSERT_TRUE(unit.ok()) << unit.status();
  const std::string& source = *unit->Header("scale.cu")->content;
  EXPECT_THAT(source, HasSubstr("#pragma unroll 4\n"));
  EXPECT_THAT(source, HasSubstr("= {{7}}; S s{{ n }}; // 128\n"));
}

TEST(RenderUnit, ReportsUnknownPlaceholderWithCaret) {
  Variant variant = ScaleVariant();
  Replace(&variant.sources[0].content, "{{UNROLL}}", "{{UNROL}}");
  auto unit = RenderUnit(ScaleOp(), variant, kConfig);
  ASSERT_EQ(unit.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(What(unit.status()),
            "scale.cu:13:16: error: unknown placeholder 'UNROL'\n"
            "#pragma unroll {{UNROL}}\n"
            "               ^");
  EXPECT_THAT(Text(Fix(unit.status())), HasSubstr("BLOCK, UNROLL"));
}

TEST(RenderUnit, ReportsLowerCasePlaceholderInADirective) {
  Variant variant = ScaleVariant();
  Replace(&variant.sources[0].content, "{{UNROLL}}", "{{unroll}}");
  auto unit = RenderUnit(ScaleOp(), variant, kConfig);
  EXPECT_THAT(Text(What(unit.status())), HasSubstr("unknown placeholder 'unroll'"));
}

TEST(RenderUnit, RefusesPlaceholderOfLaunchTunable) {
  Variant variant = ScaleVariant();
  Replace(&variant.headers[0].content, "#pragma once", "#pragma once // {{TARGET_CTAS}}");
  auto unit = RenderUnit(ScaleOp(), variant, kConfig);
  EXPECT_THAT(Text(What(unit.status())), StartsWith("tile.cuh:1:17: error: placeholder"));
  EXPECT_THAT(Text(What(unit.status())), HasSubstr("launch-scope"));
}

TEST(RenderUnit, NeedsEveryTunableOfTheSource) {
  auto unit = RenderUnit(ScaleOp(), ScaleVariant(), {{"BLOCK", 128}});
  EXPECT_THAT(Text(What(unit.status())), HasSubstr("'UNROLL'"));
}

TEST(RenderUnit, HoistsOnlyWhatNothingPrecedes) {
  Variant variant = ScaleVariant();
  Replace(&variant.sources[0].content, "#include <cstdint>", "#define FOO 1\n#include <cstdint>");
  auto unit = RenderUnit(ScaleOp(), variant, kConfig);
  ASSERT_TRUE(unit.ok());
  EXPECT_THAT(unit->text, Not(HasSubstr("#include <cstdint>")));
}

TEST(RenderUnit, PutsChecksAtTheManifestWhereTheSourceShowsNoKernel) {
  Variant variant = ScaleVariant();
  variant.plan.kernels[0].entry = "made_by_macro<BLOCK>";
  variant.plan.kernels[0].file = "/abs/bundle/variant.toml";
  auto unit = RenderUnit(ScaleOp(), variant, kConfig);
  ASSERT_TRUE(unit.ok());
  EXPECT_THAT(unit->text,
              HasSubstr("#line 40 \"variant.toml\"\nstatic_assert(kvr_signature_check_0"));
  EXPECT_THAT(unit->text, Not(HasSubstr("/abs")));
}

TEST(RenderUnit, RefusesTwoFilesOfOneName) {
  Variant variant = ScaleVariant();
  variant.headers.push_back({"scale.cu", "", ""});
  EXPECT_FALSE(RenderUnit(ScaleOp(), variant, kConfig).ok());
}

TEST(CompileError, MapsColumnsBackThroughPlaceholders) {
  Variant variant = ScaleVariant();
  variant.sources[0].content = "int a = {{UNROLL}} + bad;\n__global__ void scale() {}\n";
  variant.sources[0].path = "/home/me/scale.cu";
  auto unit = RenderUnit(ScaleOp(), variant, kConfig);
  ASSERT_TRUE(unit.ok());
  // "int a = 4 + bad;": what the compiler sees at column 13 the author wrote at column 22.
  Diagnostic error{Diagnostic::Severity::kError, "scale.cu", 1, 13, "no 'bad'", ""};
  absl::Status status = CompileError(*unit, {error}, "");
  EXPECT_EQ(What(status),
            "/home/me/scale.cu:1:22: error: no 'bad'\n"
            "int a = {{UNROLL}} + bad;\n"
            "                     ^");
}

TEST(CompileError, MovesAnAssertionToItsParameter) {
  auto unit = RenderUnit(ScaleOp(), ScaleVariant(), kConfig);
  ASSERT_TRUE(unit.ok());
  for (const UnitAssertion& assertion : unit->assertions) {
    Diagnostic error{Diagnostic::Severity::kError,
                     "scale.cu",
                     assertion.site.line,
                     1,
                     "static assertion failed with \"" + assertion.message + "\"",
                     ""};
    EXPECT_THAT(Text(What(CompileError(*unit, {error}, ""))),
                StartsWith(assertion.site.file + ":" + std::to_string(assertion.site.line) + ":" +
                           std::to_string(assertion.site.column) + ": error: kernel 'scale'"));
  }
}

TEST(CompileError, KeepsAFloodShort) {
  Unit unit;
  std::vector<Diagnostic> flood;
  for (int i = 0; i < 100; ++i) {
    flood.push_back({Diagnostic::Severity::kError, "a.h", i, 1, std::string(10000, 'x'), ""});
    for (int j = 0; j < 100; ++j)
      flood.push_back({Diagnostic::Severity::kNote, "a.h", j, 1, std::string(10000, 'y'), ""});
  }
  absl::Status status = CompileError(unit, flood, "");
  EXPECT_LT(What(status).size(), 30000u);
  EXPECT_THAT(Text(What(status)), HasSubstr("... and 92 more"));
}

TEST(CompileError, ShowsTheLogWhereNothingWasUnderstood) {
  Unit unit;
  unit.name = "op/v {}";
  absl::Status status = CompileError(unit, {}, "something odd\n");
  EXPECT_THAT(Text(What(status)), HasSubstr("something odd"));
}

}  // namespace
}  // namespace kvr
