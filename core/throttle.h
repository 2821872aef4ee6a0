// SPDX-License-Identifier: Apache-2.0
//
// The reasons that slow a GPU's clocks down, as bits: NVML's clocks event (once: throttle) reasons,
// those of them that spoil a measurement. Idle clocks, clocks that somebody set and synchronised
// boards are left out.
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace kvr {

inline constexpr uint64_t kThrottlePowerCap = 0x4;
inline constexpr uint64_t kThrottleHardware = 0x8;  // together with the reason, where it is known
inline constexpr uint64_t kThrottleThermal = 0x20;
inline constexpr uint64_t kThrottleHardwareThermal = 0x40;
inline constexpr uint64_t kThrottlePowerBrake = 0x80;
inline constexpr uint64_t kThrottleMask = kThrottlePowerCap | kThrottleHardware | kThrottleThermal |
                                          kThrottleHardwareThermal | kThrottlePowerBrake;

// "power cap, thermal slowdown"; "none" where no bit of the mask is set.
std::string ThrottleText(uint64_t bits);

}  // namespace kvr
