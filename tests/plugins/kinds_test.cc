// SPDX-License-Identifier: Apache-2.0
//
// What a variant may be besides sources: plan values, a launch function, cubins, tensor maps. And
// what is said of those that cannot be.
#include <elf.h>

#include <ostream>

#include "core/strings.h"
#include "plugins/admit.h"
#include "plugins/extend.h"
#include "plugins/library.h"
#include "tests/plugins/plugin_fixture.h"

namespace kvr {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kPlanned = R"toml(schema = 1
op = "scale_rows"
name = "planned"
version = "1.0.0"
semantics = "exact"
targets = ["sm_90a"]
host_skip_reason = "uses TMA"
sources = ["scale.cu"]
plan_values = ["nsplit", "chunk"]

[tunables.CTAS]
values = [1, 2]
default = 1
scope = "launch"

[[tensor_map]]
name = "rows"
tensor = "x"
box = [1, "chunk"]
swizzle = 128

[[kernel]]
name = "scale"
entry = "scale_rows"
grid = ["nsplit"]
block = [32]
args = ["tensor_map.rows", "factor", "y", "sums"]
)toml";

constexpr std::string_view kLaunched = R"toml(schema = 1
op = "scale_rows"
name = "launched"
version = "1.0.0"
semantics = "exact"
targets = ["sm_80+", "host"]
launch_function = true

[tunables.SPLITS]
values = [1, 2]
default = 1
scope = "launch"

[[workspace]]
name = "scratch"
dtype = "float32"
elements = "rows"
)toml";

constexpr std::string_view kPrebuilt = R"toml(schema = 1
op = "scale_rows"
name = "prebuilt"
version = "1.0.0"
semantics = "exact"
cubins = { sm_90a = "scale.cubin" }

[[kernel]]
name = "scale"
entry = "kvr_plugin_v1"
grid = ["rows"]
block = [32]
args = ["x", "factor", "y", "sums"]
)toml";

constexpr std::string_view kRough = R"toml(schema = 1
op = "scale_rows"
name = "rough"
version = "1.0.0"
semantics = "approximate"
targets = ["sm_80+", "host"]
sources = ["scale.cu"]
reference_function = true

[tunables.K]
values = [1, 2]
default = 1
scope = "quality"

[[kernel]]
name = "scale"
entry = "scale_rows"
grid = ["rows * K"]
block = [32]
args = ["x", "y", "sums"]
)toml";

// A shared library made to pass for a cubin; its one function is kvr_plugin_v1.
std::string Cubin(uint32_t sm = 90) {
  std::string elf = ReadFile(FixturePlugin("kvr_test_bare"));
  Elf64_Ehdr header;
  std::memcpy(&header, elf.data(), sizeof header);
  header.e_type = ET_EXEC;
  header.e_machine = 190;
  header.e_flags = sm;
  std::memcpy(elf.data(), &header, sizeof header);
  return elf;
}

class Kinds : public PluginTest {
 protected:
  void SetUp() override {
    PluginTest::SetUp();
    auto library = PluginLibrary::Read(FixturePlugin("kvr_test_demo"), nullptr);
    ASSERT_TRUE(library.ok()) << library.status();
    library_ = *library;
  }

  absl::StatusOr<bundle::Manifest> Read(std::string_view manifest) const {
    const bundle::EmbeddedBundle::Files files = {{"v/variant.toml", std::string(manifest)},
                                                 {"v/scale.cu", "__global__ void scale_rows();\n"},
                                                 {"v/tile.cuh", ""},
                                                 {"v/old.cubin", Cubin(80)},
                                                 {"v/scale.cubin", Cubin()}};
    return bundle::ReadBundle(bundle::EmbeddedBundle("lib.so", "v", files), library_);
  }

  absl::StatusOr<Variant> Admit(std::string_view manifest) const {
    const absl::StatusOr<bundle::Manifest> read = Read(manifest);
    if (!read.ok()) return read.status();
    return bundle::Admit(*read, op_);
  }

  absl::StatusOr<Variant> AdmitChild(std::string_view parent, std::string_view child) const {
    const absl::StatusOr<bundle::Manifest> base = Read(parent), own = Read(child);
    if (!base.ok()) return base.status();
    if (!own.ok()) return own.status();
    const absl::StatusOr<bundle::Manifest> merged = bundle::Extend(*base, *own);
    if (!merged.ok()) return merged.status();
    return bundle::Admit(*merged, op_);
  }

