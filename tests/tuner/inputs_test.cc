// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/inputs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/tuner/fixture.h"

namespace kvr {
namespace {

// Writes the seed into the first half of its input and leaves out the other.
class HalfOperation : public Operation {
 public:
  HalfOperation() {
    spec_.name = "half";
    spec_.axes = {test::Axis("bytes", 1)};
    spec_.inputs.push_back(test::Tensor("x", DType::kU8, {0}));
    spec_.outputs.push_back(test::Tensor("y", DType::kU8, {0}));
  }
  const OpSpec& spec() const override { return spec_; }
  absl::Status Generate(const AxisVector& axes, uint64_t seed,
                        absl::Span<const TensorView> inputs) const override {
    std::memset(inputs[0].data, static_cast<int>(seed), static_cast<size_t>(axes[0] / 2));
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<ReferenceOutput>> Reference(const AxisVector&,
                                                         absl::Span<const TensorView>,
                                                         int) const override {
    return std::vector<ReferenceOutput>(1);
  }
  int64_t MinimumBytes(const AxisVector& axes) const override { return axes[0]; }

 private:
  OpSpec spec_;
};

constexpr int64_t kLarge = int64_t{40} << 20;

class InputSetsTest : public testing::Test {
 protected:
  // Checks the set's contents as well.
  InputSetPtr Get(int64_t bytes, uint64_t seed) {
    absl::StatusOr<InputSetPtr> set = sets_.Get(op_, AxisVector{bytes}, seed);
    EXPECT_TRUE(set.ok()) << set.status();
    if (!set.ok()) return nullptr;
    ExpectWhole(**set);
    return *set;
  }
  static void ExpectWhole(const InputSet& set) {
    const auto* const x = static_cast<const char*>(set.inputs[0].data);
    const int64_t bytes = set.inputs[0].bytes();
    EXPECT_EQ(std::count(x, x + bytes / 2, static_cast<char>(set.seed)), bytes / 2);
    EXPECT_EQ(std::count(x + bytes / 2, x + bytes, 0), bytes - bytes / 2);
  }
  const HalfOperation op_;
  InputSets sets_{/*threads=*/3};
};

TEST_F(InputSetsTest, ASetIsDrawnOnce) {
  const InputSetPtr set = Get(10, 7);
  EXPECT_EQ(Get(10, 7), set);
  EXPECT_NE(Get(10, 8), set);
  EXPECT_NE(Get(11, 7), set);
}

TEST_F(InputSetsTest, TheNextShapesLargeTensorsLieWhereThoseOfTheLastOneLay) {
  std::vector<const void*> before, after;
  for (const uint64_t seed : {1, 2}) before.push_back(Get(kLarge, seed)->inputs[0].data);
  for (const uint64_t seed : {3, 4}) after.push_back(Get(kLarge - 1, seed)->inputs[0].data);
  std::sort(before.begin(), before.end());
  std::sort(after.begin(), after.end());
  EXPECT_EQ(after, before);
}

TEST_F(InputSetsTest, MemoryGrowsWithTheShape) {
  for (const int64_t bytes : {kLarge, 2 * kLarge, kLarge / 2, 3 * kLarge}) {
    for (const uint64_t seed : {5, 6}) Get(bytes, seed);
  }
}

TEST_F(InputSetsTest, ASetThatIsHeldStaysAsItWasDrawn) {
  const InputSetPtr held = Get(kLarge, 1);
  EXPECT_NE(Get(kLarge - 1, 2)->inputs[0].data, held->inputs[0].data);
  ExpectWhole(*held);
}

}  // namespace
}  // namespace kvr
