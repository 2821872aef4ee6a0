// SPDX-License-Identifier: Apache-2.0
//
// Shared libraries as files: which are plugins, and what is said of those that are not.
#include "plugins/library.h"

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "tests/plugins/plugin_fixture.h"

namespace kvr {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Library : public PluginTest {
 protected:
  // The demo with the first `from` replaced by as many bytes.
  void WritePatched(std::string_view from, std::string_view to) const {
    std::string content = ReadFile(FixturePlugin("kvr_test_demo"));
    const size_t at = content.find(from);
    ASSERT_NE(at, std::string::npos);
    ASSERT_EQ(from.size(), to.size());
    Write("x.so", content.replace(at, from.size(), to));
  }
  std::string Refusal() const { return std::string(RefusalOf("x.so").message()); }

  // A 32-byte record header of the demo's section, with `change` made to it.
  void WriteHeader(std::string_view magic, size_t offset, std::string_view bytes) const {
    std::string content = ReadFile(FixturePlugin("kvr_test_demo"));
    const size_t at = content.find(magic);
    ASSERT_NE(at, std::string::npos);
    Write("x.so", content.replace(at + offset, bytes.size(), bytes));
  }
};

std::string Bytes(uint64_t value, size_t size) {
  return std::string(reinterpret_cast<const char*>(&value), size);
}

TEST_F(Library, BundlesAndOperationsComeOutOfOneFile) {
  const std::string path = Copy("kvr_test_demo", "p/plugin.so");
  const Scan scan = ScanAll({"p"});
  for (const Rejection& r : scan.rejections) ADD_FAILURE() << r.path << "\n" << r.status;
  ASSERT_EQ(scan.operations.size(), 1u);
  EXPECT_EQ(scan.operations[0]->spec().name, "scale_rows");
  ASSERT_EQ(scan.variants.size(), 3u);
  const Variant* planned = FindVariant(scan, "planned");
  ASSERT_NE(planned, nullptr);
  EXPECT_EQ(planned->plugin, "kvr_test_demo");
  EXPECT_EQ(planned->directory, path + ":demo/planned");
  EXPECT_EQ(planned->sources[0].path, path + ":demo/planned/scale.cu");
  EXPECT_NE(planned->code, nullptr);
  EXPECT_EQ(planned->plan.function.get(), planned->code.get());
  const Variant* launched = FindVariant(scan, "launched");
  ASSERT_NE(launched, nullptr);
  EXPECT_TRUE(launched->has_launch_function);
  EXPECT_TRUE(launched->plan.kernels.empty());
  EXPECT_EQ(FindVariant(scan, "sources")->code, nullptr);
}

TEST_F(Library, MayBeARootItself) {
  Copy("kvr_test_demo", "deep/any.name");
  EXPECT_EQ(ScanAll({"deep/any.name"}).variants.size(), 3u);
}

TEST_F(Library, BelowTheRootIsNotLookedFor) {
  Copy("kvr_test_demo", "p/build/plugin.so");
  WriteBundle("p/b");
  EXPECT_EQ(ScanAll({"p"}).operations.size(), 0u);
}

TEST_F(Library, SymlinkIsFollowedAndTheFileReadOnce) {
  const std::string path = Copy("kvr_test_demo", "real/plugin.so.1");
  std::filesystem::create_directory(Path("p"));
  std::filesystem::create_symlink(path, Path("p/plugin.so"));
  const Scan scan = ScanAll({"p", "real/plugin.so.1"});
  EXPECT_TRUE(scan.rejections.empty());
  ASSERT_EQ(scan.variants.size(), 3u);
  EXPECT_THAT(scan.variants[0]->directory, testing::StartsWith(path));
  std::filesystem::create_symlink("nothing.so", Path("p/dangling.so"));
  EXPECT_THAT(std::string(ScanAll({"p"}).rejections.at(0).status.message()),
              HasSubstr("dangling.so"));
}

TEST_F(Library, WritableByOthersIsRefused) {
  const std::string path = Copy("kvr_test_demo", "x.so");
  ASSERT_EQ(chmod(path.c_str(), 0757), 0);
  const absl::Status status = RefusalOf("x.so");
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path), HasSubstr("chmod go-w")));
}

TEST_F(Library, StrangersFileIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to give a file away";
  const std::string path = Copy("kvr_test_demo", "x.so");
  ASSERT_EQ(chown(path.c_str(), 54321, 54321), 0);
  EXPECT_THAT(Refusal(), HasSubstr("belongs to user 54321"));
}

