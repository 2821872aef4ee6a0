// SPDX-License-Identifier: Apache-2.0
//
// PlanCode against PlanProgram::Evaluate, of which it is the fast form.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "core/plan_code.h"

namespace kvr {

inline void ExpectSameRegionsAndMaps(const PlanProgram& program, const LaunchPlan& expected,
                                     const LaunchPlan& plan) {
  EXPECT_EQ(plan.workspace_bytes, expected.workspace_bytes);
  for (size_t i = 0; i < program.regions.size(); ++i) {
    EXPECT_EQ(plan.region_offset[i], expected.region_offset[i]);
    EXPECT_EQ(plan.region_bytes[i], expected.region_bytes[i]);
  }
  if (expected.kernel_count == 0) return;
  for (size_t i = 0; i < program.tensor_maps.size(); ++i) {
    const TensorMapLaunch& map = plan.tensor_maps[i];
    const TensorMapLaunch& wanted = expected.tensor_maps[i];
    EXPECT_EQ(map.dtype, wanted.dtype);
    EXPECT_EQ(map.rank, wanted.rank);
    EXPECT_EQ(map.swizzle, wanted.swizzle);
    for (size_t d = 0; d < static_cast<size_t>(wanted.rank); ++d) {
      EXPECT_EQ(map.shape[d], wanted.shape[d]);
      EXPECT_EQ(map.box[d], wanted.box[d]);
    }
  }
}

// `status` and `expected` are what Evaluate gave.
inline void ExpectAgreement(const PlanProgram& program, const OpSpec& op,
                            absl::Span<const int64_t> tunables, const AxisVector& axes,
                            const DeviceInfo& device, const absl::Status& status,
                            const LaunchPlan& expected) {
  const PlanCode code(program, op, tunables, device);
  auto plan = std::make_unique<LaunchPlan>();
  std::memset(static_cast<void*>(plan.get()), 0xa5, sizeof *plan);  // whatever was there before
  switch (code.Run(axes, plan.get())) {
    case PlanCode::Outcome::kDoesNotFit:
      EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
      return;
    case PlanCode::Outcome::kFailed:
      // Small programs are lowered: there is a reason.
      EXPECT_TRUE(!status.ok() || code.size() == 1) << code.size();
      return;
    case PlanCode::Outcome::kPlanned:
      break;
  }
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(plan->kernel_count, expected.kernel_count);
  for (int i = 0; i < expected.kernel_count; ++i) {
    const KernelLaunch &launch = plan->kernels[i], &wanted = expected.kernels[i];
    ASSERT_EQ(launch.kernel, wanted.kernel);
    EXPECT_EQ(launch.grid, wanted.grid);
    EXPECT_EQ(launch.block, wanted.block);
    EXPECT_EQ(launch.cluster, wanted.cluster);
    EXPECT_EQ(launch.smem, wanted.smem);
    const auto& args = program.kernels[static_cast<size_t>(launch.kernel)].args;
    for (size_t a = 0; a < args.size(); ++a) {
      if (args[a].kind != ArgSpec::Kind::kValue) continue;
      EXPECT_EQ(launch.values[a], wanted.values[a]);
    }
  }
  ExpectSameRegionsAndMaps(program, expected, *plan);
}

}  // namespace kvr
