// SPDX-License-Identifier: Apache-2.0
#include "tuner/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/tuner/fixture.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();

// One token, four heads: o = {1, -inf, 0, 4}, ids = {7}.
class CompareTest : public ::testing::Test {
 protected:
  CompareTest() {
    axes_ = test::Shape(op_.spec(), {{"num_tokens", 1}, {"num_qo_heads", 4}});
    std::vector<TensorView> shapes = TensorShapes(op_.spec(), axes_);
    outputs_ = {shapes[1], shapes[2]};
    outputs_[0].data = o_;
    outputs_[1].data = ids_;
    reference_.resize(2);
    reference_[0].expected = {1, -kInf, 0, 4};
    reference_[0].bound = {0.01, 0, 0, 0.01};
    reference_[1].expected = {7};
    reference_[1].bound = {0};
  }
  Comparison Run(uint8_t poison = PoisonByte(0)) {
    return Compare(op_.spec(), outputs_, reference_, poison);
  }

  test::DecodeOp op_;
  AxisVector axes_;
  float o_[4] = {1, -INFINITY, 0, 4};
  int32_t ids_[1] = {7};
  std::vector<TensorView> outputs_;
  std::vector<ReferenceOutput> reference_;
};

TEST_F(CompareTest, WithinTheBoundPasses) {
  o_[0] = 1.009f;
  const Comparison result = Run();
  EXPECT_EQ(result.status, TrialStatus::kPassed) << result.reason;
  EXPECT_NEAR(result.max_abs, 0.009, 1e-6);
  EXPECT_NEAR(result.max_rel, 0.009, 1e-6);
  EXPECT_EQ(result.reason, "");
}

TEST_F(CompareTest, AnExpectationWithinItsToleranceOfZeroHasNoRelativeError) {
  reference_[0].expected[2] = 1e-9;
  reference_[0].bound[2] = 0.01;
  o_[2] = 0.005f;
  const Comparison result = Run();
  EXPECT_EQ(result.status, TrialStatus::kPassed) << result.reason;
  EXPECT_NEAR(result.max_abs, 0.005, 1e-6);
  EXPECT_EQ(result.max_rel, 0);
}

TEST_F(CompareTest, OutsideTheBoundNamesTensorElementAndValues) {
  o_[3] = 4.5f;
  const Comparison result = Run();
  EXPECT_EQ(result.status, TrialStatus::kIncorrectNumerical);
  EXPECT_THAT(result.reason, HasSubstr("o: 1 of 4 elements"));
  EXPECT_THAT(result.reason, HasSubstr("[0, 3]: 4.5, expected 4"));
}

TEST_F(CompareTest, NanNeverPasses) {
  o_[0] = NAN;
  EXPECT_EQ(Run().status, TrialStatus::kIncorrectNumerical);
  o_[0] = 1;
  reference_[0].bound[0] = kInf;
  EXPECT_EQ(Run().status, TrialStatus::kPassed);
  o_[0] = NAN;
  EXPECT_EQ(Run().status, TrialStatus::kIncorrectNumerical);
}

TEST_F(CompareTest, AnInfinityMustBeMetExactly) {
  o_[1] = -3e38f;
  EXPECT_EQ(Run().status, TrialStatus::kIncorrectNumerical);
  o_[1] = INFINITY;
  EXPECT_EQ(Run().status, TrialStatus::kIncorrectNumerical);
  o_[1] = -INFINITY;
  o_[0] = INFINITY;
  EXPECT_EQ(Run().status, TrialStatus::kIncorrectNumerical);
}

TEST_F(CompareTest, PoisonThatIsStillThereCountsAsUnwritten) {
  for (int round = 0; round < 2; ++round) {
    std::memset(&o_[2], PoisonByte(round), sizeof o_[2]);
    const Comparison result = Run(PoisonByte(round));
    EXPECT_EQ(result.status, TrialStatus::kIncorrectNumerical);
    EXPECT_EQ(result.outputs[0].unwritten, 1);
    EXPECT_THAT(result.reason, HasSubstr("1 never written"));
  }
}

