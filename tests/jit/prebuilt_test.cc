// SPDX-License-Identifier: Apache-2.0
//
// Variants that bring their binary, and kernels that take tensor maps. The cubins are NVRTC's;
// tests that need one are skipped, with the reason, where there is no NVRTC.
#include "jit/prebuilt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "jit/jit.h"
#include "jit/nvrtc/cubin.h"
#include "jit/nvrtc/nvrtc.h"
#include "tests/jit/fixtures.h"
#include "tests/jit/tma_kernel.h"

namespace kvr {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const Config kConfig = {{"BLOCK", 128}, {"UNROLL", 4}, {"TARGET_CTAS", 1}};

ToolchainOptions Options() {
  ToolchainOptions options;
  options.sdk_dir = KVR_SOURCE_DIR "/sdk/device";
  return options;
}

class PrebuiltTest : public testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<Compiler>> compiler = MakeNvrtcCompiler(Options());
    if (!compiler.ok()) GTEST_SKIP() << What(compiler.status());
    std::vector<std::unique_ptr<Compiler>> compilers;
    compilers.push_back(*std::move(compiler));
    nvrtc_ = std::make_unique<Jit>(std::move(compilers), nullptr);
  }
  BinaryPtr Compile(const Variant& variant, const Config& config, std::string_view target) {
    absl::StatusOr<Built> built = nvrtc_->Build(ScaleOp(), variant, config, target);
    EXPECT_TRUE(built.ok()) << built.status();
    return built.ok() ? built->binary : std::make_shared<Binary>();
  }
  // The same kernels, from the binary.
  static Variant From(Variant variant, const Binary& binary, std::string target = "sm_90a") {
    variant.sources.clear();
    variant.headers.clear();
    variant.tunables.clear();
    variant.targets = {target};
    for (KernelSpec& kernel : variant.plan.kernels)
      kernel.entry = binary.Find(kernel.entry)->symbol;
    variant.cubins = {{std::move(target), {"scale.cubin", binary.bytes, ""}}};
    return variant;
  }
  Variant Scale() { return From(ScaleVariant(), *Compile(ScaleVariant(), kConfig, "sm_90a")); }

  static std::string Refusal(const Variant& variant, std::string_view target = "sm_90a") {
    const absl::StatusOr<BinaryPtr> binary = PrebuiltFor(variant, target);
    EXPECT_FALSE(binary.ok());
    EXPECT_FALSE(Fix(binary.status()).empty());
    return std::string(What(binary.status()));
  }

  std::unique_ptr<Jit> nvrtc_;
};

TEST_F(PrebuiltTest, NeedsNoCompilerAndIsNotStored) {
  const BinaryPtr compiled = Compile(ScaleVariant(), kConfig, "sm_90a");
  const Variant variant = From(ScaleVariant(), *compiled);
  BinaryCache cache("");
  Jit jit({}, &cache);
  absl::StatusOr<Built> built = jit.Build(ScaleOp(), variant, {}, "sm_90a");
  ASSERT_TRUE(built.ok()) << built.status();
  const Binary& binary = *built->binary;
  EXPECT_EQ(binary.target, "sm_90a");
  EXPECT_EQ(binary.bytes, compiled->bytes);
  EXPECT_EQ(binary.content, compiled->content);
  ASSERT_EQ(binary.kernels.size(), 1u);
  const KernelResources& used = binary.kernels[0].resources;
  const KernelResources& expected = compiled->kernels[0].resources;
  EXPECT_EQ(binary.kernels[0].symbol, compiled->kernels[0].symbol);
  EXPECT_EQ(used.registers, expected.registers);
  EXPECT_EQ(used.smem_static, expected.smem_static);
  EXPECT_EQ(used.frame_bytes, expected.frame_bytes);
  EXPECT_EQ(used.max_threads, 128);

  EXPECT_EQ(*jit.Key(ScaleOp(), variant, {}, "sm_90a"), binary.key);
  EXPECT_EQ(jit.Lookup(binary.key), nullptr);
  EXPECT_EQ(jit.stats().compiles, 0);
}

// Binaries travel as one file a key, with the kernels they list.
TEST_F(PrebuiltTest, HasAKeyOfContentTargetAndEntries) {
  Variant variant = Scale();
  const Fingerprint key = (*PrebuiltFor(variant, "sm_90a"))->key;
  Variant again = variant;
  again.name = "other";
  again.fingerprint = FingerprintOf("other");
  EXPECT_EQ((*PrebuiltFor(again, "sm_90a"))->key, key);
  again.plan.kernels.clear();
  EXPECT_NE((*PrebuiltFor(again, "sm_90a"))->key, key);
  again = variant;
  again.cubins[0].file.content += '\0';  // behind the sections: another file, as good
  EXPECT_NE((*PrebuiltFor(again, "sm_90a"))->key, key);
}