  std::shared_ptr<const PluginLibrary> library_;
};

std::string Child(std::string_view rest) {
  return "schema = 1\nop = \"scale_rows\"\nname = \"child\"\nversion = \"1.0.0\"\n"
         "extends = { variant = \"x\", version = \"1\" }\n" +
         std::string(rest);
}

TEST_F(Kinds, PlanValuesAndTensorMaps) {
  const absl::StatusOr<Variant> v = Admit(kPlanned);
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_THAT(v->plan.function_values, ElementsAre("nsplit", "chunk"));
  EXPECT_NE(v->plan.function, nullptr);
  ASSERT_EQ(v->plan.tensor_maps.size(), 1u);
  const TensorMapSpec& map = v->plan.tensor_maps[0];
  EXPECT_EQ(map.tensor, 0);
  EXPECT_EQ(map.swizzle, 128);
  EXPECT_EQ(map.shape[0].text(), "rows");
  EXPECT_EQ(map.shape[1].text(), "width");
  EXPECT_EQ(v->plan.kernels[0].args[0].kind, ArgSpec::Kind::kTensorMap);
  EXPECT_EQ(v->tunables.size(), 1u);  // read by the plan function, for all we know
}

TEST_F(Kinds, LaunchFunction) {
  const absl::StatusOr<Variant> v = Admit(kLaunched);
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_TRUE(v->has_launch_function);
  EXPECT_EQ(v->plan.function, nullptr);
  EXPECT_EQ(v->plan.regions.size(), 1u);
}

TEST_F(Kinds, CubinsSayTheirTargets) {
  const absl::StatusOr<Variant> v = Admit(kPrebuilt);
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_THAT(v->targets, ElementsAre("sm_90a"));
  EXPECT_TRUE(v->Supports("sm_90a"));
  EXPECT_FALSE(v->Supports("host"));
  EXPECT_EQ(v->code, nullptr);
  EXPECT_EQ(v->cubins[0].file.content, Cubin());
  EXPECT_TRUE(Admit(Replaced(kPrebuilt, "cubins", "targets = [\"sm_90a\"]\ncubins")).ok());
}

TEST_F(Kinds, EveryStatementIsPartOfTheFingerprint) {
  const Fingerprint planned = Admit(kPlanned)->fingerprint;
  for (const auto& [from, to] :
       {std::pair("\"nsplit\", \"chunk\"", "\"chunk\", \"nsplit\""),
        std::pair("swizzle = 128", "swizzle = 64"), std::pair("box = [1,", "box = [2,"),
        std::pair("tensor = \"x\"", "tensor = \"y\"")}) {
    const absl::StatusOr<Variant> other = Admit(Replaced(kPlanned, from, to));
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_NE(other->fingerprint, planned) << to;
  }
  // The library's content, where it has code, and the content of cubins.
  library_ = *PluginLibrary::Read(FixturePlugin("kvr_test_rebuilt"), nullptr);
  EXPECT_NE(Admit(kPlanned)->fingerprint, planned);
}

TEST_F(Kinds, ChildOfAnotherKindDropsWhatItsParentLaunches) {
  absl::StatusOr<Variant> v = AdmitChild(
      kPlanned, Child("cubins = { sm_90a = \"scale.cubin\" }\n[[kernel]]\nname = \"scale\"\n"
                      "entry = \"kvr_plugin_v1\"\n"));
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_TRUE(v->sources.empty());
  EXPECT_THAT(v->targets, ElementsAre("sm_90a"));
  EXPECT_EQ(v->plan.function_values.size(), 2u);  // the parent's function still plans
  EXPECT_NE(v->code, nullptr);

  v = AdmitChild(kPrebuilt, Child("launch_function = true\ntargets = [\"host\"]\n"));
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_TRUE(v->cubins.empty());
  EXPECT_TRUE(v->plan.kernels.empty());

  v = AdmitChild(kLaunched, Child("sources = [\"scale.cu\"]\n[[kernel]]\nname = \"k\"\n"
                                  "entry = \"scale_rows\"\ngrid = [\"rows * SPLITS\"]\n"
                                  "block = [32]\nargs = [\"x\", \"y\", \"sums\"]\n"));
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_FALSE(v->has_launch_function);
  EXPECT_EQ(v->code, nullptr);
}

