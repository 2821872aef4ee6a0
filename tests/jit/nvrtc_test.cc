// SPDX-License-Identifier: Apache-2.0
//
// Real compiles through NVRTC, no GPU needed. Skipped, with the reason, where there is none.
#include "jit/nvrtc/nvrtc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "core/status.h"
#include "jit/jit.h"
#include "jit/nvrtc/cubin.h"
#include "jit/nvrtc/log.h"
#include "tests/jit/fixtures.h"

namespace kvr {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const Config kConfig = {{"BLOCK", 128}, {"UNROLL", 4}, {"TARGET_CTAS", 1}};

ToolchainOptions Options() {
  ToolchainOptions options;
  options.sdk_dir = KVR_SOURCE_DIR "/sdk/device";
  return options;
}

class NvrtcTest : public testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<Toolchain> toolchain = FindToolchain(Options());
    if (!toolchain.ok()) GTEST_SKIP() << What(toolchain.status());
    absl::StatusOr<std::unique_ptr<Compiler>> compiler = MakeNvrtcCompiler(Options());
    ASSERT_TRUE(compiler.ok()) << compiler.status();
    std::vector<std::unique_ptr<Compiler>> compilers;
    compilers.push_back(*std::move(compiler));
    jit_ = std::make_unique<Jit>(std::move(compilers), nullptr);
  }
  absl::StatusOr<Built> Build(const Variant& variant, std::string_view target = "sm_90a") {
    return jit_->Build(ScaleOp(), variant, kConfig, target);
  }
  std::string Refusal(const Variant& variant, std::string_view target = "sm_90a") {
    absl::StatusOr<Built> built = Build(variant, target);
    EXPECT_EQ(built.status().code(), absl::StatusCode::kInvalidArgument) << built.status();
    std::string what(What(built.status()));
    const std::string context = "scale/plain {BLOCK=128,UNROLL=4} for " + std::string(target);
    EXPECT_THAT(what, StartsWith(context));
    return what.substr(std::min(what.size(), context.size() + 2));
  }
  std::unique_ptr<Jit> jit_;
};

TEST_F(NvrtcTest, BuildsForEachExactArchitecture) {
  for (std::string_view target : {"sm_80", "sm_90a", "sm_120a"}) {
    if (!jit_->CanCompile(target)) continue;  // an older release
    absl::StatusOr<Built> built = Build(ScaleVariant(), target);
    ASSERT_TRUE(built.ok()) << built.status();
    const Binary& binary = *built->binary;
    EXPECT_TRUE(CheckCubinTarget(binary.bytes, target).ok());
    for (std::string_view other : {"sm_80", "sm_90", "sm_90a", "sm_120a"})
      if (other != target) {
        EXPECT_FALSE(CheckCubinTarget(binary.bytes, other).ok()) << other;
      }
    ASSERT_EQ(binary.kernels.size(), 1u);
    EXPECT_EQ(binary.kernels[0].entry, "scale<BLOCK, UNROLL>");
    EXPECT_EQ(binary.kernels[0].symbol, "_Z5scaleILi128ELi4EEvPK13__nv_bfloat16fPfPS0_ix");
    EXPECT_EQ(binary.kernels[0].resources.max_threads, 128);
    EXPECT_GT(binary.kernels[0].resources.registers, 4);
    EXPECT_EQ(binary.kernels[0].resources.smem_static, 0);
    EXPECT_EQ(binary.content, FingerprintOf(binary.bytes));
  }
}

TEST_F(NvrtcTest, IsDeterministic) {
  std::unique_ptr<Jit> first = std::move(jit_);
  SetUp();
  auto a = first->Build(ScaleOp(), ScaleVariant(), kConfig, "sm_80");
  auto b = Build(ScaleVariant(), "sm_80");
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->binary->key, b->binary->key);
  EXPECT_EQ(a->binary->content, b->binary->content);
}

TEST_F(NvrtcTest, ReportsAWrongParameterTypeAtItsLine) {
  Variant variant = ScaleVariant();
  Replace(&variant.sources[0].content, "      float* partial,", "      double* partial,");
  EXPECT_EQ(Refusal(variant),
            "scale.cu:10:7: error: kernel 'scale': parameter 3 is 'double* partial', but the "
            "manifest passes 'workspace.partial', which needs 'float*' or 'const float*'\n"
            "      double* partial,\n"
            "      ^");
}

