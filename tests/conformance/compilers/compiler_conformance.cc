// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/compilers/compiler_conformance.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "core/status.h"
#include "core/variant.h"
#include "jit/sdk.h"
#include "tests/conformance/one_file_unit.h"

namespace kvr {

std::string CompilerSubjectName(const testing::TestParamInfo<CompilerSubject>& info) {
  return info.param.name;
}

void CompilerConformance::SetUp() {
  const auto sdk = FindSdkDir();
  ASSERT_TRUE(sdk.ok()) << sdk.status();
  auto compiler = GetParam().open(*sdk);
  if (absl::IsNotFound(compiler.status())) GTEST_SKIP() << What(compiler.status());
  ASSERT_TRUE(compiler.ok()) << compiler.status();
  compiler_ = *std::move(compiler);
  ASSERT_FALSE(compiler_->targets().empty());
  target_ = compiler_->targets().front();
}

std::unique_ptr<Compiler> CompilerConformance::Another() {
  auto compiler = GetParam().open(FindSdkDir().value());
  EXPECT_TRUE(compiler.ok()) << compiler.status();
  return compiler.ok() ? *std::move(compiler) : nullptr;
}

absl::StatusOr<CompiledUnit> CompilerConformance::Compile(const std::string& source,
                                                          const std::vector<std::string>& entries) {
  return compiler_->Compile(OneFileUnit(*compiler_, source, entries), target_);
}

std::string CompilerConformance::Refusal(const std::string& source,
                                         const std::vector<std::string>& entries) {
  const auto compiled = Compile(source, entries);
  EXPECT_EQ(compiled.status().code(), absl::StatusCode::kInvalidArgument) << compiled.status();
  EXPECT_FALSE(Fix(compiled.status()).empty());
  return std::string(What(compiled.status()));
}

void PrintTo(const CompilerSubject& subject, std::ostream* out) { *out << subject.name; }

namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr char kPlain[] = "__global__ void k(int* p) { p[threadIdx.x] = 7; }";

TEST_P(CompilerConformance, SaysWhatItIsAndAlwaysTheSame) {
  const std::unique_ptr<Compiler> other = Another();
  ASSERT_NE(other, nullptr);
  EXPECT_FALSE(compiler_->identity().empty());
  EXPECT_EQ(compiler_->identity().find('\n'), std::string::npos);
  EXPECT_EQ(compiler_->identity(), other->identity());
  EXPECT_EQ(compiler_->targets(), other->targets());
  const std::string sdk = FindSdkDir().value();
  for (int round = 0; round < 2; ++round) {
    for (const std::string& target : compiler_->targets()) {
      const std::string options = compiler_->Options(target);
      EXPECT_EQ(options, other->Options(target)) << target;
      EXPECT_EQ(options.find(sdk), std::string::npos) << "a path in a key: " << options;
    }
    ASSERT_TRUE(Compile(kPlain).ok());  // must change nothing of it
  }
}

TEST_P(CompilerConformance, CompilesForEveryTargetItNames) {
  const auto known = KnownTargets();
  std::set<std::string> binaries;
  for (const std::string& target : compiler_->targets()) {
    EXPECT_TRUE(compiler_->Supports(target)) << target;
    if (std::find(known.begin(), known.end(), target) == known.end()) continue;
    const auto compiled = compiler_->Compile(OneFileUnit(*compiler_, kPlain, {"k"}), target);
    ASSERT_TRUE(compiled.ok()) << target << ": " << compiled.status();
    EXPECT_FALSE(compiled->bytes.empty()) << target;
    EXPECT_TRUE(binaries.insert(compiled->bytes).second)
        << target << ": another target's bytes are the same";
  }
}

TEST_P(CompilerConformance, RefusesTargetsThatItDoesNotKnow) {
  for (const char* target : {"", "sm_90", "sm_20", "sm_80x", "compute_90", "hos", "amdgcn"}) {
    std::string reason;
    EXPECT_FALSE(compiler_->Supports(target, &reason)) << target;
    EXPECT_FALSE(reason.empty()) << target;
    const auto compiled = compiler_->Compile(OneFileUnit(*compiler_, kPlain, {"k"}), target);
    EXPECT_EQ(compiled.status().code(), absl::StatusCode::kUnimplemented)
        << target << ": " << compiled.status();
  }
}

TEST_P(CompilerConformance, GivesAKernelForEachEntryInTheirOrder) {
  const std::vector<std::string> entries = {"n::k", "t<2>", "plain", "t<1>"};
  const auto compiled = Compile(
      "template <int N> __global__ void __launch_bounds__(64 * N) t(int* p) {\n"
      "  __shared__ int s[128 * N];\n"
      "  s[threadIdx.x] = *p;\n  __syncthreads();\n  p[threadIdx.x] = s[blockDim.x - "
      "threadIdx.x];\n"
      "}\n"
      "extern \"C\" __global__ void plain() {}\n"
      "namespace n { __global__ void k(float* x) { *x = 1; } }\n"
      "__global__ void not_asked_for(int* p) { *p = 3; }\n",
      entries);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  ASSERT_EQ(compiled->kernels.size(), entries.size());
  std::set<std::string> symbols;
  for (size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(compiled->kernels[i].entry, entries[i]);
    EXPECT_FALSE(compiled->kernels[i].symbol.empty()) << entries[i];
    EXPECT_TRUE(symbols.insert(compiled->kernels[i].symbol).second) << entries[i];
  }
  EXPECT_EQ(compiled->kernels[2].symbol, "plain");
  EXPECT_EQ(compiled->kernels[1].resources.max_threads, 128);
  EXPECT_EQ(compiled->kernels[3].resources.max_threads, 64);
  EXPECT_GE(compiled->kernels[1].resources.smem_static, 1024);
  EXPECT_GE(compiled->kernels[3].resources.smem_static, 512);
  EXPECT_LT(compiled->kernels[3].resources.smem_static, 1024);
  EXPECT_EQ(compiled->kernels[0].resources.smem_static, 0);
}

TEST_P(CompilerConformance, AUnitWithoutEntriesHasNoKernels) {
  const auto compiled = Compile(kPlain, {});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_TRUE(compiled->kernels.empty());
}

TEST_P(CompilerConformance, ReportsErrorsAtTheAuthorsLine) {
  EXPECT_THAT(Refusal("\n\n__global__ void k(int* p) { *p = undefined_name; }"),
              AllOf(StartsWith("kernel.cu:3:34: "), HasSubstr("undefined_name")));
  EXPECT_THAT(Refusal("\n#line 70 \"other.cu\"\n__global__ void k(int* p) { *p = ; }"),
              HasSubstr("other.cu:70:"));
  EXPECT_THAT(Refusal("__global__ void k(int* p) {"), StartsWith("kernel.cu:1:"));
  EXPECT_THAT(Refusal("template <class T> __device__ void f(T t) {\n  t.x = 1;\n}\n"
                      "__global__ void k(int* p) { f(*p); }"),
              HasSubstr("kernel.cu:2:"));
}

TEST_P(CompilerConformance, ReportsAnUnknownEntryWhereTheUnitSaysItIs) {
  EXPECT_THAT(Refusal(kPlain, {"kernel_that_is_not<3>"}),
              AllOf(HasSubstr("kernel.cu:1"), HasSubstr("kernel_that_is_not")));
}

TEST_P(CompilerConformance, RefusesAnEntryThatIsNotGlobal) {
  for (const char* word : {"", "__device__ ", "static "}) {
    EXPECT_THAT(Refusal(std::string(word) + "void k(int* p) { p[0] = 7; }"),
                AllOf(HasSubstr("kernel.cu:1"), HasSubstr("k")))
        << word;
  }
}

TEST_P(CompilerConformance, SurvivesSourcesThatAreNone) {
  std::string binary(4096, '\0');
  for (size_t i = 0; i < binary.size(); ++i) binary[i] = static_cast<char>(i * 167 + 13);
  for (const std::string& source :
       {std::string(), std::string("\xff\xfe\x00 nothing", 10), binary, std::string(5000, '('),
        std::string("#define A A A\nA\n#error no"), std::string("#include \"kernel.cu\"\n")}) {
    EXPECT_FALSE(Refusal(source).empty());
  }
  EXPECT_TRUE(Compile(kPlain).ok()) << "and goes on";
}

TEST_P(CompilerConformance, ReadsNoFileThatTheUnitDoesNotHold) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::string pattern = testing::TempDir() + "/kvr_compiler_XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  const std::filesystem::path directory = pattern;
  std::ofstream(directory / "x.h") << "#define OUTSIDE 1\n";
  std::filesystem::current_path(directory);
  // Absolute names never get here: RenderUnit refuses them.
  for (const std::string& name :
       {std::string("x.h"), std::string("./x.h"), "../" + directory.filename().string() + "/x.h",
        std::string("vector")}) {
    EXPECT_THAT(Refusal("#include \"" + name + "\"\n" + kPlain), StartsWith("kernel.cu:1:"))
        << name;
    EXPECT_THAT(Refusal("#include <" + name + ">\n" + kPlain), StartsWith("kernel.cu:1:")) << name;
    const auto asked =
        Compile("#if __has_include(\"" + name + "\")\n#error it sees a file\n#endif\n" + kPlain);
    EXPECT_TRUE(asked.ok()) << name << ": " << asked.status();
  }
  std::filesystem::current_path(before);
  std::filesystem::remove_all(directory);
}

