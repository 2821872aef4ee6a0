// SPDX-License-Identifier: Apache-2.0
//
// What a bad manifest is told: where, what was found, what would be right.
#include <ostream>

#include "tests/plugins/fixture.h"

namespace kvr {
namespace {

using testing::HasSubstr;

struct Fault {
  const char* name;
  const char* from;  // in kManifest
  const char* to;
  int line;  // 0: of the file as a whole
  const char* what;
  const char* fix;
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.to; }

class Rejected : public BundleTest, public testing::WithParamInterface<Fault> {};

TEST_P(Rejected, SaysWhereWhatAndFix) {
  const Fault& fault = GetParam();
  WriteBundle("b", Replaced(kManifest, fault.from, fault.to));
  const Scan scan = ScanRoots({"b"});
  EXPECT_TRUE(scan.variants.empty());
  ASSERT_EQ(scan.rejections.size(), 1u);
  const absl::Status& status = scan.rejections[0].status;
  std::string place = Path("b/variant.toml") + ":";
  if (fault.line > 0) place += std::to_string(fault.line) + ":";
  EXPECT_THAT(std::string(What(status)), testing::StartsWith(place)) << status;
  EXPECT_THAT(std::string(What(status)), HasSubstr(fault.what));
  EXPECT_THAT(std::string(Fix(status)), HasSubstr(fault.fix));
}

const Fault kFaults[] = {
    {"Syntax", "op = \"scale_rows\"", "op = scale_rows", 2, "not TOML", "quoted"},
    {"DuplicateKey", "version = \"1.2.3\"", "version = \"1.2.3\"\nop = \"x\"", 5, "not TOML",
     "stated once"},
    {"DuplicateTunable", "[let]", "[tunables.CTAS]\n[let]", 24, "not TOML", "stated once"},
    {"UnknownKey", "constraints", "constrains", 11, "unknown key 'constrains'",
     "did you mean 'constraints'"},
    {"UnknownKernelKey", "smem =", "shared =", 38, "kernel: unknown key 'shared'", "smem"},
    {"UnknownTunableKey", "description = \"warps a block\"", "help = \"\"", 17,
     "tunable 'WARPS': unknown key 'help'", "description"},
    {"UnknownAttribute", "programmatic = true", "pdl = true", 47, "unknown key 'pdl'",
     "programmatic"},
    {"NoSchema", "schema = 1\n", "", 1, "'schema' is missing", "schema = 1"},
    {"OtherSchema", "schema = 1\n", "schema = 2\n", 1, "schema 2 is unknown", "newer kvr"},
    {"NoOp", "op = \"scale_rows\"\n", "", 1, "'op' is missing", "op = "},
    {"UnknownOp", "op = \"scale_rows\"", "op = \"scale_row\"", 2, "unknown op 'scale_row'",
     "scale_rows"},
    {"BadOpName", "op = \"scale_rows\"", "op = \"scale-rows\"", 2,
     "op name 'scale-rows' is not legal", "[A-Za-z_]"},
    {"NoSemantics", "semantics = \"exact\"\n", "", 0, "'semantics' is missing", "exact"},
    {"Semantics", "\"exact\"", "\"exakt\"", 5, "unknown semantics", "exact"},
    {"BadName", "name = \"baseline\"", "name = \"Base-Line\"", 3, "is not legal", "[a-z]"},
    {"BadVersion", "1.2.3", "1.2", 4, "is not a version", "1.0.0"},
    {"NumberForString", "version = \"1.2.3\"", "version = 1.2", 4, "is a floating-point number",
     "a string"},
    {"ControlCharacter", "a row a block", "a\\u001b[31mrow", 7, "control character", "plain text"},
    {"BadTarget", "sm_80+", "sm_90", 8, "is not exact", "sm_90a"},
    {"UnknownTarget", "sm_80+", "gfx942", 8, "target", "known"},
    {"TargetTwice", "\"sm_80+\"", "\"host\"", 8, "stated twice", "once"},
    {"NoTargets", "[\"sm_80+\", \"host\"]", "[]", 0, "targets is empty", "sm_80+"},
    {"NoHostReason", "\"sm_80+\", \"host\"", "\"sm_80+\"", 8, "host_skip_reason is missing",
     "host_skip_reason ="},
    {"ApproximateBaseline", "\"exact\"", "\"approximate\"", 6,
     "an approximate variant cannot be the baseline", "baseline = false"},
    {"NoSources", "sources = [\"scale.cu\"]\n", "", 0, "'sources' is missing", "sources ="},
    {"MissingFile", "\"scale.cu\"", "\"scal.cu\"", 9, "cannot be opened", "'scale.cu'"},
    {"AbsolutePath", "\"scale.cu\"", "\"/etc/passwd\"", 9, "absolute path", "relative"},
    {"DotDot", "\"scale.cu\"", "\"../b/scale.cu\"", 9, "leaves the bundle", "relative"},
    {"DirectoryAsFile", "\"scale.cu\"", "\"sub\"", 9, "cannot be opened", ""},
    {"FileTwice", "\"tile.cuh\"", "\"scale.cu\"", 10, "is named twice", "once"},
    {"SdkName", "\"tile.cuh\"", "\"kvr/device.cuh\"", 10, "which the SDK's headers own", ""},
    {"NonInteger", "values = [4, 8]", "values = [4, 8.5]", 14, "is a floating-point number",
     "integers only"},
    {"BooleanValue", "values = [4, 8]", "values = [true, false]", 14, "is a boolean", "0 or 1"},
    {"NoValues", "values = [4, 8]", "values = []", 14, "has no values", "at least one"},
    {"ValueTwice", "values = [4, 8]", "values = [4, 4]", 14, "has a value twice", "once"},
    {"DefaultElsewhere", "default = 4", "default = 5", 15, "not among its values", "4, 8"},
    {"BadScope", "scope = \"compile\"", "scope = \"compil\"", 16, "unknown scope",
     "did you mean 'compile'"},
    {"QualityInExact", "scope = \"compile\"", "scope = \"quality\"", 13,
     "has scope quality, but the variant says it is exact", "approximate"},
    {"LowerCaseTunable", "[tunables.CTAS]", "[tunables.ctas]", 19, "tunable name 'ctas'", "[A-Z]"},
    {"TunableUsedNowhere", "[let]",
     "[tunables.EXTRA]\nvalues = [1]\ndefault = 1\nscope = \"compile\"\n[let]", 24,
     "'EXTRA' is used nowhere", "remove it"},
    {"LaunchScopeUnplanned", "min(tiles, CTAS)", "tiles", 19, "no expression of the plan uses it",
     "remove it"},
    {"LaunchScopeInEntry", "scope = \"compile\"", "scope = \"launch\"", 13,
     "has scope launch, but a kernel's entry names it", "scope = \"compile\""},
    {"LetName", "chunks = \"min", "min = \"min", 26, "has the name of a function", "own"},
    {"LetShadowsAxis", "tiles = ", "rows = ", 25, "has the name of an axis", "own"},
    {"LetUnused", "tiles = ", "spare = 1\ntiles = ", 25, "let 'spare' is used by no expression",
     "remove it"},
    {"LetWithARegionsName", "tiles = ", "partial = 1\ntiles = ", 25, "let 'partial' is used by no",
     "remove it"},
    {"LetOrder", "tiles = \"ceildiv(width, 32 * WARPS)\"", "tiles = \"chunks\"", 25,
     "uses 'chunks', which comes after it", "in order"},
    {"LetSelf", "\"ceildiv(width, 32 * WARPS)\"", "\"tiles + 1\"", 25, "uses itself", "in order"},
    {"ExpressionColumn", "ceildiv(width, 32 * WARPS)", "width / 32", 25, "column 7",
     "floordiv(a, b)"},
    {"ExpressionName", "rows * chunks", "rows * chunk", 31, "unknown name 'chunk'",
     "did you mean 'chunks'"},
    {"Constraint", "width <= 1024", "width <== 1024", 11, "constraint", ""},
    {"FourDimensions", "grid = [\"chunks\", \"rows\"]", "grid = [1, 1, 1, 1]", 36,
     "has 4 dimensions", "1 to 3"},
    {"Dtype", "\"float32\"", "\"float33\"", 30, "float33", "float32"},
    {"NoElements", "elements = \"rows * chunks\"\n", "", 29, "'elements' is missing", "elements ="},
    {"RegionUnused", "[[workspace]]",
     "[[workspace]]\nname = \"spare\"\ndtype = \"float32\"\nelements = 1\n[[workspace]]", 29,
     "workspace 'spare' is the argument of no kernel", "workspace.spare"},
    {"RegionTwice", "[[workspace]]", "[[workspace]]\nname = \"partial\"\n[[workspace]]", 31,
     "workspace 'partial' is stated twice", "line 29"},
    {"KernelTwice", "name = \"merge\"", "name = \"scale\"", 42, "kernel 'scale' is stated twice",
     "line 34"},
    {"NoEntry", "entry = \"merge_rows\"\n", "", 42, "'entry' is missing", "entry ="},
    {"EntryTypo", "\"merge_rows\"", "\"merge_row\"", 43, "no source of the bundle mentions",
     "did you mean 'merge_rows'"},
    {"EntryTunableTypo", "scale_rows<WARPS>", "scale_rows<WARP>", 35, "entry uses 'WARP'",
     "did you mean 'WARPS'"},
    {"EntryInjection", "\"merge_rows\"", "\"merge_rows; int x\"", 43,
     "is not a C++ name expression", "template arguments"},
    {"EntryUnbalanced", "scale_rows<WARPS>", "scale_rows<WARPS", 35, "is not a C++ name expression",
     ""},
    {"ArgumentTypo", "[\"x\", \"factor\"", "[\"x\", \"faktor\"", 39, "names no tensor",
     "did you mean 'factor'"},
    {"ArgumentIsAxis", "\"i32(width)\"", "\"width\"", 39, "names no tensor", "i32(width)"},
    {"ArgumentIsRegion", "\"y\", \"workspace.partial\"", "\"y\", \"partial\"", 39,
     "names no tensor", "workspace.partial"},
    {"UnknownRegion", "\"y\", \"workspace.partial\"", "\"y\", \"workspace.partials\"", 39,
     "unknown workspace 'partials'", "did you mean 'partial'"},
    {"ArgumentExpression", "i32(width)", "i32(width +)", 39, "column", ""},
    {"OutputUnwritten", "\"sums\", ", "", 0, "no kernel takes the op's output 'sums'", "pass it"},
    {"KeyPolicy", "description = \"a row a block\"", "key_policy = \"rowz:pow2\"", 7, "key_policy",
     "rows"},
    {"ExtendsPath", "baseline = true", "extends = { variant = \"../x\", version = \"1\" }", 6,
     "is not legal", "[a-z]"},
    {"ExtendsKey", "baseline = true", "extends = { ops = \"x\", variant = \"x\", version = \"1\" }",
     6, "extends: unknown key 'ops'", "did you mean 'op'"},
    {"ExtendsVersion", "baseline = true", "extends = { variant = \"x\", version = \"1.0\" }", 6,
     "is not a major version", "version = \"1\""},
};

INSTANTIATE_TEST_SUITE_P(Manifest, Rejected, testing::ValuesIn(kFaults),
                         [](const auto& each) { return std::string(each.param.name); });

class Limits : public BundleTest {
 protected:
  std::string Refusal(std::string_view manifest) {
    WriteBundle("b", manifest);
    const Scan scan = ScanRoots({"b"});
    EXPECT_TRUE(scan.variants.empty());
    return scan.rejections.empty() ? "" : std::string(scan.rejections[0].status.message());
  }
};

TEST_F(Limits, LargeManifest) {
  EXPECT_THAT(Refusal(std::string(kManifest) + std::string(70000, '\n')),
              HasSubstr("larger than 64 KiB"));
}

TEST_F(Limits, DeeplyDottedKeysDoNotOverflowTheStack) {
  std::string deep = "a";
  for (int i = 0; i < 30000; ++i) deep += ".a";
  EXPECT_THAT(Refusal(deep + " = 1\n"), HasSubstr("dotted keys"));
  EXPECT_THAT(Refusal(std::string(30000, '[')), HasSubstr("not TOML"));
}

TEST_F(Limits, DotsInTextAreFine) {
  WriteBundle("b", Replaced(kManifest, "a row a block", std::string(900, '.')) + "# " +
                       std::string(2000, '.') + "\n");
  EXPECT_NE(Only({"b"}), nullptr);
}

TEST_F(Limits, SpaceTooLarge) {
  std::string manifest(kManifest), source(kSource);
  for (int i = 0; i < 20; ++i) {
    const std::string name = "T" + std::to_string(i);
    manifest += "[tunables." + name + "]\nvalues=[0,1]\ndefault=0\nscope=\"compile\"\n";
    source += "// \nint a" + name + " = " + name + ";\n";
  }
  WriteBundle("b", manifest);
  Write("b/scale.cu", source);
  const Scan scan = ScanRoots({"b"});
  ASSERT_EQ(scan.rejections.size(), 1u);
  EXPECT_THAT(std::string(scan.rejections[0].status.message()), HasSubstr("65536 configs"));
}

TEST_F(Limits, TunableInACommentOnlyIsUnused) {
  WriteBundle("b", std::string(kManifest) +
                       "[tunables.UNROLL]\nvalues=[1]\ndefault=1\nscope=\"compile\"\n");
  Write("b/tile.cuh", "// UNROLL\n/* UNROLL */ const char* s = \"//\"; // UNROLL \\\n UNROLL\n");
  const Scan scan = ScanRoots({"b"});
  ASSERT_EQ(scan.rejections.size(), 1u);
  EXPECT_THAT(std::string(scan.rejections[0].status.message()), HasSubstr("used nowhere"));
}

TEST_F(Limits, HostReasonBesideHost) {
  EXPECT_THAT(Refusal(Replaced(kManifest, "baseline = true",
                               "host_skip_reason = \"because\"\nbaseline = true")),
              HasSubstr("but 'host' is a target"));
}

}  // namespace
}  // namespace kvr
