// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/nvml.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "core/throttle.h"

namespace kvr::cuda {
namespace {

constexpr char kGpu[] = "0000:3b:00.0";

class FakeNvml : public testing::Test {
 protected:
  void TearDown() override {
    for (const char* name :
         {"FAKE_NVML_INIT", "FAKE_NVML_FIND", "FAKE_NVML_GET", "FAKE_NVML_BITS"}) {
      unsetenv(name);
    }
  }
};

TEST_F(FakeNvml, IsAskedAnewEachTimeUnderEitherName) {
  for (const char* library : {KVR_FAKE_NVML, KVR_FAKE_OLD_NVML}) {
    Throttle throttle(kGpu, library);
    setenv("FAKE_NVML_BITS", "0x24", 1);
    EXPECT_EQ(throttle.Bits(), kThrottlePowerCap | kThrottleThermal) << library;
    setenv("FAKE_NVML_BITS", "0", 1);
    EXPECT_EQ(throttle.Bits(), 0u) << library;
  }
}

TEST_F(FakeNvml, ReasonsThatSpoilNothingAreLeftOut) {
  setenv("FAKE_NVML_BITS", "0xffffffffffffffff", 1);
  EXPECT_EQ(Throttle(kGpu, KVR_FAKE_NVML).Bits(), 0xecu);
  setenv("FAKE_NVML_BITS", "0x113", 1);  // idle, set clocks, boards in step, clocks of a display
  EXPECT_EQ(Throttle(kGpu, KVR_FAKE_NVML).Bits(), 0u);
}

TEST_F(FakeNvml, ThatFailsKnowsNothing) {
  setenv("FAKE_NVML_BITS", "0x4", 1);
  for (const char* call : {"FAKE_NVML_INIT", "FAKE_NVML_FIND", "FAKE_NVML_GET"}) {
    setenv(call, "4", 1);
    EXPECT_EQ(Throttle(kGpu, KVR_FAKE_NVML).Bits(), 0u) << call;
    unsetenv(call);
  }
  EXPECT_EQ(Throttle("0000:af:00.0", KVR_FAKE_NVML).Bits(), 0u);
  EXPECT_EQ(Throttle("", KVR_FAKE_NVML).Bits(), 0u);
  EXPECT_EQ(Throttle(kGpu, KVR_FAKE_NVML).Bits(), 4u) << "none of these stays";
}

TEST_F(FakeNvml, IsStartedOnceHoweverManyAskFirst) {
  setenv("FAKE_NVML_BITS", "0x80", 1);
  Throttle throttle(kGpu, KVR_FAKE_NVML);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { EXPECT_EQ(throttle.Bits(), kThrottlePowerBrake); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Nvml, ThatIsMissingOrAnotherLibraryKnowsNothing) {
  EXPECT_EQ(Throttle(kGpu, "libnvidia-ml-that-nobody-has.so.1").Bits(), 0u);
  EXPECT_EQ(Throttle(kGpu, "libm.so.6").Bits(), 0u);
}

TEST(Nvml, OfThisMachineNeverCrashes) {
  EXPECT_EQ(Throttle("0000:00:00.0").Bits() & ~kThrottleMask, 0u);
}

}  // namespace
}  // namespace kvr::cuda