TEST_F(Kinds, ApproximateVariantHasAReferenceFunction) {
  const absl::StatusOr<Variant> v = Admit(kRough);
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_TRUE(v->has_reference_function);
  EXPECT_EQ(v->plan.function, nullptr);
  EXPECT_NE(v->code, nullptr);
  // The statement, and the library that says what is right, are of the fingerprint.
  library_ = *PluginLibrary::Read(FixturePlugin("kvr_test_rebuilt"), nullptr);
  EXPECT_NE(Admit(kRough)->fingerprint, v->fingerprint);
}

TEST_F(Kinds, ReferenceFunctionIsInheritedReplacedAndDropped) {
  absl::StatusOr<Variant> v =
      AdmitChild(kRough, Child("[[kernel]]\nname = \"scale\"\ngrid = [\"rows\"]\n"));
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_TRUE(v->has_reference_function);
  // The function gets K at its place, though nothing else uses it any longer.
  ASSERT_EQ(v->tunables.size(), 1u);
  EXPECT_EQ(v->tunables[0].name, "K");

  v = AdmitChild(kRough, Child("reference_function = false\n"));
  EXPECT_THAT(std::string(What(v.status())), HasSubstr("no reference function says"));

  v = AdmitChild(kRough, Child("semantics = \"exact\"\n[tunables.K]\nvalues = [1]\n"
                               "default = 1\nscope = \"launch\"\n"));
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_FALSE(v->has_reference_function);
  EXPECT_EQ(v->code, nullptr);
}

TEST_F(Kinds, ChildInheritsAddsAndDropsTensorMaps) {
  absl::StatusOr<Variant> v =
      AdmitChild(kPlanned, Child("[[tensor_map]]\nname = \"rows\"\nswizzle = 32\n"));
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_EQ(v->plan.tensor_maps[0].swizzle, 32);
  EXPECT_EQ(v->plan.tensor_maps[0].box[1].text(), "chunk");
  v = AdmitChild(kPlanned,
                 Child("[[kernel]]\nname = \"scale\"\nargs = [\"x\", \"y\", \"sums\"]\n"));
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_TRUE(v->plan.tensor_maps.empty());
}

TEST_F(Kinds, ChildMayPlanWithoutTheFunction) {
  const absl::StatusOr<Variant> v =
      AdmitChild(kPlanned, Child("plan_values = []\n[let]\nnsplit = \"CTAS\"\nchunk = 8\n"));
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_EQ(v->code, nullptr);
}

// A function is called with its own op's axes and tensors by position.
TEST_F(Kinds, ChildOfAnotherOpInheritsNoFunction) {
  const auto child = [](std::string_view rest) {
    return Replaced(Child(rest), "variant = \"x\"", "op = \"other\", variant = \"x\"");
  };
  for (const auto& [manifest, kind, key, own] :
       {std::tuple(kPlanned, "plan", "plan_values",
                   "plan_values = []\n[let]\nnsplit = \"CTAS\"\nchunk = 8\n"),
        std::tuple(kLaunched, "launch", "launch_function", "launch_function = true\n"),
        std::tuple(kRough, "reference", "reference_function", "reference_function = true\n")}) {
    const std::string parent = Replaced(manifest, "op = \"scale_rows\"", "op = \"other\"");
    const absl::Status status = AdmitChild(parent, child("")).status();
    EXPECT_EQ(What(status), StrCat("lib.so:v/variant.toml:5:18: extends 'other/x', whose ", kind,
                                   " function takes the axes and tensors of 'other'"));
    EXPECT_EQ(Fix(status), StrCat("state ", key, " here: for a function of your own, or for none"));
    const absl::StatusOr<Variant> v = AdmitChild(parent, child(own));
    EXPECT_TRUE(v.ok()) << v.status();
  }
}

struct Fault {
  const char* name;
  std::string_view manifest;
  const char* from;
  const char* to;
  int line;  // 0: of the file as a whole
  const char* what;
  const char* fix;
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.to; }

class RejectedKind : public Kinds, public testing::WithParamInterface<Fault> {};