// docs/bundles.md promises these on every target.
TEST_P(CompilerConformance, HasTheHeadersThatEveryTargetHas) {
  for (const char* header :
       {"kvr/device.cuh", "cuda_bf16.h", "cuda_fp16.h", "cuda_fp8.h", "cstdint", "cmath",
        "type_traits", "limits", "cassert", "cstdio", "math_constants.h"}) {
    const auto compiled = Compile("#include <" + std::string(header) + ">\n" + kPlain);
    EXPECT_TRUE(compiled.ok()) << header << ": " << compiled.status();
  }
}

TEST_P(CompilerConformance, TheSameUnitGivesTheSameBytes) {
  const std::string source =
      "#include <kvr/device.cuh>\n"
      "__constant__ float table[4] = {1, 2, 3, 4};\n"
      "template <int N> __global__ void k(float* p) {\n"
      "  __shared__ float s[32 * N];\n"
      "  s[threadIdx.x] = kvr::Exp2(p[threadIdx.x]);\n  __syncthreads();\n"
      "  for (int i = 0; i < N; ++i) p[i] += s[31 * i] * table[i & 3];\n}\n";
  const auto first = Compile(source, {"k<2>", "k<3>"});
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(Compile(kPlain).ok());
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path("/");
  const auto again = Compile(source, {"k<2>", "k<3>"});
  compiler_ = Another();
  ASSERT_NE(compiler_, nullptr);
  const auto another = Compile(source, {"k<2>", "k<3>"});
  std::filesystem::current_path(before);
  ASSERT_TRUE(again.ok() && another.ok()) << again.status() << another.status();
  EXPECT_TRUE(again->bytes == first->bytes) << "the second compile differs";
  EXPECT_TRUE(another->bytes == first->bytes) << "another compiler of this kind differs";
  const auto other = Compile(source, {"k<2>", "k<4>"});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_FALSE(other->bytes == first->bytes);
}