TEST_F(PrebuiltTest, IsRefusedWithoutAKernelOfThatName) {
  Variant variant = Scale();
  const std::string symbol = variant.plan.kernels[0].entry;
  variant.plan.kernels[0].entry = "scale";
  EXPECT_EQ(Refusal(variant), "variant.toml:40: kernel 'scale': scale.cubin has no kernel 'scale'");
  EXPECT_THAT(std::string(Fix(PrebuiltFor(variant, "sm_90a").status())), HasSubstr(symbol));
  // As the command line shows it.
  Jit jit({}, nullptr);
  EXPECT_THAT(std::string(What(jit.Build(ScaleOp(), variant, {}, "sm_90a").status())),
              StartsWith("scale/plain {} for sm_90a: variant.toml:40: kernel 'scale'"));
}

TEST_F(PrebuiltTest, IsRefusedWhereItsParametersAreNotTheArguments) {
  const Variant good = Scale();
  Variant variant = good;
  variant.plan.kernels[0].args.pop_back();
  EXPECT_THAT(Refusal(variant),
              HasSubstr("takes 6 parameters, but the manifest passes 5: x, alpha, "
                        "workspace.partial, y, i32(n)"));
  variant = good;
  variant.plan.kernels[0].args[4] = Arg(ArgSpec::Kind::kValue, 0, DType::kI64, "i64(n)");
  EXPECT_THAT(Refusal(variant), HasSubstr("parameter 5 of the cubin's"));
  EXPECT_THAT(Refusal(variant),
              HasSubstr("has 4 bytes, but the manifest passes 'i64(n)', which has 8"));
  variant = good;
  std::swap(variant.plan.kernels[0].args[0], variant.plan.kernels[0].args[1]);
  EXPECT_THAT(Refusal(variant), HasSubstr("parameter 1"));
  // A pointer is as good as 64 bits: how a manifest passes the scratch memory of Triton's kernels.
  variant = good;
  variant.plan.kernels[0].args[2] = Arg(ArgSpec::Kind::kValue, 0, DType::kI64, "i64(0)");
  EXPECT_TRUE(PrebuiltFor(variant, "sm_90a").ok());
}

TEST_F(PrebuiltTest, IsRefusedForAnotherArchitecture) {
  const BinaryPtr ampere = Compile(ScaleVariant(), kConfig, "sm_80");
  EXPECT_EQ(Refusal(From(ScaleVariant(), *ampere)),
            "scale.cubin: a cubin for sm_80, listed for sm_90a");
  EXPECT_TRUE(PrebuiltFor(From(ScaleVariant(), *ampere, "sm_80"), "sm_80").ok());
  const absl::StatusOr<BinaryPtr> none = PrebuiltFor(Scale(), "sm_80");
  EXPECT_EQ(none.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(What(none.status()), "has no cubin for sm_80, only for sm_90a");
}

TEST_F(PrebuiltTest, SurvivesAnyDamage) {
  const Variant good = Scale();
  EXPECT_THAT(Refusal([&] {
                Variant variant = good;
                variant.cubins[0].file.content = "#!/bin/sh\n";
                variant.cubins[0].file.path = "/bundles/scale/scale.cubin";
                return variant;
              }()),
              StartsWith("/bundles/scale/scale.cubin: not a cubin: "));
  const std::string& cubin = good.cubins[0].file.content;
  for (size_t size = 0; size < cubin.size(); size += 37) {
    Variant variant = good;
    variant.cubins[0].file.content.resize(size);
    PrebuiltFor(variant, "sm_90a").IgnoreError();
    variant.cubins[0].file.content = cubin;
    for (size_t i = size; i < std::min(size + 4, cubin.size()); ++i) {
      variant.cubins[0].file.content[i] = static_cast<char>(0xff);
    }
    PrebuiltFor(variant, "sm_90a").IgnoreError();
  }
}

TEST_F(PrebuiltTest, KnowsParametersAndBlocksOfEverySize) {
  const std::unique_ptr<Compiler> compiler = *MakeNvrtcCompiler(Options());
  Unit unit;
  unit.text = R"(
struct Wide { char bytes[5000]; };
extern "C" __global__ void few(short a, double b, char c) {}
extern "C" __global__ void wide(Wide a, int* b) { *b = a.bytes[7]; }
extern "C" __global__ void none() {}
extern "C" __global__ void __block_size__((64, 2, 1)) exact(int* a) { *a = 1; }
)";
  unit.entries = {"few", "wide", "none", "exact"};
  unit.entry_sites.resize(4);
  const absl::StatusOr<CompiledUnit> compiled = compiler->Compile(unit, "sm_90a");
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const CubinInfo info = *ReadCubin(compiled->bytes);
  EXPECT_THAT(info.kernels.at("few").parameter_bytes, ElementsAre(2, 8, 1));
  EXPECT_THAT(info.kernels.at("wide").parameter_bytes, ElementsAre(5000, 8));
  EXPECT_THAT(info.kernels.at("none").parameter_bytes, ElementsAre());
  EXPECT_EQ(info.kernels.at("none").max_threads, 0);
  EXPECT_EQ(info.kernels.at("exact").max_threads, 128);
}