TEST_F(NvrtcTest, ReportsEveryKindOfWrongParameter) {
  const struct {
    const char *from, *to, *message;
  } kCases[] = {
      {"const __nv_bfloat16* __restrict__ x", "__nv_bfloat16* x",
       "which needs 'const __nv_bfloat16*'"},
      {"float alpha", "double alpha", "which needs 'float'"},
      {"__nv_bfloat16* y, ", "const __nv_bfloat16* y, ", "which needs '__nv_bfloat16*'"},
      {"int n,", "unsigned n,", "which needs 'int'"},
      {"int64_t elements", "int elements", "which needs 'long long'"},
  };
  for (const auto& c : kCases) {
    Variant variant = ScaleVariant();
    Replace(&variant.sources[0].content, c.from, c.to);
    std::string what = Refusal(variant);
    EXPECT_THAT(what, HasSubstr(c.message)) << c.to;
    EXPECT_THAT(what, StartsWith("scale.cu:")) << c.to;
  }
}

TEST_F(NvrtcTest, TakesWorkspaceThatIsOnlyRead) {
  Variant variant = ScaleVariant();
  Replace(&variant.sources[0].content, "      float* partial,", "      const float* partial,");
  Replace(&variant.sources[0].content, "partial[0] = static_cast<float>(elements)",
          "y[0] = __float2bfloat16(partial[0])");
  absl::StatusOr<Built> built = Build(variant);
  EXPECT_TRUE(built.ok()) << built.status();
}

TEST_F(NvrtcTest, TakesLongForAnI64) {
  Variant variant = ScaleVariant();
  Replace(&variant.sources[0].content, "int64_t elements", "long elements");
  EXPECT_TRUE(Build(variant).ok());
}

TEST_F(NvrtcTest, ReportsAWrongNumberOfParameters) {
  Variant variant = ScaleVariant();
  variant.plan.kernels[0].args.pop_back();
  std::string what = Refusal(variant);
  EXPECT_THAT(what, StartsWith("scale.cu:9:1: error: kernel 'scale' takes 6 parameters, but the "
                               "manifest passes 5: x, alpha, workspace.partial, y, i32(n)\n"
                               "scale(const"));
  EXPECT_EQ(what.find("parameter 1"), std::string::npos) << what;
}

TEST_F(NvrtcTest, ReportsAnEntryThatNamesNoKernelAtTheManifest) {
  Variant variant = ScaleVariant();
  variant.plan.kernels[0].entry = "scaled<BLOCK>";
  EXPECT_EQ(Refusal(variant), "variant.toml:40: error: identifier \"scaled\" is undefined");
}

TEST_F(NvrtcTest, QuotesTheAuthorsLineInSourcesAndHeaders) {
  Variant variant = ScaleVariant();
  Replace(&variant.headers[0].content, "__bfloat162float(x[i])", "__bfloat162float(z[i])");
  EXPECT_EQ(Refusal(variant),
            "tile.cuh:2:87: error: identifier \"z\" is undefined\n" +
                std::string("__device__ inline float Load(const __nv_bfloat16* x, int i) "
                            "{ return __bfloat162float(z[i]); }\n") +
                std::string(86, ' ') + "^");
}

TEST_F(NvrtcTest, NamesAMissingHeader) {
  Variant variant = ScaleVariant();
  Replace(&variant.sources[0].content, "\"tile.cuh\"", "\"tiles.cuh\"");
  absl::StatusOr<Built> built = Build(variant);
  EXPECT_THAT(std::string(What(built.status())), HasSubstr("scale.cu:5:"));
  EXPECT_THAT(std::string(Fix(built.status())), HasSubstr("'tiles.cuh'"));
}

TEST_F(NvrtcTest, ToleratesAHeaderMissingInABranchNotTaken) {
  Variant variant = ScaleVariant();
  variant.sources[0].content += "#ifdef NEVER\n#include <no/such.h>\n#endif\n";
  EXPECT_TRUE(Build(variant).ok());
}

