// SPDX-License-Identifier: Apache-2.0
//
// The sentinel through the real compilers: for a GPU where NVRTC is found, and run on the host.
#include "tuner/worker/sentinel.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "api/platform.h"

namespace kvr {
namespace {

class SentinelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(cache_.data()), nullptr);
    PlatformOptions options;
    options.cache_dir = cache_;
    auto platform = Platform::Open(options);
    ASSERT_TRUE(platform.ok()) << platform.status();
    platform_ = *std::move(platform);
  }
  void TearDown() override {
    platform_.reset();
    std::filesystem::remove_all(cache_);
  }
  std::string cache_ = ::testing::TempDir() + "/kvr-sentinel-XXXXXX";
  std::unique_ptr<Platform> platform_;
};

TEST_F(SentinelTest, CompilesForEveryTargetThatThisMachineCompilesFor) {
  for (const std::string& target : platform_->jit().targets()) {
    const absl::StatusOr<BinaryPtr> binary = BuildSentinel(platform_->jit(), target);
    ASSERT_TRUE(binary.ok()) << target << ": " << binary.status();
    EXPECT_EQ((*binary)->target, target);
    EXPECT_NE((*binary)->Find("kvr_sentinel"), nullptr);
  }
  EXPECT_FALSE(BuildSentinel(platform_->jit(), "sm_42").ok());
}

TEST_F(SentinelTest, RunsOnTheHostAloneAndRecorded) {
  auto device = platform_->OpenDevice("host");
  if (!device.ok()) GTEST_SKIP() << "no host device: " << device.status();
  const absl::StatusOr<BinaryPtr> binary = BuildSentinel(platform_->jit(), "host");
  ASSERT_TRUE(binary.ok()) << binary.status();
  MemoryBudget budget;
  auto sentinel = Sentinel::Load(**device, budget, *binary);
  ASSERT_TRUE(sentinel.ok()) << sentinel.status();
  const auto stream = (*device)->CreateStream();
  ASSERT_TRUE(stream.ok()) << stream.status();
  ASSERT_TRUE((*sentinel)->Launch(*stream).ok());
  auto reading = (*sentinel)->Read(*stream);
  ASSERT_TRUE(reading.ok()) << reading.status();
  EXPECT_GT(reading->cycles, 3000);    // steps, none of them folded
  EXPECT_EQ(reading->nanoseconds, 0);  // the host has no timer for kernels
  const int64_t first = reading->cycles;
  {
    const auto graph = (*device)->Capture(*stream, [&] { return (*sentinel)->Launch(*stream); });
    ASSERT_TRUE(graph.ok()) << graph.status();
    ASSERT_TRUE((*graph)->Launch(*stream).ok());
    reading = (*sentinel)->Read(*stream);
    ASSERT_TRUE(reading.ok()) << reading.status();
    EXPECT_GT(reading->cycles, 3000);
    EXPECT_NE(reading->cycles, first);  // it ran again
  }
  (*device)->DestroyStream(*stream);
}

}  // namespace
}  // namespace kvr