TEST(CubinTarget, IsAsExactAsTheFileSays) {
  EXPECT_EQ(CubinTarget({.sm = 90}), "sm_90");
  EXPECT_EQ(CubinTarget({.sm = 90, .accelerated = true}), "sm_90a");
  EXPECT_EQ(CubinTarget({.sm = 120, .arch = "sm_120a"}), "sm_120a");
  EXPECT_EQ(CubinTarget({.sm = 90, .arch = "sm_80"}), "sm_90") << "the flags are what counts";
}

TEST(LaunchFunctionBinary, IsItsVariantAndTarget) {
  Variant variant;
  variant.op = "scale";
  variant.name = "own";
  variant.targets = {"sm_80+", "host"};
  variant.has_launch_function = true;
  variant.fingerprint = FingerprintOf("own");
  Jit jit({}, nullptr);
  absl::StatusOr<Built> built = jit.Build(ScaleOp(), variant, {}, "host");
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_TRUE(built->binary->bytes.empty());
  EXPECT_TRUE(built->binary->kernels.empty());
  EXPECT_EQ(built->binary->target, "host");
  EXPECT_EQ(*jit.Key(ScaleOp(), variant, {}, "host"), built->binary->key);
  EXPECT_NE(*jit.Key(ScaleOp(), variant, {}, "sm_90a"), built->binary->key);
  EXPECT_EQ(jit.Key(ScaleOp(), variant, {}, "null").status().code(),
            absl::StatusCode::kUnimplemented);
  // As the worker gets it.
  const std::shared_ptr<Binary> decoded = DecodeEntry(EncodeEntry(*built->binary, ""), nullptr);
  ASSERT_NE(decoded, nullptr);
  EXPECT_EQ(decoded->key, built->binary->key);
  variant.fingerprint = FingerprintOf("rebuilt");
  EXPECT_NE(*jit.Key(ScaleOp(), variant, {}, "host"), built->binary->key);
}

TEST_F(PrebuiltTest, TensorMapsAreTakenByValue) {
  const BinaryPtr binary = Compile(TmaVariant(), {}, "sm_90a");
  ASSERT_EQ(binary->kernels.size(), 1u);
  EXPECT_GT(binary->kernels[0].resources.registers, 8);
  EXPECT_GE(binary->kernels[0].resources.smem_static, 1024 + 8);
  const CubinInfo info = *ReadCubin(binary->bytes);
  EXPECT_THAT(info.kernels.at(binary->kernels[0].symbol).parameter_bytes,
              ElementsAre(128, 4, 8, 4));
  EXPECT_TRUE(PrebuiltFor(From(TmaVariant(), *binary), "sm_90a").ok());
}

TEST_F(PrebuiltTest, AMapTakenByPointerIsAnErrorAtItsLine) {
  Variant variant = TmaVariant();
  Replace(&variant.sources[0].content, "const __grid_constant__ CUtensorMap map",
          "const CUtensorMap* map");
  Replace(&variant.sources[0].content, "\"l\"(&map)", "\"l\"(map)");
  const absl::StatusOr<Built> built = nvrtc_->Build(ScaleOp(), variant, {}, "sm_90a");
  EXPECT_THAT(std::string(What(built.status())),
              HasSubstr("scale_tiles.cu:9:13: error: kernel 'scale': parameter 1 is 'const "
                        "CUtensorMap* map', but the manifest passes 'tensor_map.x_rows', which "
                        "needs 'CUtensorMap'"));
}

TEST_F(PrebuiltTest, TensorMapsAreSkippedWhereThereIsNoTma) {
  for (std::string_view target : {"sm_80", "sm_89", "host"}) {
    const absl::StatusOr<Built> built = nvrtc_->Build(ScaleOp(), TmaVariant(), {}, target);
    EXPECT_EQ(built.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(What(built.status())), HasSubstr("uses tensor maps, which need TMA"));
  }
}

}  // namespace
}  // namespace kvr
