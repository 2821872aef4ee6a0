// SPDX-License-Identifier: Apache-2.0
#include "core/tensor_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/core/plan_builder.h"
#include "tests/core/samples.h"

namespace kvr {
namespace {

constexpr auto kUnfit = absl::StatusCode::kFailedPrecondition;

TEST(TensorMap, SaysWhichLimitIsNotMet) {
  TensorMapLaunch good;  // [1000, 512] of bf16 in boxes of [64, 32]
  good.dtype = DType::kBF16;
  good.rank = 2;
  good.swizzle = 64;
  good.shape = {1000, 512};
  good.box = {64, 32};
  EXPECT_TRUE(CheckTensorMap(good).ok());
  const struct {
    std::function<void(TensorMapLaunch*)> spoil;
    const char* what;
  } cases[] = {
      {[](auto* map) { map->rank = 0; }, "it has 0 dimensions"},
      {[](auto* map) { map->rank = 6; }, "it has 6 dimensions"},
      {[](auto* map) { map->shape[0] = 0; }, "extent 0 is 0"},
      {[](auto* map) { map->shape[1] = int64_t{1} << 33; }, "extent 1 is 8589934592"},
      {[](auto* map) { map->shape[1] = 511; }, "rows of dimension 0 lie 1022 bytes apart"},
      {[](auto* map) { map->box[0] = 257; }, "box extent 0 is 257"},
      {[](auto* map) { map->box[1] = 0; }, "box extent 1 is 0"},
      {[](auto* map) { map->box[1] = 4; }, "the box is 8 bytes wide"},
      {[](auto* map) { map->swizzle = 32; }, "the box is 64 bytes wide, its swizzle 32"},
      {[](auto* map) {
         map->rank = 4;
         map->shape = {2, 1 << 30, 1 << 30, 1 << 30};
         map->box = {1, 1, 1, 32};
       },
       "bytes apart"},
  };
  for (const auto& c : cases) {
    TensorMapLaunch map = good;
    c.spoil(&map);
    EXPECT_THAT(CheckTensorMap(map), IsError(kUnfit, c.what, ""));
  }
}

TEST(TensorMap, OneThatCannotBeEncodedIsNoPlan) {
  PlanBuilder builder(SampleOp(), {{"ROWS", {64, 512}, 64, Scope::kLaunch, ""}});
  builder.Kernel("copy", {"num_tokens"}, {"128"});
  TensorMapSpec map;
  map.name = "q_rows";
  map.dtype = DType::kBF16;
  map.shape = {builder.Parse("num_tokens * num_qo_heads"), builder.Parse("head_dim")};
  map.box = {builder.Parse("ROWS"), builder.Parse("64")};
  map.swizzle = 128;
  builder.program.tensor_maps.push_back(std::move(map));
  LaunchPlan plan;
  ASSERT_TRUE(builder.Evaluate({}, {}, DeviceInfo{}, &plan).ok());
  EXPECT_EQ(plan.tensor_maps[0].rank, 2);
  EXPECT_EQ(plan.tensor_maps[0].shape[0], 64 * 16);
  EXPECT_EQ(plan.tensor_maps[0].shape[1], 512);
  EXPECT_EQ(plan.tensor_maps[0].box[0], 64);
  EXPECT_THAT(builder.Evaluate({}, {{"ROWS", 512}}, DeviceInfo{}, &plan),
              IsError(kUnfit, "tensor map 'q_rows': box extent 0 is 512", "1...256"));
  // An empty batch needs none.
  EXPECT_TRUE(builder.Evaluate({{"num_tokens", 0}}, {{"ROWS", 512}}, DeviceInfo{}, &plan).ok());
  EXPECT_EQ(plan.kernel_count, 0);
}

}  // namespace
}  // namespace kvr
