// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/variants/edges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvr {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::IsEmpty;
using testing::Le;
using testing::Not;
using testing::UnorderedElementsAre;

// y[rows, 64] = x[rows, groups * 64], groups even.
OpSpec Rows() {
  OpSpec op;
  op.name = "rows";
  op.axes = {{.name = "rows", .default_value = 100},
             {.name = "width", .is_const = true, .value = 64},
             {.name = "groups", .default_value = 8}};
  op.inputs = {{.name = "x", .dtype = DType::kF32, .axes = {0, 2, 1}}};
  op.outputs = {{.name = "y", .dtype = DType::kF32, .axes = {0, 1}}};
  op.constraints = {"groups >= 1 and groups <= 100", "mod(groups, 2) == 0"};
  return op;
}

std::vector<int64_t> ValuesOf(const std::vector<AxisVector>& shapes, size_t axis, int64_t other) {
  std::vector<int64_t> values;
  for (const AxisVector& axes : shapes) {
    if (axes[2 - axis] == other) values.push_back(axes[axis]);
  }
  return values;
}

TEST(Edges, TheSmallShapeMeetsTheConstraints) {
  EXPECT_EQ(SmallShape(Rows()), (AxisVector{3, 64, 2}));
}

TEST(Edges, AreThoseOfEachAxisAndItsBuckets) {
  const OpSpec op = Rows();
  const KeyPolicy policy = KeyPolicy::Parse("rows:ceil(4,20); groups:pow2", op).value();
  const std::vector<AxisVector> shapes = EdgeShapes(op, policy, 33);
  EXPECT_EQ(shapes.front(), SmallShape(op));
  EXPECT_THAT(ValuesOf(shapes, 0, 2), UnorderedElementsAre(0, 1, 2, 3, 4, 5, 7, 13, 19, 20, 21));
  EXPECT_THAT(ValuesOf(shapes, 2, 3), UnorderedElementsAre(2, 4, 8, 16, 32));
}

TEST(Edges, SurroundTheTiles) {
  const OpSpec op = Rows();
  const std::vector<AxisVector> shapes = TileShapes(op, {16, 1, 500}, 64);
  EXPECT_THAT(ValuesOf(shapes, 0, 2), UnorderedElementsAre(15, 16, 17));
  EXPECT_THAT(ValuesOf(shapes, 2, 3), UnorderedElementsAre(16));
}

TEST(Edges, EmptyShapesEmptyTheOutputs) {
  EXPECT_THAT(EmptyShapes(Rows()), UnorderedElementsAre(AxisVector{0, 64, 2}));
}

TEST(Edges, LargestShapesEndWhereConstraintsOrMemoryEnd) {
  constexpr int64_t kMost = 1'000'000;
  const OpSpec op = Rows();
  const std::vector<AxisVector> shapes =
      LargestShapes(op, [](const AxisVector& axes) { return axes[0] <= kMost || axes[2] < 50; });
  constexpr int64_t kRows = (int64_t{1} << 47) / (64 * 4 * 2);
  EXPECT_THAT(shapes, Contains(AxisVector{kRows, 64, 2}));
  EXPECT_THAT(shapes, Contains(AxisVector{(int64_t{1} << 31) + 1, 64, 2}));
  EXPECT_THAT(shapes, Contains(AxisVector{3, 64, 100}));
  EXPECT_THAT(shapes, Contains(AxisVector{kMost, 64, 100}));
  for (const AxisVector& axes : shapes) EXPECT_TRUE(IsLegal(op, axes)) << ShapeText(op, axes);
}

TEST(Edges, EveryValueOfATunableIsTriedOnce) {
  const Tunable a = {.name = "A", .values = {1, 2, 3}, .default_value = 2};
  const Tunable b = {.name = "B", .values = {8, 9}, .default_value = 8};
  EXPECT_THAT(ConfigsToTry({a, b}),
              testing::ElementsAre(Config{{"A", 2}, {"B", 8}}, Config{{"A", 1}, {"B", 8}},
                                   Config{{"A", 3}, {"B", 8}}, Config{{"A", 2}, {"B", 9}}));
}

TEST(Edges, OfAQualityTunableTheEndsAreTried) {
  const Tunable a = {
      .name = "A", .values = {1, 2, 3, 4}, .default_value = 1, .scope = Scope::kQuality};
  EXPECT_THAT(ConfigsToTry({a}), testing::ElementsAre(Config{{"A", 1}}, Config{{"A", 4}}));
}

}  // namespace
}  // namespace kvr
