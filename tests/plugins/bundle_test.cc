// SPDX-License-Identifier: Apache-2.0
//
// What an accepted bundle becomes.
#include "plugins/scan.h"
#include "tests/plugins/fixture.h"

namespace kvr {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Accepted : public BundleTest {};

TEST_F(Accepted, BundleBecomesVariant) {
  WriteBundle("b");
  const VariantPtr v = Only({"b"});
  ASSERT_NE(v, nullptr);
  EXPECT_EQ(v->op, "scale_rows");
  EXPECT_EQ(v->name, "baseline");
  EXPECT_EQ(v->version, "1.2.3");
  EXPECT_TRUE(v->is_baseline);
  EXPECT_EQ(v->semantics, Semantics::kExact);
  EXPECT_EQ(v->plugin, "b");
  EXPECT_EQ(v->directory, Path("b"));
  EXPECT_THAT(v->targets, ElementsAre("sm_80+", "host"));
  ASSERT_EQ(v->sources.size(), 1u);
  EXPECT_EQ(v->sources[0].name, "scale.cu");
  EXPECT_EQ(v->sources[0].content, kSource);
  EXPECT_EQ(v->sources[0].path, Path("b/scale.cu"));
  ASSERT_EQ(v->headers.size(), 1u);
  EXPECT_EQ(v->headers[0].content, kHeader);
  ASSERT_EQ(v->tunables.size(), 2u);
  EXPECT_EQ(v->tunables[0].name, "WARPS");  // as stated, not sorted
  EXPECT_THAT(v->tunables[0].values, ElementsAre(4, 8));
  EXPECT_EQ(v->tunables[1].scope, Scope::kLaunch);
}

TEST_F(Accepted, PlanEvaluates) {
  WriteBundle("b");
  const VariantPtr v = Only({"b"});
  ASSERT_NE(v, nullptr);
  DeviceInfo device;
  device.smem_per_block = 1 << 16;
  LaunchPlan plan;
  const absl::Status status = v->plan.Evaluate({7, 512}, std::vector<int64_t>{4, 2}, device, &plan);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(plan.kernel_count, 2);
  EXPECT_EQ(plan.kernels[0].grid, (Dim3{2, 7, 1}));
  EXPECT_EQ(plan.kernels[0].block, (Dim3{128, 1, 1}));
  EXPECT_EQ(plan.kernels[0].smem, 2048);
  EXPECT_EQ(plan.kernels[0].values[4], 512);
  EXPECT_EQ(plan.region_bytes[0], 7 * 2 * 4);
  EXPECT_FALSE(
      v->plan.Evaluate({7, 2048}, std::vector<int64_t>{4, 2}, device, &plan).ok());  // constraint
}

TEST_F(Accepted, ArgumentsResolveToTensorsScalarsWorkspaceAndValues) {
  WriteBundle("b");
  const VariantPtr v = Only({"b"});
  ASSERT_NE(v, nullptr);
  const std::vector<ArgSpec>& args = v->plan.kernels[0].args;
  ASSERT_EQ(args.size(), 5u);
  EXPECT_EQ(args[0].kind, ArgSpec::Kind::kTensor);
  EXPECT_EQ(args[0].index, 0);
  EXPECT_EQ(args[1].kind, ArgSpec::Kind::kScalar);
  EXPECT_EQ(args[1].index, 1);
  EXPECT_EQ(args[2].index, 2);  // outputs follow inputs
  EXPECT_EQ(args[3].kind, ArgSpec::Kind::kWorkspace);
  EXPECT_EQ(args[3].dtype, DType::kF32);
  EXPECT_EQ(args[4].kind, ArgSpec::Kind::kValue);
  EXPECT_EQ(args[4].dtype, DType::kI32);
  EXPECT_TRUE(v->plan.kernels[1].attributes.programmatic);
  EXPECT_FALSE(v->plan.kernels[1].attributes.cooperative);
  EXPECT_EQ(v->plan.kernels[1].line, 42);
}

TEST_F(Accepted, LetsKeepTheOrderOfTheFile) {
  WriteBundle("b", Replaced(kManifest, "chunks = \"min(tiles, CTAS)\"",
                            "zeta = \"tiles + 1\"\nalpha = \"zeta + 1\"\n"
                            "chunks = \"min(alpha, CTAS)\""));
  const VariantPtr v = Only({"b"});
  ASSERT_NE(v, nullptr);
  std::vector<std::string> names;
  for (const auto& let : v->plan.lets) names.push_back(let.name);
  EXPECT_THAT(names, ElementsAre("tiles", "zeta", "alpha", "chunks"));
}

TEST_F(Accepted, RootsMayBeABundleOrHoldThemOneOrTwoDeep) {
  WriteBundle("bundle");
  WriteBundle("flat/w8",
              Replaced(Replaced(kManifest, "baseline = true\n", ""), "\"baseline\"", "\"w8\""));
  WriteBundle("deep/scale_rows/s3",
              Replaced(Replaced(kManifest, "baseline = true\n", ""), "\"baseline\"", "\"s3\""));
  const Scan scan = ScanRoots({"deep", "bundle", "flat"});
  EXPECT_TRUE(scan.rejections.empty());
  ASSERT_EQ(scan.variants.size(), 3u);  // in the order of the roots
  EXPECT_EQ(scan.variants[0]->name, "s3");
  EXPECT_EQ(scan.variants[1]->name, "baseline");
  EXPECT_EQ(scan.variants[2]->name, "w8");
}

TEST_F(Accepted, BundleReachedTwiceIsReadOnce) {
  WriteBundle("roots/b");
  std::filesystem::create_directory_symlink(Path("roots/b"), Path("roots/again"));
  EXPECT_NE(Only({"roots", "roots", "roots/b"}), nullptr);
}

TEST_F(Accepted, OperationMayHaveAPublishedDefinitionsName) {
  op_.name = "RMSNorm";
  WriteBundle("b", Replaced(kManifest, "\"scale_rows\"", "\"RMSNorm\""));
  const VariantPtr v = Only({"b"});
  ASSERT_NE(v, nullptr);
  EXPECT_EQ(v->op, "RMSNorm");
}

TEST_F(Accepted, FingerprintIgnoresWhereTheBundleLies) {
  WriteBundle("here/b");
  const Fingerprint before = Only({"here"})->fingerprint;
  std::filesystem::rename(Path("here"), Path("there"));
  EXPECT_EQ(Only({"there"})->fingerprint, before);
}

TEST_F(Accepted, FingerprintKeepsWhenOnlyTheSearchedValuesChange) {
  WriteBundle("b");
  const Fingerprint before = Only({"b"})->fingerprint;
  WriteBundle("b", Replaced(kManifest, "values = [4, 8]", "values = [2, 4, 8]"));
  EXPECT_EQ(Only({"b"})->fingerprint, before);
}

TEST_F(Accepted, FingerprintChangesWithWhatCanChangeAResult) {
  WriteBundle("b");
  const Fingerprint before = Only({"b"})->fingerprint;
  const std::pair<std::string_view, std::string_view> changes[] = {
      {"block = [32]", "block = [64]"},
      {"smem = \"4 * width\"", "smem = \"8 * width\""},
      {"when = \"chunks >= 1\"", "when = \"chunks >= 2\""},
      {"min(tiles, CTAS)", "max(tiles, CTAS)"},
      {"width <= 1024", "width <= 512"},
      {"rows * chunks", "rows * chunks + 1"},
      {"programmatic = true", "programmatic = false"},
      {"i32(width)", "i64(width)"},
  };
  for (const auto& [from, to] : changes) {
    WriteBundle("b", Replaced(kManifest, from, to));
    EXPECT_NE(Only({"b"})->fingerprint, before) << to;
  }
  WriteBundle("b");
  Write("b/tile.cuh", "// another tile\n");
  EXPECT_NE(Only({"b"})->fingerprint, before);
}

TEST_F(Accepted, PlaceholdersInAPragmaCountAsUse) {
  WriteBundle("b", std::string(kManifest) +
                       "[tunables.UNROLL]\nvalues = [1]\ndefault = 1\nscope = \"compile\"\n");
  Write("b/tile.cuh", "#pragma unroll {{UNROLL}}\n");
  EXPECT_NE(Only({"b"}), nullptr);
}

TEST_F(Accepted, SymlinkWithinTheBundleIsFollowed) {
  WriteBundle("b");
  std::filesystem::rename(Path("b/tile.cuh"), Path("b/real.cuh"));
  std::filesystem::create_symlink("real.cuh", Path("b/tile.cuh"));
  EXPECT_NE(Only({"b"}), nullptr);
}

TEST_F(Accepted, RejectedBundleStopsNoOther) {
  WriteBundle("r/a", "op = [");
  WriteBundle("r/b");
  WriteBundle("r/c", Replaced(kManifest, "1.2.3", "one"));
  const Scan scan = ScanRoots({"r"});
  ASSERT_EQ(scan.variants.size(), 1u);
  ASSERT_EQ(scan.rejections.size(), 2u);
  EXPECT_EQ(scan.rejections[0].path, Path("r/a/variant.toml"));
  EXPECT_EQ(scan.rejections[1].path, Path("r/c/variant.toml"));
}

TEST_F(Accepted, RootThatHoldsNoBundleIsSaid) {
  std::filesystem::create_directories(Path("empty/deeper"));
  const Scan scan = ScanRoots({"empty", "nowhere"});
  ASSERT_EQ(scan.rejections.size(), 2u);
  EXPECT_THAT(std::string(scan.rejections[0].status.message()), HasSubstr("holds no plugin"));
  EXPECT_THAT(std::string(scan.rejections[1].status.message()), HasSubstr("No such file"));
}

}  // namespace
}  // namespace kvr
