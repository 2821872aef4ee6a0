// SPDX-License-Identifier: Apache-2.0
//
// ComputeOccupancy against the calculator that NVIDIA's toolkit ships as a header.
#include <cuda_occupancy.h>
#include <gtest/gtest.h>

#include "core/occupancy.h"
#include "tests/core/samples.h"

namespace kvr {
namespace {

int Calculator(const DeviceInfo& device, int major, int threads, int registers, int64_t smem) {
  cudaOccDeviceProp properties;
  properties.computeMajor = major;
  properties.computeMinor = 0;
  properties.maxThreadsPerBlock = device.max_threads_per_block;
  properties.maxThreadsPerMultiprocessor = device.max_threads_per_sm;
  properties.regsPerBlock = static_cast<int>(device.regs_per_block);
  properties.regsPerMultiprocessor = static_cast<int>(device.regs_per_sm);
  properties.warpSize = 32;
  properties.sharedMemPerBlock = 48 * 1024;
  properties.sharedMemPerMultiprocessor = static_cast<size_t>(device.smem_per_sm);
  properties.numSms = device.sms;
  properties.sharedMemPerBlockOptin = static_cast<size_t>(device.smem_per_block);
  properties.reservedSharedMemPerBlock = static_cast<size_t>(device.smem_reserved_per_block);
  cudaOccFuncAttributes attributes;
  attributes.maxThreadsPerBlock = device.max_threads_per_block;
  attributes.numRegs = registers;
  attributes.sharedSizeBytes = 0;
  attributes.partitionedGCConfig = PARTITIONED_GC_OFF;
  attributes.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
  attributes.maxDynamicSharedSizeBytes = static_cast<size_t>(smem);
  attributes.numBlockBarriers = 1;
  cudaOccDeviceState state;
  state.cacheConfig = CACHE_PREFER_SHARED;
  state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
  cudaOccResult result;
  cudaOccError error = cudaOccMaxActiveBlocksPerMultiprocessor(
      &result, &properties, &attributes, &state, threads, static_cast<size_t>(smem));
  return error == CUDA_OCC_SUCCESS ? result.activeBlocksPerMultiprocessor : -1;
}

void Compare(const DeviceInfo& device, int major) {
  int compared = 0;
  for (int threads = 32; threads <= 1024; threads += 32) {
    for (int registers = 16; registers <= 255; registers += 1) {
      for (int64_t smem : {0, 1, 1000, 8192, 20000, 33000, 49152, 61440, 99000, 101376, 200000}) {
        if (smem > device.smem_per_block) continue;
        ASSERT_EQ(ComputeOccupancy(device, threads, registers, smem).blocks_per_sm,
                  Calculator(device, major, threads, registers, smem))
            << threads << " threads, " << registers << " registers, " << smem << " bytes";
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 50000);
}

TEST(OccupancyOracle, AgreesOnH200) { Compare(H200(), 9); }
TEST(OccupancyOracle, AgreesOnRtxPro6000) { Compare(RtxPro6000(), 12); }

}  // namespace
}  // namespace kvr
