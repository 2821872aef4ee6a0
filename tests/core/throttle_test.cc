// SPDX-License-Identifier: Apache-2.0
#include "core/throttle.h"

#include <gtest/gtest.h>

namespace kvr {
namespace {

TEST(Throttle, ReadsAsReasons) {
  EXPECT_EQ(ThrottleText(0), "none");
  EXPECT_EQ(ThrottleText(kThrottlePowerCap), "power cap");
  EXPECT_EQ(ThrottleText(kThrottlePowerCap | kThrottleThermal), "power cap, thermal slowdown");
  EXPECT_EQ(ThrottleText(~uint64_t{0}),
            "power cap, hardware slowdown, thermal slowdown, hardware thermal slowdown, power "
            "brake");
  EXPECT_EQ(ThrottleText(0x11), "none") << "idle clocks and boards in step slow nothing down";
}

}  // namespace
}  // namespace kvr
