// SPDX-License-Identifier: Apache-2.0
//
// What only the in-process compiler does; what every compiler does is in ../../conformance.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "core/status.h"
#include "tests/devices/host/host_fixture.h"

namespace kvr {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string CompileFailure(const std::string& source, const std::string& entry = "k") {
  const absl::StatusOr<Binary> binary = CompileForHost(source, {entry});
  EXPECT_EQ(binary.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(What(binary.status()));
}

TEST(HostCompiler, RefusesWhatCannotRunHere) {
  EXPECT_THAT(CompileFailure("__device__ void f() {\n  asm volatile(\"bar.sync 0;\"); }\n"
                             "__global__ void k(int* p) { f(); }"),
              AllOf(StartsWith("kernel.cu:2:"), HasSubstr("assembly cannot run on host"),
                    HasSubstr("host_skip_reason")));
  EXPECT_THAT(CompileFailure("__global__ void k(int* p) { __shared__ int big[20000]; "
                             "big[*p] = 1; __syncthreads(); *p = big[3]; }"),
              AllOf(HasSubstr("80000"), HasSubstr("49152")));
  EXPECT_THAT(CompileFailure("struct S { int x; __device__ S() : x(*(int*)8) {} };\n"
                             "__global__ void k(int* p) { __shared__ S s; *p = s.x; }"),
              HasSubstr("constructor"));
  EXPECT_THAT(CompileFailure("__global__ void k(int* p) { volatile int a[100000]; a[*p] = 1; }"),
              HasSubstr("stack frame"));
  EXPECT_THAT(
      CompileFailure("int f(); __device__ int x = f();\n__global__ void k(int* p) { *p = x; }"),
      HasSubstr("initialise"));
}

TEST(HostCompiler, LetsNoAssemblyReachTheAssembler) {
  EXPECT_THAT(CompileFailure("__global__ void k(int* p) {\n"
                             "  asm(\".inc\" \"bin \\\"/etc/passwd\\\"\"); }"),
              AllOf(StartsWith("kernel.cu:2:3: "), HasSubstr("assembly cannot run on host")));
  EXPECT_THAT(
      CompileFailure("__global__ void k(int* p) { }\n"
                     "namespace n { extern \"C\" {\nasm(\".incbin \\\"/etc/passwd\\\"\"); } }"),
      AllOf(StartsWith("kernel.cu:3:"), HasSubstr("assembly cannot run on host")));
  EXPECT_THAT(
      CompileFailure("__global__ void k(int* p) { asm goto(\"jmp %l0\" :::: out); out: *p = 1; }"),
      HasSubstr("assembly cannot run on host"));
  // Instantiated for nobody, or empty: a fence for the compiler.
  EXPECT_TRUE(CompileForHost("template <class T> __device__ void f() { asm(\"bar.sync 0;\"); }\n"
                             "__global__ void k(int* p) { asm volatile(\"\" ::: \"memory\"); }",
                             {"k"})
                  .ok());
}

TEST(HostCompiler, NamesWhatIsDefinedNowhereAtItsUse) {
  EXPECT_THAT(CompileFailure("extern \"C\" void abort();\n"
                             "__global__ void k(int* p) {\n  if (*p) abort(); }"),
              AllOf(StartsWith("kernel.cu:3:11: "), HasSubstr("abort is declared, but defined")));
  EXPECT_THAT(CompileFailure("namespace n { template <class T> __device__ T helper(T, float*); }\n"
                             "__device__ int f(int x) {\n  return n::helper(x, nullptr); }\n"
                             "__global__ void k(int* p) { *p = f(*p); }"),
              AllOf(StartsWith("kernel.cu:3:"), HasSubstr("int n::helper<int>(int, float*)")));
  EXPECT_THAT(CompileFailure("extern __device__ int table[8];\n"
                             "__global__ void k(int* p) { *p = table[*p]; }"),
              AllOf(StartsWith("kernel.cu:2:"), HasSubstr("table is declared")));
  EXPECT_THAT(CompileFailure("extern \"C\" int sprintf(char*, const char*, ...);\n"
                             "__global__ void k(char* p) { sprintf(p, \"%d\", 3); }"),
              AllOf(StartsWith("kernel.cu:2:"), HasSubstr("sprintf")));
  EXPECT_THAT(CompileFailure("__global__ void k(int* p);"),
              AllOf(StartsWith("kernel.cu:1"), HasSubstr("k(int*) is declared, but defined")));
  EXPECT_THAT(CompileFailure("__global__ void k(long double* p) { *p = fmodl(*p, 3); }"),
              HasSubstr("fmodl"));
  // Not called in the end.
  EXPECT_TRUE(CompileForHost("__device__ void f();\n"
                             "__global__ void k(int* p) { if (sizeof(int) == 8) f(); }",
                             {"k"})
                  .ok());
}

// The code generator calls helpers of its own.
TEST(HostCompiler, RefusesEntriesThatAreNotGlobalAtTheirLine) {
  EXPECT_THAT(
      CompileFailure("\nvoid k(int* p) { *p = 1; }"),
      AllOf(StartsWith("kernel.cu:2"), HasSubstr("k(int*)"), HasSubstr("declare it __global__")));
  EXPECT_THAT(
      CompileFailure("namespace n { template <int N>\n__device__ void k(int* p) { *p = N; } }",
                     "n::k<3>"),
      AllOf(StartsWith("kernel.cu:2"), HasSubstr("declare it __global__")));
  // The word may stand anywhere, and at the declaration alone.
  for (const char* source :
       {"void __global__ k(int* p) { *p = 1; }",
        "__global__ void k(int*); void k(int* p) { *p = 1; }",
        "extern \"C\" __global__ void __launch_bounds__(32) k(int* p) { *p = 1; }",
        "__global__ __launch_bounds__(32) static void k(int* p) { *p = 1; }"}) {
    EXPECT_TRUE(CompileForHost(source, {"k"}).ok()) << source;
  }
  EXPECT_TRUE(CompileForHost("template <class T> __global__ void k(T* p);\n"
                             "template <class T> void k(T* p) { *p = 1; }\n"
                             "template <> void k<int>(int* p) { *p = 2; }",
                             {"k<int>", "k<float>"})
                  .ok());
}

TEST(HostCompiler, HasTheHelpersOfWideAndHalfTypes) {
  const absl::StatusOr<Binary> binary = CompileForHost(
      "__global__ void k(__int128* i, unsigned __int128* u, double* d, float* f, _Float16* h) {\n"
      "  i[0] = i[1] / i[2] + i[3] % i[4]; u[0] = u[1] / u[2] + u[3] % u[4];\n"
      "  i[5] = d[0]; u[5] = d[1]; i[6] = f[0]; u[6] = f[1];\n"
      "  d[2] = i[7]; d[3] = u[7]; f[2] = i[8]; f[3] = u[8];\n"
      "  h[0] = d[4]; d[5] = h[1]; d[6] = __builtin_powi(d[7], 70); f[6] = __builtin_powif(f[7], "
      "70);\n"
      "}",
      {"k"});
  ASSERT_TRUE(binary.ok()) << binary.status();
  EXPECT_TRUE(HostDeviceUnderTest().Load(*binary).ok());
  EXPECT_THAT(CompileFailure("__global__ void k(__float128* p) { *p = *p / p[1]; }"),
              HasSubstr("__divtf3, which the host device does not have"));
}

TEST(HostCompiler, RefusesLocalMemoryOfVariableSize) {
  EXPECT_THAT(CompileFailure("__global__ void k(int* p) {\n"
                             "  int a[*p]; a[p[1]] = 1; *p = a[p[2]]; }"),
              AllOf(StartsWith("kernel.cu:2:"), HasSubstr("variable size")));
}

TEST(HostCompiler, ReadsNoFileOfTheMachine) {
  EXPECT_THAT(CompileFailure("#include <vector>\n__global__ void k(int* p) { }"),
              AllOf(StartsWith("kernel.cu:1:"), HasSubstr("'vector' file not found")));
  EXPECT_THAT(CompileFailure("#include \"/usr/include/stdio.h\"\n__global__ void k(int* p) { }"),
              HasSubstr("file not found"));
}

TEST(HostCompiler, NamesKernelsByTheirMangledNames) {
  const absl::StatusOr<Binary> binary = CompileForHost(
      "template <int N> __global__ void t(int* p) { *p = N; }\n"
      "extern \"C\" __global__ void plain() {}\n"
      "namespace n { __global__ void k(float x) {} }",
      {"t<1>", "t<2>", "plain", "n::k", "t<2 - 1>"});
  ASSERT_TRUE(binary.ok()) << binary.status();
  EXPECT_EQ(binary->kernels[0].symbol, "_Z1tILi1EEvPi");
  EXPECT_EQ(binary->kernels[1].symbol, "_Z1tILi2EEvPi");
  EXPECT_EQ(binary->kernels[2].symbol, "plain");
  EXPECT_EQ(binary->kernels[3].symbol, "_ZN1n1kEf");
  EXPECT_EQ(binary->kernels[4].symbol, "_Z1tILi1EEvPi");
  EXPECT_TRUE(HostDeviceUnderTest().Load(*binary).ok());
}

TEST(HostCompiler, RefusesTheHeadersOfAnotherRelease) {
  std::string pattern = testing::TempDir() + "/kvr_other_sdk_XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  const std::filesystem::path sdk = pattern;
  std::filesystem::copy(KVR_SOURCE_DIR "/sdk/device", sdk,
                        std::filesystem::copy_options::recursive);
  std::ofstream(sdk / "host" / "kvr_host_abi.h", std::ios::app)
      << "#undef KVR_HOST_ABI\n#define KVR_HOST_ABI 999\n";
  const std::unique_ptr<Compiler> compiler = OpenHostCompiler(sdk.string());
  ASSERT_NE(compiler, nullptr);
  const absl::Status status = CompileForHost("__global__ void k() { }", {"k"}, *compiler).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("see KVR_SDK_DIR"));
  std::filesystem::remove_all(sdk);
}

TEST(HostCompiler, SaysWhatItIs) {
  Compiler& compiler = HostCompilerUnderTest();
  EXPECT_THAT(compiler.identity(), AllOf(StartsWith("clang 19."), HasSubstr(" module ")));
  EXPECT_FALSE(compiler.concurrent());
  EXPECT_TRUE(compiler.Supports("host"));
  std::string reason;
  EXPECT_FALSE(compiler.Supports("sm_90a", &reason));
  EXPECT_THAT(reason, HasSubstr("sm_90a"));
}

}  // namespace
}  // namespace kvr
