// SPDX-License-Identifier: Apache-2.0
//
// What a control group still grants, read from files as the kernel writes them.
#include "api/decode/memory.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace kvr {
namespace {

class ControlGroup : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "kvr-memory-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ + "/" + name) << text;
  }

  std::string directory_;
};

TEST_F(ControlGroup, GrantsWhatItsLimitLeavesAndItsCachedFilesHold) {
  Write("memory.max", "1000\n");
  Write("memory.current", "900\n");
  Write("memory.stat",
        "anon 200\nfile 700\nshmem 50\ninactive_file 400\nactive_file 250\npgfault 9\n");
  EXPECT_EQ(ControlGroupFreeMemory(directory_), 750);
}

TEST_F(ControlGroup, GrantsNothingOverItsLimitAndNoMoreThanIt) {
  Write("memory.max", "1000\n");
  Write("memory.current", "1200\n");
  EXPECT_EQ(ControlGroupFreeMemory(directory_), 0);
  Write("memory.current", "100\n");  // the files are not of one moment
  Write("memory.stat", "inactive_file 130\n");
  EXPECT_EQ(ControlGroupFreeMemory(directory_), 1000);
}

TEST_F(ControlGroup, SaysNothingWithoutALimit) {
  EXPECT_EQ(ControlGroupFreeMemory(directory_), std::nullopt);
  Write("memory.max", "max\n");
  Write("memory.current", "900\n");
  EXPECT_EQ(ControlGroupFreeMemory(directory_), std::nullopt);
}

}  // namespace
}  // namespace kvr