TEST_F(Library, HugeFilesAndPipesAreRefusedUnread) {
  Write("p/x.so", "");
  std::filesystem::resize_file(Path("p/x.so"), kMaxLibraryBytes + 1);
  Scan scan = ScanAll({"p"});
  ASSERT_EQ(scan.rejections.size(), 1u);
  EXPECT_THAT(std::string(scan.rejections[0].status.message()), HasSubstr("larger than 256 MiB"));
  std::filesystem::remove(Path("p/x.so"));
  ASSERT_EQ(mkfifo(Path("p/x.so").c_str(), 0600), 0);
  scan = ScanAll({"p"});
  ASSERT_EQ(scan.rejections.size(), 1u);
  EXPECT_THAT(std::string(scan.rejections[0].status.message()), HasSubstr("not a regular file"));
}

TEST_F(Library, WithoutTheSectionIsNoPlugin) {
  Copy("kvr_test_bare", "x.so");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr(Path("x.so")), HasSubstr("is no KVR plugin")));
}

TEST_F(Library, OtherFilesAreNamedForWhatTheyAre) {
  Write("x.so", "");
  EXPECT_THAT(Refusal(), HasSubstr("is empty"));
  Write("x.so", "#!/bin/sh\nexit 0\n");
  EXPECT_THAT(Refusal(), HasSubstr("is no ELF file"));
  Write("x.so",
        "\x7f"
        "ELF");
  EXPECT_THAT(Refusal(), HasSubstr("is truncated or damaged"));
  const std::string demo = ReadFile(FixturePlugin("kvr_test_demo"));
  Write("x.so", demo.substr(0, demo.size() / 2));
  EXPECT_THAT(Refusal(), HasSubstr("is truncated or damaged"));
  std::string other = demo;
  other[offsetof(Elf64_Ehdr, e_machine)] = static_cast<char>(EM_AARCH64);
  Write("x.so", other);
  EXPECT_THAT(Refusal(), HasSubstr("is for another machine"));
  other = demo;
  other[EI_CLASS] = ELFCLASS32;
  Write("x.so", other);
  EXPECT_THAT(Refusal(), HasSubstr("is no 64-bit little-endian ELF file"));
  other = demo;
  other[offsetof(Elf64_Ehdr, e_type)] = ET_EXEC;
  Write("x.so", other);
  EXPECT_THAT(Refusal(), HasSubstr("is no shared library"));
}

TEST_F(Library, OtherAbiVersionIsRefusedNamingBoth) {
  WriteHeader("KVRPLUG1", 8, Bytes(2, 4) + Bytes(5, 4));
  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr("is made for plugin ABI 2.5"), HasSubstr("this kvr has 1.1")));
}

TEST_F(Library, DamagedRecordsAreRefused) {
  WritePatched("KVRPLUG1", "KVRPLUG2");
  EXPECT_THAT(Refusal(), HasSubstr("at byte 0 there is no record"));
  WritePatched("KVRPLUG1", "KVRFILE1");
  EXPECT_THAT(Refusal(), HasSubstr("a file comes before KVR_PLUGIN"));
  WritePatched("KVRFILE1", "KVRPLUG1");
  EXPECT_THAT(Refusal(), HasSubstr("KVR_PLUGIN stands a second time"));
  WriteHeader("KVRFILE1", 12, Bytes(KVR_ABI_MINOR + 1, 4));
  EXPECT_THAT(Refusal(), HasSubstr("another ABI version than the first"));
  for (uint64_t size : {uint64_t{1} << 20, ~uint64_t{0}, ~uint64_t{0} - 40}) {
    WriteHeader("KVRFILE1", 16, Bytes(size, 8));
    EXPECT_THAT(Refusal(), HasSubstr("larger than the section"));
    WriteHeader("KVRFILE1", 24, Bytes(size, 8));
    EXPECT_THAT(Refusal(), HasSubstr("larger than the section"));
  }
  WriteHeader("KVRFILE1", 24, Bytes(1, 8));
  EXPECT_THAT(Refusal(), HasSubstr("does not end where it says"));
}