TEST_P(RejectedKind, SaysWhereWhatAndFix) {
  const Fault& fault = GetParam();
  const absl::Status status = Admit(Replaced(fault.manifest, fault.from, fault.to)).status();
  std::string place = "lib.so:v/variant.toml:";
  if (fault.line > 0) place += std::to_string(fault.line) + ":";
  EXPECT_THAT(std::string(What(status)), testing::StartsWith(place)) << status;
  EXPECT_THAT(std::string(What(status)), HasSubstr(fault.what));
  EXPECT_THAT(std::string(Fix(status)), HasSubstr(fault.fix));
}

const Fault kFaults[] = {
    {"PlanValueUnused", kPlanned, "\"chunk\"]\n\n", "\"chunk\", \"more\"]\n\n", 9,
     "plan value 'more' is used by no expression", "remove it"},
    {"PlanValueTwice", kPlanned, "\"nsplit\", ", "\"chunk\", ", 9, "'chunk' is named twice",
     "once"},
    {"PlanValueName", kPlanned, "\"nsplit\", ", "\"N\", ", 9, "plan value name 'N'", "[a-z]"},
    {"PlanValueIsAxis", kPlanned, "\"nsplit\", ", "\"rows\", ", 9, "the name of an axis", "own"},
    {"PlanValueIsDevice", kPlanned, "\"nsplit\", ", "\"sms\", ", 9, "of a device property", "own"},
    {"PlanValueIsFunction", kPlanned, "\"nsplit\", ", "\"min\", ", 9, "name of a function", "own"},
    {"LetIsPlanValue", kPlanned, "[[tensor_map]]", "[let]\nchunk = 1\n[[tensor_map]]", 17,
     "let 'chunk' has the name of a plan value", "own"},
    {"PlanValuesAsText", kPlanned, "[\"nsplit\", \"chunk\"]", "\"nsplit\"", 9, "is a string",
     "an array of strings"},
    {"MapUnknownKey", kPlanned, "swizzle =", "swizle =", 20, "unknown key 'swizle'", "swizzle"},
    {"MapTensor", kPlanned, "tensor = \"x\"", "tensor = \"xx\"", 18, "unknown tensor 'xx'", "'x'"},
    {"MapOfScalar", kPlanned, "tensor = \"x\"", "tensor = \"factor\"", 18, "is a scalar", "shape"},
    {"MapWithoutTensor", kPlanned, "tensor = \"x\"\n", "", 17, "'tensor' is missing", "tensor ="},
    {"MapWithoutBox", kPlanned, "box = ", "shape = ", 17, "'box' is missing", "box ="},
    {"MapRank", kPlanned, "box = [1, ", "box = [1, 1, ", 19, "3 box extents for a view of 2",
     "as many"},
    {"MapDimensions", kPlanned, "box = [1, ", "box = [1, 1, 1, 1, 1, ", 19, "has 6 dimensions",
     "1 to 5"},
    {"MapSwizzle", kPlanned, "swizzle = 128", "swizzle = 16", 20, "swizzle 16", "0, 32, 64 or 128"},
    {"MapExpression", kPlanned, "\"chunk\"]\nswizzle", "\"chunk +\"]\nswizzle", 19, "column", ""},
    {"MapUnused", kPlanned, "\"tensor_map.rows\"", "\"x\"", 17, "is the argument of no kernel",
     "tensor_map.rows"},
    {"MapArgument", kPlanned, "[\"tensor_map.rows\"", "[\"tensor_map.rows\", \"tensor_map.row\"",
     27, "unknown tensor map 'row'", "did you mean 'rows'"},
    {"MapTwice", kPlanned, "[[kernel]]", "[[tensor_map]]\nname = \"rows\"\n[[kernel]]", 23,
     "tensor map 'rows' is stated twice", "line 17"},
    {"MapOnHost", kPlanned, "[\"sm_90a\"]\nhost_skip_reason = \"uses TMA\"", "[\"host\"]", 16,
     "but 'host' is a target", "leave"},
    {"KindMissing", kLaunched, "launch_function = true", "launch_function = false", 0,
     "'sources' is missing", "launch_function = true"},
    {"SourcesBesideFunction", kLaunched, "launch_function",
     "sources = [\"scale.cu\"]\nlaunch_function", 7, "sources beside launch_function", "one of"},
    {"HeadersBesideFunction", kLaunched, "launch_function",
     "headers = [\"tile.cuh\"]\nlaunch_function", 7, "headers beside launch_function", "one of"},
    {"CubinsBesideFunction", kLaunched, "launch_function",
     "cubins = { sm_90a = \"scale.cubin\" }\nlaunch_function", 8, "launch_function beside cubins",
     "one of"},
    {"KernelBesideFunction", kLaunched, "[[workspace]]", "[[kernel]]\nname = \"k\"\n[[workspace]]",
     15, "[[kernel]] beside launch_function", "one of"},
    {"CompileScopeBesideFunction", kLaunched, "scope = \"launch\"", "scope = \"compile\"", 9,
     "has scope compile beside launch_function", "scope = \"launch\""},
    {"SourcesBesideCubins", kPrebuilt, "cubins", "sources = [\"scale.cu\"]\ncubins", 6,
     "sources beside cubins", "one of"},
    {"CubinTarget", kPrebuilt, "sm_90a", "sm_90", 6, "'sm_90' is not exact", "sm_90a"},
    {"CubinForHost", kPrebuilt, "sm_90a", "host", 6, "cubins has no 'host'", "sources"},
    {"CubinTargets", kPrebuilt, "cubins", "targets = [\"sm_80\"]\ncubins", 6,
     "targets are sm_80, and cubins are for sm_90a", "leave targets out"},
    {"CubinMissing", kPrebuilt, "scale.cubin", "scal.cubin", 6, "cannot be opened", "scale.cubin"},
    {"CubinPath", kPrebuilt, "scale.cubin", "../scale.cubin", 6, "leaves the bundle", "relative"},
    {"CubinIsText", kPrebuilt, "scale.cubin", "scale.cu", 6, "is no ELF file", "nvcc -cubin"},
    {"CubinOfOther", kPrebuilt, "scale.cubin", "old.cubin", 6, "is for sm_80, not sm_90a",
     "target"},
    {"CubinEntry", kPrebuilt, "kvr_plugin_v1", "kvr_plugin_v2", 10,
     "has no function 'kvr_plugin_v2'", "did you mean 'kvr_plugin_v1'"},
    {"ApproximateWithoutReference", kRough, "reference_function = true", "", 5,
     "approximate, and no reference function says what it computes", "reference_function = true"},
    {"ExactWithReference", kPlanned, "plan_values", "reference_function = true\nplan_values", 9,
     "reference_function beside semantics = \"exact\"", "remove it"},
    {"ReferenceAsText", kRough, "_function = true", "_function = \"yes\"", 8, "is a string",
     "true or false"},
    {"CubinIsNumber", kPrebuilt, "\"scale.cubin\"", "7", 6, "is an integer", "a string"},
};

