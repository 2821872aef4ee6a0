// SPDX-License-Identifier: Apache-2.0
#include "core/throttle.h"

#include <string_view>

#include "core/strings.h"

namespace kvr {
namespace {

constexpr struct {
  uint64_t bit;
  std::string_view text;
} kReasons[] = {
    {kThrottlePowerCap, "power cap"},       {kThrottleHardware, "hardware slowdown"},
    {kThrottleThermal, "thermal slowdown"}, {kThrottleHardwareThermal, "hardware thermal slowdown"},
    {kThrottlePowerBrake, "power brake"},
};

}  // namespace

std::string ThrottleText(uint64_t bits) {
  std::string text;
  for (const auto& reason : kReasons) {
    if ((bits & reason.bit) != 0) StrAppend(&text, text.empty() ? "" : ", ", reason.text);
  }
  return text.empty() ? "none" : text;
}

}  // namespace kvr
