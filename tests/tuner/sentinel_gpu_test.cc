// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "api/platform.h"
#include "tuner/worker/sentinel.h"

namespace kvr {
namespace {

// An assembler that finds the steps useless leaves two clock reads side by side.
TEST(SentinelGpuTest, TakesItsStepsAndReadsTheClock) {
  const auto platform = Platform::Open({});
  ASSERT_TRUE(platform.ok()) << platform.status();
  const auto device = (*platform)->OpenDevice("cuda");
  ASSERT_TRUE(device.ok()) << device.status();
  const auto binary = BuildSentinel((*platform)->jit(), (*device)->info().target);
  ASSERT_TRUE(binary.ok()) << binary.status();
  MemoryBudget budget;
  const auto sentinel = Sentinel::Load(**device, budget, *binary);
  ASSERT_TRUE(sentinel.ok()) << sentinel.status();
  const auto stream = (*device)->CreateStream();
  ASSERT_TRUE(stream.ok()) << stream.status();
  std::vector<int64_t> cycles;
  for (int run = 0; run < 5; ++run) {
    ASSERT_TRUE((*sentinel)->Launch(*stream).ok());
    const auto reading = (*sentinel)->Read(*stream);
    ASSERT_TRUE(reading.ok()) << reading.status();
    EXPECT_GT(reading->cycles, 3 * 3000);  // three instructions a step, at least a cycle each
    const double mhz = 1e3 * static_cast<double>(reading->cycles) / reading->nanoseconds;
    EXPECT_GT(mhz, 100);
    EXPECT_LT(mhz, 4000);
    cycles.push_back(reading->cycles);
  }
  for (int64_t of_run : cycles) EXPECT_NEAR(of_run, cycles.front(), 0.05 * cycles.front());
  (*device)->DestroyStream(*stream);
}

}  // namespace
}  // namespace kvr