TEST_F(NvrtcTest, ReadsNoFileThatTheKeyDoesNotHash) {
  TempDir dir;
  const std::string outside = dir / "x.h";
  WriteFile(outside, "#define OUTSIDE 1\n");
  for (const std::string& head :
       {"#include \"" + outside + "\"\n", "#include <" + outside + ">\n",
        "#define H \"" + outside + "\"\n#include H\n", "/* x */ #include \"" + outside + "\"\n",
        "%:include \"" + outside + "\"\n", "#inc\\\nlude \"" + outside + "\"\n",
        "#include_next \"" + outside + "\"\n",
        "#if __has_include(\"" + outside + "\")\n#endif\n"}) {
    Variant variant = ScaleVariant();
    variant.sources[0].content = head + variant.sources[0].content;
    EXPECT_THAT(Refusal(variant), StartsWith("scale.cu:")) << head;
  }
  // By a relative name it does not look either, wherever the process stands.
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  Variant variant = ScaleVariant();
  variant.sources[0].content = "#include \"x.h\"\n" + variant.sources[0].content;
  EXPECT_THAT(Refusal(variant), HasSubstr("x.h"));
  std::filesystem::current_path(before);
}

TEST_F(NvrtcTest, IncludesBehindABlockComment) {
  Variant variant = ScaleVariant();
  Replace(&variant.sources[0].content, "#include \"tile.cuh\"", "/* x */ #include \"tile.cuh\"");
  absl::StatusOr<Built> built = Build(variant);
  EXPECT_TRUE(built.ok()) << built.status();
}

TEST_F(NvrtcTest, PlacesTheAssemblersErrors) {
  Variant variant = ScaleVariant();
  Replace(&variant.sources[0].content, "  if (partial",
          "  __shared__ float big[80000];\n  big[n] = alpha;\n  __syncthreads();\n"
          "  y[1] = __float2bfloat16(big[threadIdx.x]);\n  if (partial");
  EXPECT_THAT(Refusal(variant), StartsWith("scale.cu:9:1: error: assembler: Entry function"));

  variant = ScaleVariant();
  Replace(&variant.sources[0].content, "  if (partial",
          "  asm volatile(\"wgmma.fence.sync.aligned;\");\n  if (partial");
  EXPECT_TRUE(Build(variant, "sm_90a").ok());
  EXPECT_THAT(Refusal(variant, "sm_80"), StartsWith("scale.cu:17:17: error: assembler: "));
}

TEST_F(NvrtcTest, ReadsResourcesWithSpills) {
  Variant variant = ScaleVariant();
  Replace(&variant.sources[0].content, "__launch_bounds__(BLOCK)", "__launch_bounds__(BLOCK, 16)");
  Replace(&variant.sources[0].content, "  if (partial",
          "  __shared__ float small[600];\n"
          "  float v[64];\n"
          "#pragma unroll\n"
          "  for (int i = 0; i < 64; ++i) v[i] = alpha * Load(x, i * n);\n"
          "  small[threadIdx.x] = v[0];\n  __syncthreads();\n"
          "#pragma unroll\n"
          "  for (int i = 0; i < 64; ++i) partial[i * n] = v[i] * v[63 - i] + small[i];\n"
          "  if (partial");
  for (std::string_view target : {"sm_80", "sm_90a"}) {
    absl::StatusOr<Built> built = Build(variant, target);
    ASSERT_TRUE(built.ok()) << built.status();
    const KernelResources& resources = built->binary->kernels[0].resources;
    EXPECT_EQ(resources.smem_static, 2400) << target;
    EXPECT_EQ(resources.registers, 32) << target;
    EXPECT_GT(resources.spill_bytes, 0) << target;
    EXPECT_GT(resources.frame_bytes, 0) << target;
    auto info = ReadCubin(built->binary->bytes);
    ASSERT_TRUE(info.ok());
    // The file alone, without the log, agrees.
    EXPECT_EQ(info->kernels.at(built->binary->kernels[0].symbol).smem_static, 2400) << target;
  }
}