TEST_P(CompilerConformance, TakesHeadersFromTheUnit) {
  const auto with = [&](const std::string& content) {
    Unit unit = OneFileUnit(*compiler_, "#include \"mine.cuh\"\n" + std::string(kPlain), {"k"});
    const auto text = std::make_shared<const std::string>(content);
    unit.headers.push_back({"mine.cuh", text, FingerprintOf(content), "mine.cuh"});
    unit.files.push_back({"mine.cuh", "mine.cuh", text, {}});
    return compiler_->Compile(unit, target_);
  };
  EXPECT_TRUE(with("#pragma once\n#define MINE 1\n").ok());
  EXPECT_THAT(std::string(What(with("\n\nint f() { return wrong; }\n").status())),
              StartsWith("mine.cuh:3:"));
}

// Several at once where it says so, one after another as Jit does where not: either way the threads
// get what one alone gets.
TEST_P(CompilerConformance, ThreadsGetWhatOneGets) {
  constexpr int kThreads = 4, kUnits = 6;
  const auto source = [](int i) {
    return "__global__ void k(float* p) { p[threadIdx.x] *= " + std::to_string(i) + ".5f; }";
  };
  std::vector<std::string> alone;
  for (int i = 0; i < kUnits; ++i) {
    const auto compiled = Compile(source(i));
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    alone.push_back(compiled->bytes);
  }
  std::mutex serial;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kUnits; ++i) {
        const int mine = (i + t) % kUnits;
        std::unique_lock<std::mutex> lock(serial, std::defer_lock);
        if (!compiler_->concurrent()) lock.lock();
        const auto compiled = Compile(source(mine));
        ASSERT_TRUE(compiled.ok()) << compiled.status();
        EXPECT_TRUE(compiled->bytes == alone[mine]) << mine;
        EXPECT_FALSE(Compile("__global__ void k(int* p) { wrong; }").ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace kvr
