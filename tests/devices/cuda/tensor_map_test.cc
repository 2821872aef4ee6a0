// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/tensor_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "core/status.h"

namespace kvr::cuda {
namespace {

using testing::HasSubstr;

// [rows, width] of bf16 in boxes of [64, 32].
TensorMapLaunch Rows(int64_t rows, int64_t width) {
  TensorMapLaunch map{.dtype = DType::kBF16, .rank = 2, .swizzle = 64};
  map.shape = {rows, width};
  map.box = {64, 32};
  return map;
}

struct Asked {  // of the driver, the last time
  int dtype = -1, swizzle = -1;
  uint32_t rank = 0;
  void* data = nullptr;
  std::array<uint64_t, 5> shape{}, strides{};
  std::array<uint32_t, 5> box{}, steps{};
  Result answer = kSuccess;
} asked;

Result Encode(void*, int dtype, uint32_t rank, void* data, const uint64_t* shape,
              const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int, int swizzle,
              int, int) {
  const Result answer = asked.answer;
  asked = {dtype, swizzle, rank, data};
  for (uint32_t d = 0; d < rank; ++d) {
    asked.shape[d] = shape[d];
    asked.box[d] = box[d];
    asked.steps[d] = steps[d];
    if (d + 1 < rank) asked.strides[d] = strides[d];
  }
  return answer;
}

Result NoName(Result, const char**) { return kInvalidValue; }

class TensorMapTest : public testing::Test {
 protected:
  TensorMapTest() {
    asked = {};
    driver_.TensorMapEncodeTiled = Encode;
    driver_.GetErrorName = NoName;
    driver_.GetErrorString = NoName;
  }
  std::string Refusal(const TensorMapLaunch& map, const void* data) {
    asked.answer = kInvalidValue;
    TensorMap encoded;
    const absl::Status status = EncodeTensorMap(driver_, map, data, &encoded);
    EXPECT_FALSE(status.ok());
    EXPECT_FALSE(Fix(status).empty());
    return std::string(What(status));
  }
  Driver driver_;
  alignas(16) std::array<char, 64> memory_{};
};

TEST_F(TensorMapTest, AsksForDimensionsFromTheInnermost) {
  TensorMapLaunch map{.dtype = DType::kF32, .rank = 3, .swizzle = 128};
  map.shape = {7, 100, 64};
  map.box = {1, 16, 32};
  TensorMap encoded;
  ASSERT_TRUE(EncodeTensorMap(driver_, map, memory_.data(), &encoded).ok());
  EXPECT_EQ(asked.dtype, kTensorMapFloat32);
  EXPECT_EQ(asked.swizzle, kTensorMapSwizzle128);
  EXPECT_EQ(asked.rank, 3u);
  EXPECT_EQ(asked.data, memory_.data());
  EXPECT_THAT(asked.shape, testing::ElementsAre(64, 100, 7, 0, 0));
  EXPECT_THAT(asked.strides, testing::ElementsAre(256, 25600, 0, 0, 0));
  EXPECT_THAT(asked.box, testing::ElementsAre(32, 16, 1, 0, 0));
  EXPECT_THAT(asked.steps, testing::ElementsAre(1, 1, 1, 0, 0));
}

TEST_F(TensorMapTest, SaysWhyTheDriverRefuses) {
  const TensorMapLaunch good = Rows(1000, 512);
  EXPECT_TRUE(ExplainTensorMap(good, memory_.data()).ok());
  EXPECT_THAT(Refusal(good, memory_.data() + 2), HasSubstr("not aligned to 16 bytes"));
  EXPECT_THAT(Refusal(good, nullptr), HasSubstr("not aligned"));
  EXPECT_THAT(Refusal(Rows(1000, 511), memory_.data()), HasSubstr("lie 1022 bytes apart"));
  // A limit not known here is still an error, the driver's.
  EXPECT_THAT(Refusal(good, memory_.data()), HasSubstr("cuTensorMapEncodeTiled"));
}

TEST_F(TensorMapTest, NeedsADriverThatHasIt) {
  driver_.TensorMapEncodeTiled = nullptr;
  TensorMap encoded;
  const absl::Status status = EncodeTensorMap(driver_, Rows(8, 64), memory_.data(), &encoded);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(Fix(status)), HasSubstr("driver"));
}

}  // namespace
}  // namespace kvr::cuda
