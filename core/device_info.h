// SPDX-License-Identifier: Apache-2.0
//
// What KVR needs to know about a device: enough for feasibility, occupancy and wave analysis
// without the hardware (profiles are files of this). Units: bytes, counts, bytes/second.
#pragma once

#include <cstdint>
#include <string>

namespace kvr {

struct DeviceInfo {
  std::string kind;    // "cuda", "host", "null", or "profile"
  std::string name;    // "NVIDIA H200"
  std::string model;   // slug of the name, part of tuning keys: "nvidia-h200"
  std::string target;  // what binaries for it are compiled as: "sm_90a", "host"
  std::string uuid;    // empty for a profile
  std::string driver;  // version text
  int ordinal = 0;     // of a GPU: as CUDA counts those that this process sees

  int sms = 1;
  int max_threads_per_block = 1024;
  int max_threads_per_sm = 2048;
  int max_blocks_per_sm = 32;
  int max_cluster_size = 1;
  int64_t regs_per_sm = 65536;
  int64_t regs_per_block = 65536;
  int64_t smem_per_sm = 0;
  int64_t smem_per_block = 0;           // opt-in maximum, static + dynamic
  int64_t smem_reserved_per_block = 0;  // taken by the driver from smem_per_sm
  int64_t l2_bytes = 0;
  double memory_bandwidth = 0;  // copy bandwidth, bytes/second; 0: unknown
};

}  // namespace kvr
