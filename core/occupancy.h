// SPDX-License-Identifier: Apache-2.0
//
// Occupancy, waves and tails from a description alone. Source of the rules: the CUDA occupancy
// calculator's published allocation granularity (registers: per warp in units of 256, warps in
// units of 4; shared memory: units of 128 bytes plus the reserve of each block).
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/device_info.h"

namespace kvr {

struct Occupancy {
  int blocks_per_sm = 0;     // 0: the block does not fit; `limiter` says why
  double fraction = 0;       // resident threads / max_threads_per_sm
  std::string_view limiter;  // "registers", "shared memory", "threads", "blocks"
};

// smem_bytes: static + dynamic of one block. registers: per thread.
Occupancy ComputeOccupancy(const DeviceInfo& device, int threads_per_block, int registers,
                           int64_t smem_bytes);

struct Waves {
  double waves = 0;             // ctas / slots
  int64_t slots = 0;            // sms * blocks_per_sm
  int64_t tail_ctas = 0;        // blocks in the last, part-filled wave; 0: none
  double tail_utilisation = 1;  // tail_ctas / slots; 1 when there is no tail
};
Waves ComputeWaves(int64_t ctas, int sms, int blocks_per_sm);

}  // namespace kvr