INSTANTIATE_TEST_SUITE_P(Manifest, RejectedKind, testing::ValuesIn(kFaults),
                         [](const auto& each) { return std::string(each.param.name); });

TEST_F(Kinds, DirectoryRunsNoCode) {
  library_ = nullptr;
  for (std::string_view manifest : {kPlanned, kLaunched, kRough}) {
    const absl::Status status = Admit(manifest).status();
    EXPECT_THAT(std::string(What(status)), HasSubstr("needs code, and a bundle runs none"));
    EXPECT_THAT(std::string(Fix(status)), HasSubstr("kvr_add_plugin"));
  }
  EXPECT_TRUE(Admit(kPrebuilt).ok());
}

TEST_F(Kinds, PlanFaultsNameTheColumnOfTheExpression) {
  WriteBundle("b");
  LaunchPlan plan;
  const DeviceInfo device = {.sms = 1, .smem_per_block = 1 << 20};
  for (const auto& [tiles, column] : {std::pair("\"1 + floordiv(rows, width - 64)\"", "column 5"),
                                      std::pair("\"rows * 9223372036854775807\"", "column 6")}) {
    Write("b/variant.toml", Replaced(kManifest, "\"ceildiv(width, 32 * WARPS)\"", tiles));
    const VariantPtr v = Only({"b"});
    ASSERT_NE(v, nullptr);
    const absl::Status status =
        v->plan.Evaluate({3, 64}, v->TunableValues(DefaultConfig(v->tunables)), device, &plan);
    EXPECT_THAT(std::string(status.message()), HasSubstr("let 'tiles'"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(column));
  }
}

}  // namespace
}  // namespace kvr