TEST_F(NvrtcTest, GivesKernelsTheStandardHeadersTheyExpect) {
  Variant variant = ScaleVariant();
  variant.sources[0].content +=
      "#include <algorithm>\n#include <cassert>\n#include <cfloat>\n#include <climits>\n#include "
      "<cmath>\n"
      "#include <cstddef>\n#include <cstring>\n#include <limits>\n#include <type_traits>\n"
      "#include <utility>\n#include <cuda_fp16.h>\n#include <cuda_fp8.h>\n"
      "constexpr int Twice(int a) { return 2 * a; }\n"
      "static_assert(std::is_same_v<std::remove_cvref_t<const int&>, int>);\n"
      "#include <array>\n#include <bit>\n#include <concepts>\n"
      "enum Small : short { kOne };\n"
      "static_assert(std::is_same_v<std::decay_t<const int (&)[3]>, const int*>);\n"
      "static_assert(std::is_same_v<std::underlying_type_t<Small>, short>);\n"
      "static_assert(std::is_same_v<std::make_unsigned_t<int64_t>, uint64_t>);\n"
      "static_assert(std::is_same_v<std::common_type_t<int, float>, float>);\n"
      "static_assert(std::is_same_v<std::add_rvalue_reference_t<void>, void>);\n"
      "static_assert(std::is_pointer_v<int* const> && !std::is_pointer_v<int>);\n"
      "static_assert(std::is_unsigned_v<unsigned> && std::is_signed_v<float>);\n"
      "static_assert(std::integral<int> && !std::floating_point<int>);\n"
      "static_assert(std::popcount(7u) == 3 && std::countl_zero(1u) == 31);\n"
      "static_assert(std::countr_zero(8u) == 3 && std::bit_cast<int>(1.0f) == 0x3f800000);\n"
      "static_assert(std::array{1, 2, 3}.size() == 3 && std::pair{1, 2}.second == 2);\n"
      "static_assert(std::clamp(5, 1, 3) == 3 && std::numeric_limits<float>::digits == 24);\n"
      "static_assert(std::make_index_sequence<9>::size() == 9 && INFINITY > FLT_MAX);\n"
      "static_assert(std::numeric_limits<int>::max() == INT_MAX && sizeof(std::int64_t) == 8);\n"
      "template <class T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0>\n"
      "__device__ T Half(T t) { return std::min(t, std::sqrt(t)) / Twice(1); }\n"
      "__global__ void other(float* f, std::size_t n) {\n"
      "  assert(n > 0);\n"
      "  f[0] = Half(f[1]) + std::numeric_limits<float>::infinity() + std::max(BLOCK, 3);\n"
      "}\n";
  absl::StatusOr<Built> built = Build(variant);
  EXPECT_TRUE(built.ok()) << built.status();
}

// What a kernel may include on the host device it may include for a GPU.
TEST_F(NvrtcTest, HasEveryHeaderOfTheHostDevice) {
  Variant variant = ScaleVariant();
  std::string includes;
  for (const auto& entry :
       std::filesystem::directory_iterator(KVR_SOURCE_DIR "/sdk/device/host/include")) {
    std::string name = entry.path().filename();
    if (name.find("kvr_host") == 0 || entry.is_directory()) continue;
    includes += "#include <" + name + ">\n";
  }
  ASSERT_THAT(includes, HasSubstr("<type_traits>"));
  variant.sources[0].content = includes + variant.sources[0].content;
  absl::StatusOr<Built> built = Build(variant);
  EXPECT_TRUE(built.ok()) << built.status();
}

TEST_F(NvrtcTest, CompilesTheSdk) {
  if (!std::filesystem::exists(KVR_SOURCE_DIR "/sdk/device/kvr/device.cuh")) GTEST_SKIP();
  Variant variant = ScaleVariant();
  Replace(&variant.sources[0].content, "#include <cstdint>",
          "#include <cstdint>\n#include <kvr/device.cuh>");
  absl::StatusOr<Built> built = Build(variant);
  EXPECT_TRUE(built.ok()) << built.status();
}

