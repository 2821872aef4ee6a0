// SPDX-License-Identifier: Apache-2.0
//
// Files: who may write them, where they lie, what they hold.
#include <sys/stat.h>
#include <unistd.h>

#include "plugins/files.h"
#include "tests/plugins/fixture.h"

namespace kvr {
namespace {

using testing::HasSubstr;

class Trust : public BundleTest {
 protected:
  void SetUp() override {
    BundleTest::SetUp();
    WriteBundle("b");
  }

  absl::Status Refusal() {
    const Scan scan = ScanRoots({"b"});
    EXPECT_TRUE(scan.variants.empty());
    return scan.rejections.empty() ? absl::OkStatus() : scan.rejections[0].status;
  }
};

TEST_F(Trust, FileWritableByOthersIsRefused) {
  for (const char* file : {"b/scale.cu", "b/tile.cuh", "b/variant.toml", "b"}) {
    SCOPED_TRACE(file);
    struct stat info;
    ASSERT_EQ(stat(Path(file).c_str(), &info), 0);
    ASSERT_EQ(chmod(Path(file).c_str(), info.st_mode | S_IWOTH), 0);
    const absl::Status status = Refusal();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(std::string(status.message()), HasSubstr(Path(file)));
    EXPECT_THAT(std::string(Fix(status)), HasSubstr("chmod go-w"));
    ASSERT_EQ(chmod(Path(file).c_str(), info.st_mode), 0);
  }
  EXPECT_NE(Only({"b"}), nullptr);
}

TEST_F(Trust, SubdirectoryWritableByOthersIsRefused) {
  std::filesystem::create_directory(Path("b/sub"));
  std::filesystem::rename(Path("b/tile.cuh"), Path("b/sub/tile.cuh"));
  Write("b/variant.toml", Replaced(kManifest, "\"tile.cuh\"", "\"sub/tile.cuh\""));
  Write("b/scale.cu", kSource);
  EXPECT_NE(Only({"b"}), nullptr);
  ASSERT_EQ(chmod(Path("b/sub").c_str(), 0777), 0);
  EXPECT_EQ(Refusal().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(Trust, StrangersFileIsRefusedAndOwnPrivateGroupAccepted) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to give a file away";
  ASSERT_EQ(chown(Path("b/scale.cu").c_str(), 54321, 54321), 0);
  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("belongs to user 54321"));
  ASSERT_EQ(chown(Path("b/scale.cu").c_str(), 0, 54321), 0);
  ASSERT_EQ(chmod(Path("b/scale.cu").c_str(), 0664), 0);
  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("writable by its group"));
  ASSERT_EQ(chown(Path("b/scale.cu").c_str(), 0, 0), 0);
  EXPECT_NE(Only({"b"}), nullptr);
}

TEST_F(Trust, SymlinkOutOfTheBundleIsRefused) {
  Write("secret.cuh", "// secret\n");
  std::filesystem::remove(Path("b/tile.cuh"));
  std::filesystem::create_symlink("../secret.cuh", Path("b/tile.cuh"));
  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("is a symlink out of the bundle"));
}

TEST_F(Trust, SymlinkedManifestOutOfTheBundleIsRefused) {
  std::filesystem::rename(Path("b/variant.toml"), Path("elsewhere.toml"));
  std::filesystem::create_symlink(Path("elsewhere.toml"), Path("b/variant.toml"));
  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("is a symlink out of the bundle"));
}

TEST_F(Trust, DanglingAndCircularSymlinksAreRefused) {
  std::filesystem::remove(Path("b/tile.cuh"));
  std::filesystem::create_symlink("nothing", Path("b/tile.cuh"));
  EXPECT_EQ(Refusal().code(), absl::StatusCode::kNotFound);
  std::filesystem::remove(Path("b/tile.cuh"));
  std::filesystem::create_symlink("tile.cuh", Path("b/tile.cuh"));
  EXPECT_FALSE(Refusal().ok());
}

TEST_F(Trust, PipesAndDirectoriesAreRefusedWithoutWaiting) {
  std::filesystem::remove(Path("b/tile.cuh"));
  ASSERT_EQ(mkfifo(Path("b/tile.cuh").c_str(), 0600), 0);
  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("not a regular file"));
  std::filesystem::remove(Path("b/tile.cuh"));
  std::filesystem::create_directory(Path("b/tile.cuh"));
  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("not a regular file"));
}

TEST_F(Trust, UnreadableFileIsRefused) {
  if (geteuid() == 0) GTEST_SKIP() << "root reads everything";
  ASSERT_EQ(chmod(Path("b/tile.cuh").c_str(), 0), 0);
  EXPECT_EQ(Refusal().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(Trust, FilesThatAreNotTextAreRefused) {
  Write("b/tile.cuh", "// fine\n// \xff\xfe\n");
  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("tile.cuh: line 2 is not UTF-8"));
  Write("b/tile.cuh", std::string("// fine\n\0int x;\n", 16));
  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("line 2 holds a NUL byte"));
  Write("b/tile.cuh", kHeader);
  Write("b/variant.toml", "schema = 1\nop = \"\xc0\xaf\"\n");
  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("line 2 is not UTF-8"));
}

TEST_F(Trust, LargeFilesAreRefusedWithTheLimit) {
  Write("b/tile.cuh", std::string(bundle::kMaxSourceBytes + 1, ' '));
  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("larger than 1 MiB"));
}

TEST_F(Trust, ErrorsOfFilesNameTheManifestsLine) {
  std::filesystem::remove(Path("b/scale.cu"));
  EXPECT_THAT(std::string(Refusal().message()), HasSubstr(Path("b/variant.toml") + ":9:"));
}

TEST(FileNames, OnlyRelativePortableOnes) {
  for (const char* good : {"a.cu", "src/a.cu", "A-b_c.1/x.cuh", "..a"}) {
    EXPECT_TRUE(bundle::CheckFileName(good).ok()) << good;
  }
  for (const char* bad : {"", "/a", "../a", "a/../b", "a//b", "./a", "a/", "a b", "a\\b", "~/a",
                          "a\n", "kvr/device.cuh", "\xc3\xa4.cu"}) {
    EXPECT_FALSE(bundle::CheckFileName(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace kvr