TEST_F(Library, NamesAreCheckedAsInABundle) {
  WritePatched("demo/planned/scale.cu", "demo/../lanned/scale.");
  EXPECT_THAT(Refusal(), HasSubstr("leaves the bundle through '..'"));
  WritePatched("demo/planned/scale.cu", "/etc/passwd/scale.cu/");
  EXPECT_THAT(Refusal(), HasSubstr("is an absolute path"));
  WritePatched("demo/planned/scale.cu", "demo/planned/scale\n\xff\xfe");
  EXPECT_THAT(Refusal(), HasSubstr("has a character other than"));
  WritePatched("demo/planned/scale.cu", "demo/sources/scale.cu");
  EXPECT_THAT(Refusal(), HasSubstr("has the file 'demo/sources/scale.cu' twice"));
  WritePatched("kvr_test_demo1.0.0", "kvr test demo1.0.0");
  EXPECT_THAT(Refusal(), HasSubstr("which is not legal"));
}

TEST_F(Library, FaultInAManifestIsNamedInsideTheLibrary) {
  WritePatched("targets = [\"host\"]", "targets = [\"hosd\"]");
  const Scan scan = ScanAll({"x.so"});
  ASSERT_EQ(scan.rejections.size(), 1u);
  EXPECT_EQ(scan.rejections[0].path, Path("x.so:demo/launched/variant.toml"));
  EXPECT_THAT(std::string(scan.rejections[0].status.message()),
              HasSubstr(Path("x.so:demo/launched/variant.toml:6")));
  EXPECT_EQ(scan.variants.size(), 2u);  // the others stay
}

TEST_F(Library, MissingFileIsNamedWithTheNearest) {
  WritePatched("demo/planned/scale.cu", "demo/planned/scare.cu");
  const Scan scan = ScanAll({"x.so"});
  ASSERT_EQ(scan.rejections.size(), 1u);
  EXPECT_THAT(std::string(scan.rejections[0].status.message()),
              AllOf(HasSubstr("file 'scale.cu' of the bundle cannot be opened"),
                    HasSubstr("did you mean 'scare.cu'?")));
}

TEST_F(Library, SecondOperationOfANameIsRefused) {
  Copy("kvr_test_demo", "p/a.so");
  Copy("kvr_test_rebuilt", "p/b.so");
  const Scan scan = ScanAll({"p"});
  EXPECT_EQ(scan.operations.size(), 1u);
  EXPECT_EQ(scan.variants.size(), 3u);
  ASSERT_EQ(scan.rejections.size(), 4u);
  EXPECT_EQ(scan.rejections[0].path, Path("p/b.so:demo/definition.json"));
  EXPECT_EQ(scan.rejections[0].status.code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(Library, WithoutCodeCannotBringWhatNeedsSome) {
  Copy("kvr_test_data", "p/data.so");
  Scan scan = ScanAll({"p"}, {.ops = std::vector<const OpSpec*>{&op_}});
  ASSERT_EQ(scan.rejections.size(), 1u);  // of this op, whose 'sums' the bundle does not write
  EXPECT_THAT(scan.rejections[0].path, testing::EndsWith("data.so:demo/sources/variant.toml"));

  Copy("kvr_test_codeless", "q/x.so");
  scan = ScanAll({"q"});
  ASSERT_EQ(scan.rejections.size(), 4u);
  EXPECT_THAT(std::string(scan.rejections[0].status.message()),
              HasSubstr("'scale_rows' has no code: the library defines no exported kvr_plugin_v1"));
  for (size_t i = 1; i < 4; ++i) {  // the cause again, not what follows of it
    EXPECT_THAT(std::string(scan.rejections[i].status.message()),
                HasSubstr("operation 'scale_rows' is refused"));
  }
  op_.outputs.resize(1);
  scan = ScanAll({"q"}, {.ops = std::vector<const OpSpec*>{&op_}});
  EXPECT_EQ(scan.variants.size(), 1u);
  std::string all;
  for (const Rejection& r : scan.rejections) all += r.status.ToString();
  EXPECT_THAT(all, AllOf(HasSubstr("plan_values needs code, and the library defines no"),
                         HasSubstr("launch_function needs code")));
}

TEST_F(Library, ScanningLoadsNothing) {
  Copy("kvr_test_faulty", "p/x.so");
  setenv("KVR_TEST_FAULT", "abort", 1);
  const Scan scan = ScanAll({"p"});
  unsetenv("KVR_TEST_FAULT");
  EXPECT_EQ(scan.variants.size(), 3u);
}

TEST_F(Library, OperationWhoseKeyPolicyIsWrongIsRefusedAlone) {
  WritePatched("rows:pow2", "rowz:pow2");
  const Scan scan = ScanAll({"x.so"});
  EXPECT_TRUE(scan.operations.empty());
  ASSERT_FALSE(scan.rejections.empty());
  EXPECT_THAT(std::string(scan.rejections[0].status.message()), HasSubstr("rowz"));
}

}  // namespace
}  // namespace kvr