TEST_F(NvrtcTest, CompilesEachColdKeyOnceForEightThreads) {
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int64_t block : {64, 128})
        failures +=
            !jit_->Build(ScaleOp(), ScaleVariant(), {{"BLOCK", block}, {"UNROLL", 1}}, "sm_80")
                 .ok();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(jit_->stats().compiles, 2);
}

TEST_F(NvrtcTest, RefusesArchitecturesThatWouldTrap) {
  std::string reason;
  EXPECT_FALSE(jit_->CanCompile("sm_90", &reason));
  EXPECT_THAT(reason, HasSubstr("sm_90a"));
  EXPECT_FALSE(jit_->CanCompile("sm_120"));
  EXPECT_FALSE(jit_->CanCompile("sm_80a"));
  EXPECT_FALSE(jit_->CanCompile("sm_20"));
  EXPECT_FALSE(jit_->CanCompile("compute_90"));
  EXPECT_FALSE(jit_->CanCompile("host"));
  EXPECT_THAT(jit_->Identity("sm_90a"), StartsWith("nvrtc "));
}

TEST(FindToolchain, IsHiddenByKvrNoCuda) {
  setenv("KVR_NO_CUDA", "1", 1);
  absl::StatusOr<Toolchain> toolchain = FindToolchain({});
  unsetenv("KVR_NO_CUDA");
  EXPECT_EQ(toolchain.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(What(toolchain.status())), HasSubstr("KVR_NO_CUDA"));
}

TEST(FindToolchain, LooksNowhereElseWhenPinned) {
  TempDir dir;
  ToolchainOptions options;
  options.cuda_home = dir.path();
  absl::StatusOr<Toolchain> toolchain = FindToolchain(options);
  EXPECT_EQ(toolchain.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(What(toolchain.status())), HasSubstr(dir.path()));
}

TEST(FindToolchain, WantsLibraryBuiltinsAndHeadersOfOneRelease) {
  TempDir dir;
  ToolchainOptions options;
  options.cuda_home = dir.path();
  auto what = [&] { return std::string(What(FindToolchain(options).status())); };
  WriteFile(dir / "lib64/libnvrtc.so.13", "");
  EXPECT_THAT(what(), HasSubstr("without its libnvrtc-builtins"));
  WriteFile(dir / "lib64/libnvrtc-builtins.so.13.1", "");
  EXPECT_THAT(what(), HasSubstr("without headers"));
  WriteFile(dir / "include/cuda.h", "#define CUDA_VERSION 13000\n");
  EXPECT_THAT(what(), HasSubstr("is of release 13.1, the headers of 13.0"));
  WriteFile(dir / "include/cuda.h", "#define CUDA_VERSION 13010\n");
  absl::StatusOr<Toolchain> toolchain = FindToolchain(options);
  ASSERT_TRUE(toolchain.ok()) << toolchain.status();
  EXPECT_EQ(toolchain->library, dir / "lib64/libnvrtc.so.13");
}

TEST(FindToolchain, KnowsTheWheelsOfBothReleases) {
  TempDir dir;
  ToolchainOptions options;
  options.cuda_home = dir.path();
  WriteFile(dir / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "");
  WriteFile(dir / "nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.4", "");
  WriteFile(dir / "nvidia/cuda_runtime/include/cuda.h", "#define CUDA_VERSION 12040\n");
  absl::StatusOr<Toolchain> toolchain = FindToolchain(options);
  ASSERT_TRUE(toolchain.ok()) << toolchain.status();
  EXPECT_EQ(toolchain->major * 10 + toolchain->minor, 124);
  WriteFile(dir / "nvidia/cu13/lib/libnvrtc.so.13", "");
  WriteFile(dir / "nvidia/cu13/lib/libnvrtc-builtins.so.13.0", "");
  WriteFile(dir / "nvidia/cu13/include/cuda.h", "#define CUDA_VERSION 13000\n");
  toolchain = FindToolchain(options);
  ASSERT_TRUE(toolchain.ok()) << toolchain.status();
  EXPECT_EQ(toolchain->major, 13);
}