TEST_F(CompareTest, AnIntegerThatEqualsThePoisonIsRightWhereItIsExpected) {
  ids_[0] = -1;  // bytes 0xff
  reference_[1].expected = {-1};
  EXPECT_EQ(Run(0xff).status, TrialStatus::kPassed);
  // ... and the other round's poison catches one that was not written.
  std::memset(ids_, PoisonByte(1), sizeof ids_);
  EXPECT_EQ(Run(PoisonByte(1)).status, TrialStatus::kIncorrectNumerical);
}

TEST_F(CompareTest, TheCosineLimitSeesWhatGenerousBoundsAllow) {
  reference_[0].bound = {10, 0, 10, 10};
  o_[0] = 4;
  o_[3] = -1;
  EXPECT_EQ(Run().status, TrialStatus::kPassed);
  reference_[0].cosine_limit = 5e-6;
  const Comparison result = Run();
  EXPECT_EQ(result.status, TrialStatus::kIncorrectNumerical);
  EXPECT_THAT(result.reason, HasSubstr("cosine"));
}

TEST_F(CompareTest, AllZeroIsCosineZero) {
  for (float& o : o_) o = 0;
  reference_[0].expected = {0, 0, 0, 0};
  reference_[0].cosine_limit = 5e-6;
  const Comparison result = Run();
  EXPECT_EQ(result.status, TrialStatus::kPassed) << result.reason;
  EXPECT_EQ(result.outputs[0].cosine_difference, 0);
}

TEST_F(CompareTest, DistanceIsOfWholeTensorsAndOfAmountsAlone) {
  o_[0] = 1.5f;  // of {1, 0, 4}; the infinity has no say
  ids_[0] = 9;
  const std::vector<QualityMeasure> distance = DistanceOf(op_.spec(), Run());
  ASSERT_EQ(distance.size(), 2u);
  EXPECT_EQ(distance[0].name, "o.cosine_difference");
  EXPECT_NEAR(distance[0].value, 1 - 2 * 17.5 / (17 + 18.25), 1e-12);
  EXPECT_EQ(distance[1].name, "o.relative_error");
  EXPECT_NEAR(distance[1].value, 0.5 / std::sqrt(17.0), 1e-12);
}

TEST_F(CompareTest, DTypeAndShapeHaveTheirOwnStatus) {
  outputs_[1].dtype = DType::kF32;
  EXPECT_EQ(Run().status, TrialStatus::kIncorrectDtype);
  outputs_[1].dtype = DType::kI32;
  reference_[0].expected.pop_back();
  EXPECT_EQ(Run().status, TrialStatus::kIncorrectShape);
  reference_.pop_back();
  EXPECT_EQ(Run().status, TrialStatus::kIncorrectShape);
}

TEST_F(CompareTest, AnEmptyBatchPasses) {
  outputs_[0].shape[0] = outputs_[1].shape[0] = 0;
  reference_.assign(2, {});
  EXPECT_EQ(Run().status, TrialStatus::kPassed);
}

TEST(CanaryTest, TheFirstBrokenByteIsFound) {
  std::vector<uint8_t> fence(64, kCanaryByte);
  EXPECT_EQ(FindBrokenCanary(fence), -1);
  fence[63] = 0;
  EXPECT_EQ(FindBrokenCanary(fence), 63);
  EXPECT_EQ(FindBrokenCanary({}), -1);
}

TEST(TrialStatusTest, NamesRoundTrip) {
  for (TrialStatus status :
       {TrialStatus::kPassed, TrialStatus::kIncorrectShape, TrialStatus::kIncorrectNumerical,
        TrialStatus::kIncorrectDtype, TrialStatus::kRuntimeError, TrialStatus::kCompileError,
        TrialStatus::kTimeout}) {
    absl::StatusOr<TrialStatus> parsed = ParseTrialStatus(TrialStatusName(status));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, status);
  }
  EXPECT_FALSE(ParseTrialStatus("passed").ok());
}

}  // namespace
}  // namespace kvr
