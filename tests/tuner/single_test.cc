// SPDX-License-Identifier: Apache-2.0
#include "tuner/single.h"

#include <gtest/gtest.h>

#include "tests/tuner/fixture.h"

namespace kvr {
namespace {

class SingleTest : public ::testing::Test {
 protected:
  Candidate Of(int64_t block_h, int64_t target_ctas) const {
    return {variant_, {{"BLOCK_H", block_h}, {"STAGES", 2}, {"TARGET_CTAS", target_ctas}}};
  }
  AxisVector At(int64_t tokens) const {
    return test::Shape(op_.spec(), {{"num_tokens", tokens}, {"topk", 512}});
  }

  const test::DecodeOp op_;
  const std::shared_ptr<Variant> variant_ = test::SplitVariant(op_.spec());
  const DeviceInfo device_ = test::Blackwell();
};

TEST_F(SingleTest, WorkIsTheSameWherePlansAre) {
  const AxisVector one = At(1), many = At(96);
  // 16 splits at most: a batch of one has them with either aim.
  EXPECT_TRUE(SameWork(Of(16, 512), Of(16, 1024), {one}, device_));
  EXPECT_FALSE(SameWork(Of(16, 512), Of(16, 1024), {many}, device_));
  EXPECT_FALSE(SameWork(Of(16, 512), Of(16, 1024), {one, many}, device_));
  EXPECT_FALSE(SameWork(Of(16, 512), Of(32, 512), {one}, device_));  // other kernels
  // A name alone makes no other work; the source does.
  const auto renamed = test::SplitVariant(op_.spec(), "renamed");
  EXPECT_TRUE(SameWork(Of(16, 512), {renamed, Of(16, 512).config}, {one}, device_));
  renamed->fingerprint = FingerprintOf("other source");
  EXPECT_FALSE(SameWork(Of(16, 512), {renamed, Of(16, 512).config}, {one}, device_));
}

TEST_F(SingleTest, TheBestForAllNeedNotBeTheBestForAny) {
  const Candidate a = Of(16, 256), b = Of(16, 1024), c = Of(32, 256);
  const std::vector<SingleKey> keys = {{{At(64)}, {{a, 0}, {b, 0.2}, {c, 0.02}}},
                                       {{At(96)}, {{a, 0.2}, {b, 0}, {c, 0.02}}}};
  size_t of = 0;
  EXPECT_EQ(BestSingle(keys, device_, &of), c);
  EXPECT_EQ(of, 3u);
}

TEST_F(SingleTest, WhoWasLeftOutAsARepeatHasTheTimeOfTheOther) {
  // At one token 512 and 1024 blocks give the same plan, so only one of them raced there.
  const std::vector<SingleKey> keys = {
      {{At(1)}, {{Of(16, 512), 0}, {Of(32, 512), 0.1}}},
      {{At(96)}, {{Of(16, 1024), 0}, {Of(16, 512), 0.3}, {Of(32, 512), 0.1}}}};
  EXPECT_EQ(BestSingle(keys, device_), Of(16, 1024));
}

TEST_F(SingleTest, OnlyWhoRacedEverywhereCanServeAll) {
  const Candidate a = Of(16, 256), b = Of(32, 256);
  std::vector<SingleKey> keys = {{{At(64)}, {{a, 0}, {b, 0.5}}}, {{At(96)}, {{b, 0.5}}}};
  EXPECT_EQ(BestSingle(keys, device_), b);
  keys[1].behind = {{Of(16, 1024), 0}};
  EXPECT_EQ(BestSingle(keys, device_), std::nullopt);
  // A key whose race was disturbed knows nobody's time, and asks for nobody's.
  keys[1].behind.clear();
  EXPECT_EQ(BestSingle(keys, device_), a);
  EXPECT_EQ(BestSingle({}, device_), std::nullopt);
}

}  // namespace
}  // namespace kvr
