// SPDX-License-Identifier: Apache-2.0
#include "core/occupancy.h"

#include <gtest/gtest.h>

#include "tests/core/samples.h"

namespace kvr {
namespace {

TEST(Occupancy, KnownValuesOfTheCalculator) {
  struct Case {
    DeviceInfo device;
    int threads, registers;
    int64_t smem;
    int blocks;
    std::string_view limiter;
  };
  const Case cases[] = {
      {H200(), 256, 32, 0, 8, "registers"},   // and threads: 64 warps either way
      {H200(), 256, 24, 0, 8, "threads"},     //
      {H200(), 128, 128, 0, 4, "registers"},  // 4096 a warp, 16 warps
      {H200(), 128, 168, 0, 3, "registers"},  // 5376 a warp: 3 a sub-partition
      {H200(), 1024, 64, 0, 1, "registers"},  //
      {H200(), 1024, 65, 0, 0, "registers"},  // 73728 registers a block
      {H200(), 32, 16, 0, 32, "blocks"},      //
      {H200(), 128, 40, 60 * 1024, 3, "shared memory"},
      {H200(), 128, 40, 232448, 1, "shared memory"},
      {H200(), 128, 40, 232449, 0, "shared memory"},
      {RtxPro6000(), 128, 40, 60 * 1024, 1, "shared memory"},
      {RtxPro6000(), 128, 40, 49 * 1024, 2, "shared memory"},
      {RtxPro6000(), 128, 40, 101376, 1, "shared memory"},
      {RtxPro6000(), 256, 40, 0, 6, "registers"},  // 48 warps, as many as threads allow
      {RtxPro6000(), 32, 16, 0, 24, "blocks"},
      {RtxPro6000(), 128, 256, 0, 0, "registers"},  // above 255 a thread
      {RtxPro6000(), 1025, 16, 0, 0, "threads"},
  };
  for (const Case& c : cases) {
    Occupancy got = ComputeOccupancy(c.device, c.threads, c.registers, c.smem);
    EXPECT_EQ(got.blocks_per_sm, c.blocks) << c.threads << " " << c.registers << " " << c.smem;
    EXPECT_EQ(got.limiter, c.limiter) << c.threads << " " << c.registers << " " << c.smem;
  }
}

TEST(Occupancy, FractionCountsResidentThreads) {
  EXPECT_DOUBLE_EQ(ComputeOccupancy(H200(), 256, 32, 0).fraction, 1.0);
  EXPECT_DOUBLE_EQ(ComputeOccupancy(H200(), 128, 128, 0).fraction, 0.25);
  EXPECT_DOUBLE_EQ(ComputeOccupancy(RtxPro6000(), 128, 40, 60 * 1024).fraction, 128.0 / 1536);
  EXPECT_DOUBLE_EQ(ComputeOccupancy(H200(), 1, 16, 0).fraction, 0.5) << "a warp is whole";
}

TEST(Waves, CountsTheTail) {
  Waves waves = ComputeWaves(384, 188, 1);
  EXPECT_EQ(waves.slots, 188);
  EXPECT_NEAR(waves.waves, 2.04, 0.005);
  EXPECT_EQ(waves.tail_ctas, 8);
  EXPECT_NEAR(waves.tail_utilisation, 0.04, 0.005);
  waves = ComputeWaves(376, 188, 2);
  EXPECT_DOUBLE_EQ(waves.waves, 1.0);
  EXPECT_EQ(waves.tail_ctas, 0);
  EXPECT_DOUBLE_EQ(waves.tail_utilisation, 1.0);
  waves = ComputeWaves(1, 188, 2);
  EXPECT_EQ(waves.tail_ctas, 1);
}

TEST(Waves, WhatDoesNotRunHasNone) {
  EXPECT_EQ(ComputeWaves(384, 188, 0).waves, 0);
  EXPECT_EQ(ComputeWaves(384, 188, 0).slots, 0);
  EXPECT_EQ(ComputeWaves(0, 188, 2).tail_ctas, 0);
}

}  // namespace
}  // namespace kvr