TEST(ReadCubin, SurvivesAnyDamage) {
  absl::StatusOr<Toolchain> toolchain = FindToolchain(Options());
  if (!toolchain.ok()) GTEST_SKIP() << What(toolchain.status());
  absl::StatusOr<std::unique_ptr<Compiler>> compiler = MakeNvrtcCompiler(Options());
  ASSERT_TRUE(compiler.ok()) << compiler.status();
  Unit unit;
  unit.text = "__global__ void k(int* x) { __shared__ int s[32]; s[*x] = 1; *x = s[0]; }";
  unit.entries = {"k"};
  unit.entry_sites = {{}};
  absl::StatusOr<CompiledUnit> compiled = (*compiler)->Compile(unit, "sm_80");
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const std::string& cubin = compiled->bytes;
  EXPECT_FALSE(CheckCubinTarget("", "sm_80").ok());
  for (size_t size = 0; size < cubin.size(); size += 7) {
    ReadCubin(std::string_view(cubin).substr(0, size)).IgnoreError();
  }
  for (size_t i = 0; i < cubin.size(); i += 3) {
    std::string damaged = cubin;
    damaged[i] = static_cast<char>(~damaged[i]);
    ReadCubin(damaged).IgnoreError();
  }
}

TEST(ParseNvrtcLog, ReadsMessagesContextsAndTheAssembler) {
  Unit unit;
  unit.entries = {"k<1>"};
  unit.entry_sites = {{"k.cu", 3, 5}};
  NvrtcLog log = ParseNvrtcLog(
      "t.cuh(1): error: expression must have class type\n"
      "  template <class T> T g(T a) { return a.x; }\n"
      "                                       ^\n"
      "          detected during:\n"
      "            instantiation of \"T g(T) [with T=int]\" at line 2\n"
      "            instantiation of \"T h(T) [with T=int]\" at line 3 of k.cu\n"
      "\n"
      "k.cu(9): warning #177-D: variable \"unused\" was declared but never referenced\n"
      "\n"
      "ptxas info    : Compiling entry function '_Z1kILi1EEvv' for 'sm_80'\n"
      "ptxas info    : Function properties for _Z1kILi1EEvv\n"
      "ptxas         .     24 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n"
      "ptxas info    : Used 70 registers, 2400 bytes smem, 360 bytes cmem[0]\n"
      "ptxas error   : Entry function '_Z1kILi1EEvv' uses too much shared data\n",
      unit);
  ASSERT_EQ(log.diagnostics.size(), 5u);
  EXPECT_EQ(log.diagnostics[0].column, 38);
  EXPECT_EQ(log.diagnostics[1].severity, Diagnostic::Severity::kNote);
  EXPECT_EQ(log.diagnostics[1].file, "t.cuh");
  EXPECT_EQ(log.diagnostics[2].file, "k.cu");
  EXPECT_EQ(log.diagnostics[2].line, 3);
  EXPECT_EQ(log.diagnostics[3].severity, Diagnostic::Severity::kWarning);
  EXPECT_EQ(log.diagnostics[4].file, "k.cu");
  EXPECT_EQ(log.diagnostics[4].column, 5);
  EXPECT_EQ(log.kernels.at("_Z1kILi1EEvv").spill_bytes, 20);
  EXPECT_EQ(log.kernels.at("_Z1kILi1EEvv").smem_static, 2400);
}

TEST(ParseNvrtcLog, PlacesWhatIsMissingAtTheEndAtTheNoteThatFollows) {
  const NvrtcLog log = ParseNvrtcLog(
      "At end of source: error: expected a \"}\"\n"
      "k.cu(4): note #3196-D: to match this \"{\"\n"
      "  __global__ void k(int* p) {\n"
      "                            ^\n",
      Unit());
  ASSERT_EQ(log.diagnostics.size(), 2u);
  EXPECT_EQ(log.diagnostics[0].severity, Diagnostic::Severity::kError);
  EXPECT_EQ(log.diagnostics[0].file, "k.cu");
  EXPECT_EQ(log.diagnostics[0].line, 4);
  EXPECT_EQ(log.diagnostics[0].message, "expected a \"}\"");
  EXPECT_EQ(log.diagnostics[1].column, 27);
}

}  // namespace
}  // namespace kvr
