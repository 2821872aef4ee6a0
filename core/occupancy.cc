// SPDX-License-Identifier: Apache-2.0
#include "core/occupancy.h"

#include <algorithm>

namespace kvr {
namespace {

constexpr int kWarpSize = 32;
constexpr int kRegisterUnit = 256;  // registers are given to a warp in these units
constexpr int kMaxRegistersPerThread = 255;
constexpr int kWarpUnit = 4;  // one per sub-partition of the multiprocessor
constexpr int64_t kSmemUnit = 128;

int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

int64_t BlocksByRegisters(const DeviceInfo& device, int warps, int registers) {
  if (registers <= 0) return device.max_blocks_per_sm;
  const int64_t per_warp = RoundUp(int64_t{registers} * kWarpSize, kRegisterUnit);
  if (registers > kMaxRegistersPerThread ||
      per_warp * RoundUp(warps, kWarpUnit) > device.regs_per_block) {
    return 0;
  }
  const int64_t warps_resident = device.regs_per_sm / per_warp / kWarpUnit * kWarpUnit;
  return warps_resident / warps;
}

int64_t BlocksBySmem(const DeviceInfo& device, int64_t smem_bytes) {
  if (smem_bytes > device.smem_per_block) return 0;
  const int64_t per_block = RoundUp(smem_bytes + device.smem_reserved_per_block, kSmemUnit);
  if (per_block == 0) return device.max_blocks_per_sm;
  return device.smem_per_sm / per_block;
}

}  // namespace

Occupancy ComputeOccupancy(const DeviceInfo& device, int threads_per_block, int registers,
                           int64_t smem_bytes) {
  const int warps =
      std::max(1, static_cast<int>(RoundUp(threads_per_block, kWarpSize)) / kWarpSize);
  struct Limit {
    std::string_view name;
    int64_t blocks;
  };
  const Limit limits[] = {
      {"registers", BlocksByRegisters(device, warps, registers)},
      {"shared memory", BlocksBySmem(device, smem_bytes)},
      {"threads", threads_per_block > device.max_threads_per_block
                      ? 0
                      : device.max_threads_per_sm / kWarpSize / warps},
      {"blocks", device.max_blocks_per_sm},
  };
  // The first of equals: what an author can change comes first.
  const Limit& limit =
      *std::min_element(std::begin(limits), std::end(limits),
                        [](const Limit& a, const Limit& b) { return a.blocks < b.blocks; });
  Occupancy result;
  result.blocks_per_sm = static_cast<int>(limit.blocks);
  result.limiter = limit.name;
  if (device.max_threads_per_sm > 0) {
    result.fraction =
        static_cast<double>(limit.blocks * warps * kWarpSize) / device.max_threads_per_sm;
  }
  return result;
}

Waves ComputeWaves(int64_t ctas, int sms, int blocks_per_sm) {
  Waves result;
  result.slots = int64_t{sms} * blocks_per_sm;
  if (result.slots <= 0 || ctas <= 0) return result;
  result.waves = static_cast<double>(ctas) / static_cast<double>(result.slots);
  result.tail_ctas = ctas % result.slots;
  if (result.tail_ctas > 0) {
    result.tail_utilisation =
        static_cast<double>(result.tail_ctas) / static_cast<double>(result.slots);
  }
  return result;
}

}  // namespace kvr
