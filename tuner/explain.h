// SPDX-License-Identifier: Apache-2.0
//
// What a config does at given axes on a device, before anything runs: the plan, its waves and tail,
// occupancy and its limiter, shared memory against the limit, the bytes that any implementation
// must move and the time that takes at the device's copy bandwidth.
//
// Waves and occupancy are those of the plan's *main kernel*: the one whose arguments are the most
// bytes of the op's inputs (a merge of partial results may have more blocks, but reads none of
// them); of equals the one with the most threads, of these the first. CTAs that share a cluster
// count one each.
//
// Threading: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/binary.h"
#include "core/device_info.h"
#include "core/occupancy.h"
#include "core/op.h"
#include "core/plan.h"
#include "tuner/space.h"

namespace kvr {

struct ExplainedKernel {
  std::string name;
  Dim3 grid, block, cluster;
  int64_t smem_static = 0;   // 0 while no binary is known
  int64_t smem_dynamic = 0;  // bytes
  int registers = 0;         // per thread; 0 while no binary is known
  int64_t spill_bytes = 0;   // -1: not known
  int blocks_per_sm = 0;
  double occupancy = 0;  // resident threads / most the multiprocessor holds
  std::string limiter;
};

struct Explanation {
  std::string device;  // its name
  std::string variant;
  Config config;
  Axes axes;
  std::vector<ExplainedKernel> kernels;  // in launch order; none for an empty batch
  bool launch_function = false;          // is called instead: what it launches is not known
  int main_kernel = -1;                  // index into kernels
  bool resources_known = false;          // a binary was given; else registers count as 0

  int64_t ctas = 0;
  int ctas_per_sm = 0;
  Waves waves;
  double occupancy = 0;
  std::string limiter;
  int64_t smem_bytes = 0;  // of the main kernel, static + dynamic
  int64_t smem_limit = 0;  // per block on this device
  int64_t workspace_bytes = 0;
  int64_t bytes = 0;    // Operation::MinimumBytes
  double floor_us = 0;  // bytes / copy bandwidth; 0 where the bandwidth is unknown
};

// `binary` may be null. `ctas_per_sm` > 0 overrides the computed occupancy ("what if").
// Errors: whatever makes the config infeasible here.
absl::StatusOr<Explanation> ExplainConfig(const Operation& op, const Candidate& candidate,
                                          const AxisVector& axes, const DeviceInfo& device,
                                          const Binary* binary, int ctas_per_sm = 0);

// Index of the main kernel's launch in `plan`; -1 for an empty plan.
int MainKernel(const OpSpec& op, const AxisVector& axes, const PlanProgram& program,
               const LaunchPlan& plan);

}  // namespace kvr
